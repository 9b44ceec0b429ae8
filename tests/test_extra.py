"""Rows that a task borrows from another, and labels that say how likely each class is."""

import json

import pytest

import tiny
from teabert import train
from teabert.config import parse_recipe
from teabert.dataset import read_examples
from teabert.errors import UserError
from teabert.tasks import make_task
from teabert.tasks.reading import make_example, read_file

MOVIES = {"texts": "sentence", "label": "verdict", "id": None, "kind": "binary", "labels": ["neg", "pos"]}


@pytest.fixture
def world(tmp_path):
    folder = tiny.write_world(tmp_path)
    lines = [f"the film is {word}\t{verdict}" for word, verdict in (("bad", "neg"), ("good", "pos"), ("dull", "neg"))]
    (folder / "data" / "movies.tsv").write_text("\n".join(["sentence\tverdict", *lines]) + "\n")
    lines = ["how do i cook\thow to cook rice\t10", "the dog runs\tthe child sleeps\t-10", "a b\ta c\t0"]
    (folder / "data" / "nearness.tsv").write_text("\n".join(["one\ttwo\tnear", *lines]) + "\n")
    return folder


def recipe(world, mood=None, near=None, **train):
    given = tiny.recipe(world, **train)
    for name, extra in (("mood", mood), ("near", near)):
        if extra is not None:
            given["tasks"][name]["extra"] = extra
    return given


def movies(**changes):
    return {"movies": {"rows": MOVIES | {"files": {"train": "movies.tsv"}}, "labels": {"neg": 0, "pos": 4}} | changes}


def test_borrowed_rows_train_with_the_borrowers_labels_and_stay_out_of_dev(world):
    plain = read_examples(parse_recipe(recipe(world)))
    found = read_examples(parse_recipe(recipe(world, mood=movies())))
    more = found.train["mood"][len(plain.train["mood"]) :]
    assert [(each.name, each.texts, each.label) for each in more] == [
        ("movies:2", ("the film is bad",), 0.0),
        ("movies:3", ("the film is good",), 4.0),
        ("movies:4", ("the film is dull",), 0.0),
    ]
    assert found.train["mood"][: len(plain.train["mood"])] == plain.train["mood"]
    assert found.select == plain.select
    assert found.chosen["mood"]["extra"]["movies"]["train"] == 3


def test_labels_may_be_left_out(world):
    found = read_examples(parse_recipe(recipe(world, mood=movies(labels={"neg": 1, "pos": None}))))
    assert [each.label for each in found.train["mood"][24:]] == [1.0, 1.0]


def test_part_of_the_borrowed_rows_is_a_seeded_choice_that_is_recorded(world):
    names = []
    for seed in (1, 1, 2, 3, 4, 5):
        found = read_examples(parse_recipe(recipe(world, mood=movies(take=1), seed=seed)))
        names.append(found.train["mood"][-1].name)
        assert len(found.train["mood"]) == 25
        assert names[-1] == f"movies:{found.chosen['mood']['extra']['movies']['rows'][0] + 2}"
    assert names[0] == names[1]
    assert len(set(names)) > 1


def test_scores_move_from_one_range_to_the_other(world):
    rows = {"files": {"train": "nearness.tsv"}, "range": [-10, 10], "id": None}
    found = read_examples(parse_recipe(recipe(world, near={"nearness": {"rows": rows}})))
    assert [each.label for each in found.train["near"][24:]] == [5.0, 0.0, 2.5]


def test_a_run_with_borrowed_rows_trains_on_all_of_them(world, tmp_path):
    run = train(parse_recipe(recipe(world, mood=movies(), epochs=1)), tmp_path / "run")
    counts = next(line["examples"] for line in run.log() if line["event"] == "epoch")
    assert counts["mood"]["actual"] == 27
    assert json.loads((run.path / "subsets.json").read_text())["mood"]["extra"]["movies"]["of"] == 3


@pytest.mark.parametrize(
    ("task", "name", "labels"),
    [("sst", "cfimdb", {0: 0, 1: 4}), ("sst", "more-mr", {0: 1, 1: 3}), ("sts", "more-sts-semeval", None)],
)
def test_the_papers_tasks_borrow_the_real_rows_they_could(real_data, task, name, labels):
    extra = {name: {} if labels is None else {"labels": labels}}
    own = read_examples(parse_recipe({"tasks": [task]}))
    found = read_examples(parse_recipe({"tasks": {task: {"extra": extra}}}))
    more = found.train[task][len(own.train[task]) :]
    assert len(more) == found.chosen[task]["extra"][name]["of"] > 1000
    dev = {each.texts for each in found.select[task]}
    assert not dev & {each.texts for each in more}
    if labels:
        assert {each.label for each in more} == {float(label) for label in labels.values()}


@pytest.mark.parametrize(
    ("task", "extra", "message"),
    [
        ("sst", ["cfimdb"], "tasks.sst.extra.cfimdb.labels must say for each label of 'cfimdb' .0, 1. which"),
        ("sst", {"cfimdb": {"labels": {0: 0}}}, "it says nothing of 1"),
        ("sst", {"cfimdb": {"labels": {0: 0, 1: 7}}}, "7 is no label of 'sst'"),
        ("sst", {"cfimdb": {"labels": {0: 0, 1: 4, 2: 3}}}, "2 is no label of 'cfimdb'"),
        ("sst", ["quora"], "'quora' has a pair of texts, 'sst' takes one text"),
        ("quora", ["sts"], "rows of kind 'score' cannot become rows of kind 'binary'"),
        ("sts", {"more-sts-semeval": {"labels": {0: 0}}}, "scores have no labels"),
        ("sst", ["cfimbd"], "there is no task 'cfimbd'"),
        ("sst", {"cfimdb": {"label": {0: 0}}}, "Did you mean 'labels'"),
        ("quora", ["qqp"], "'qqp' is never trained together with 'quora'"),
    ],
)
def test_rows_that_cannot_be_borrowed_are_refused_before_any_file_is_read(task, extra, message):
    facts = {"quora": {"pair": "apart", "head": {"answer": "difference"}}}.get(task, {})
    with pytest.raises(UserError, match=message):
        parse_recipe({"tasks": {task: facts | {"extra": extra}}, "data": "/nowhere"})


# soft labels


def soft(**changes):
    facts = {"texts": "text", "kind": "soft", "labels": ["bad", "so-so", "good"], "files": "{split}.csv"}
    return make_task("soft", facts | changes, "soft")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("0.2|0.3|0.5", (0.2, 0.3, 0.5)),
        ("1|1|2", (0.25, 0.25, 0.5)),
        ("good", (0.0, 0.0, 1.0)),
        ([3, 0, 1], (0.75, 0.0, 0.25)),
        ({"good": 1, "bad": 3}, (0.75, 0.0, 0.25)),
    ],
)
def test_a_soft_label_says_how_likely_each_class_is(cell, expected):
    assert make_example(soft(), {"text": "x", "label": cell}, True, "1").label == pytest.approx(expected)


@pytest.mark.parametrize(
    "cell", ["0.5|0.5", "0|0|0", "-1|1|1", "a|b|c", "nan|1|1", "inf|1|1", [1, 2], {"fine": 1}, "great"]
)
def test_a_soft_label_that_says_it_not_is_refused(cell):
    with pytest.raises(UserError, match=r"says not how likely each of bad, so-so, good is|is not one of bad, so-so, good"):
        make_example(soft(), {"text": "x", "label": cell}, True, "1")


def test_a_task_with_soft_labels_trains_and_is_judged_by_the_likeliest(world, tmp_path):
    for split in ("train", "dev"):
        lines = ["text\tlabel", "the film is bad\t0.9|0.1|0", "the film is good\t0|0.2|0.8", "the film is fine\tso-so"] * 1
        (world / "data" / f"soft-{split}.tsv").write_text("\n".join(lines) + "\n")
    given = tiny.recipe(world, epochs=12, lr=5e-3)
    task = {"texts": "text", "kind": "soft", "labels": ["bad", "so-so", "good"], "files": "soft-{split}.tsv"}
    given |= {"tasks": {"soft": task | {"class_weights": "balanced", "head": {"dropout": 0}}}, "sampling": {"batch": 3}}
    run = train(parse_recipe(given), tmp_path / "run")
    assert run.scores()["tasks"]["soft"]["accuracy"] == 1.0
    assert read_file(parse_recipe(given).tasks["soft"], world / "data" / "soft-dev.tsv", True).examples[0].label[0] == 0.9
