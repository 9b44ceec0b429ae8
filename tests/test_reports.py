"""A run's page: whole, self-contained, true to the run, and safe whatever its files say."""

import json
import re
import shutil

import numpy as np
import pytest
import torch

import tiny
from reported import Page, page_of
from teabert import load, parse_recipe, train
from teabert.errors import UserError
from teabert.progress import Progress
from teabert.reports import report
from teabert.reports.sentences import SENTENCES
from teabert.runs import Run
from teabert.sampling import Sampler
from teabert.tasks.reading import read_split

HOSTILE = '<script>alert("1")</script>'
SECTIONS = ("scores", "learning", "confusion", "attention", "similarity", "conflict", "sampling", "made")


class Heard(Progress):
    """Keeps what it is told"""

    def __init__(self):
        self.told = []

    def note(self, text):
        self.told.append(text)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tiny.write_world(tmp_path_factory.mktemp("world"))
    data = folder / "data"
    tags = [{"sentence": "film good", "tags": ["x", "z"]}, {"sentence": "meal bad", "tags": ["y"]}] * 12
    for split in ("train", "dev"):
        (data / f"tags-{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tags))
        wild = [
            {"sentence": f"the film was {word}", "mood": (HOSTILE, "no & so")[word == "bad"]} for word in ("bad", "fine")
        ]
        (data / f"wild-{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in wild * 8))
    return folder


@pytest.fixture(scope="module")
def run(world):
    given = tiny.recipe(world, surgery="watch", weighting="uncertainty")
    given |= {"injection": "attention", "sampling": {"batch": 8, "strategy": "annealed"}}
    tags = {"texts": "sentence", "label": "tags", "kind": "multilabel", "labels": ["x", "y", "z"]}
    wild = {"texts": "sentence", "label": "mood", "kind": "classes", "labels": [HOSTILE, "no & so"]}
    given["tasks"] |= {"tags": tags | {"files": "tags-{split}.jsonl"}, "wild": wild | {"files": "wild-{split}.jsonl"}}
    return train(parse_recipe(given), world / "run").path


@pytest.fixture(scope="module")
def made(run):
    return report(run)


@pytest.fixture(scope="module")
def page(made):
    return page_of(made.path)


@pytest.fixture
def copied(run, tmp_path):
    """The run, to be spoilt"""
    return shutil.copytree(run, tmp_path / "run")


# the page as a whole


def test_page_holds_every_section_and_links_to_each(page):
    assert [given["id"] for given in page.tags("section")] == list(SECTIONS)
    assert [link for link in page.links if link.startswith("#")][1:] == [f"#{name}" for name in SECTIONS]
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_page_asks_nothing_of_other_places(made, page):
    content = made.path.read_text()
    assert "://" not in content
    assert not re.search(r"url\(|@import|<link|<iframe|<object|srcset", content)
    assert all(link.startswith("#") for link in page.links)
    assert "default-src 'none'" in next(each["content"] for each in page.tags("meta") if "http-equiv" in each)


def test_every_drawing_is_described_and_every_table_has_a_caption(page):
    drawings = [given for given in page.tags("svg") if given.get("aria-hidden") != "true"]
    assert len(drawings) > 10
    assert all(given["role"] == "img" and given["aria-label"] for given in drawings)
    assert len(page.tags("caption")) == len(page.tags("table"))
    assert all(given.get("scope") in ("row", "col") for given in page.tags("th"))


def test_same_run_gives_the_same_page(run, made, tmp_path):
    assert report(run, tmp_path / "again.html").path.read_bytes() == made.path.read_bytes()


def test_labels_and_names_from_files_stay_text(copied):
    with (copied / "log.jsonl").open("a") as log:
        line = {"event": "loss", "step": 99, "epoch": 3, "loss": {HOSTILE: 1.0, "mood": 1.0}, "examples": {"mood": 1}}
        log.write(json.dumps(line | {"conflicts": {HOSTILE: 0.5}, "weights": {HOSTILE: 1.0}}) + "\n")
    facts = json.loads((copied / "run.json").read_text())
    for key in ("processor", "teabert", "torch"):
        facts[key] = f'"><img src=x onerror=alert(1)>{HOSTILE}'
    facts["commit"] = "'\u0000\ud800</style></title>"
    (copied / "run.json").write_text(json.dumps(facts))
    found = page_of(report(copied).path)
    assert not found.tags("script")
    assert not found.tags("img")
    assert not any(name.startswith("on") for _, given in found.elements for name in given)
    assert found.tables["Truth and prediction: wild"][0] == ["true", HOSTILE, "no & so", "found"]
    assert f"Loss of {HOSTILE}, in training" in found.tables
    assert "onerror=alert(1)" in found.text


def test_no_row_of_the_data_stands_on_the_page(run, made, page):
    predictor = load(run)
    texts = [
        text
        for name in ("mood", "same", "near")
        for example in read_split(predictor.tasks[name], "dev", predictor.run.recipe.data).examples
        for text in example.texts
        if len(text.split()) > 3
    ]
    assert len(texts) > 50
    assert not [text for text in texts if text in page.text or text in json.dumps(made.numbers)]


# scores


def test_scores_are_those_of_evaluate_to_the_bit(run, made):
    wanted = load(run).evaluate()
    found = {
        name: {metric: score["value"] for metric, score in mine.items()} for name, mine in made.numbers["scores"].items()
    }
    assert found == wanted.tasks
    assert {how: score["value"] for how, score in made.numbers["overall"].items()} == wanted.overall
    assert made.numbers["rows"] == wanted.rows


def test_scores_stand_in_the_table_with_their_intervals(made, page):
    rows = page.tables["Scores with 95% intervals"]
    assert rows[0] == ["task", "metric", "score", "from", "to"]
    score = made.numbers["scores"]["mood"]["accuracy"]
    assert rows[1] == ["mood 24 rows", "accuracy", *(f"{score[key]:.3f}" for key in ("value", "low", "high"))]
    assert [row[:2] for row in rows[-2:]] == [["overall", "mean"], ["overall", "course"]]
    every = [score for mine in made.numbers["scores"].values() for score in mine.values()]
    assert all(score["low"] <= score["value"] <= score["high"] for score in [*every, *made.numbers["overall"].values()])


def test_dev_rows_that_are_gone_leave_the_scores_of_training(copied, world, tmp_path):
    data = shutil.copytree(world / "data", tmp_path / "data")
    (data / "mood-dev.tsv").unlink()
    (data / "near-dev.tsv").write_text("id\tone\ttwo\tnear\n1\ta secret sentence\tanother\ta secret label\n")
    point(copied, data)
    heard = Heard()
    made = report(copied, progress=heard)
    found = page_of(made.path)
    assert made.numbers["unread"] == ["mood", "near"]
    noted = Run.open(copied).scores()["tasks"]["mood"]["accuracy"]
    assert made.numbers["scores"]["mood"]["accuracy"] == {"value": noted, "low": None, "high": None}
    assert made.numbers["scores"]["same"]["accuracy"]["low"] is not None
    assert "The dev rows of mood, near could not be read here" in found.text
    assert "Truth and prediction: mood" not in found.tables
    assert "secret" not in made.path.read_text()
    assert any("a secret label" in told for told in heard.told)


def test_without_any_dev_rows_the_rest_is_there(copied, tmp_path):
    point(copied, tmp_path / "nowhere")
    found = page_of(report(copied).path)
    assert [given["id"] for given in found.tags("section")] == list(SECTIONS)
    assert found.tables["Scores with 95% intervals"][1][3:] == ["–", "–"]
    assert "The dev rows could not be read here." in found.text


def test_run_without_a_model_still_shows_what_was_learned(copied):
    shutil.rmtree(copied / "best")
    (copied / "scores.json").unlink()
    lines = (copied / "log.jsonl").read_text().splitlines()
    (copied / "log.jsonl").write_text(lines[0] + "\n")
    assert json.loads(lines[0])["event"] == "loss"
    heard = Heard()
    made = report(copied, progress=heard)
    found = page_of(made.path)
    assert "No epoch of this run was finished" in found.text
    assert made.numbers["scores"] == {}
    assert len(made.numbers["curves"]["loss"]["mood"]) == 1
    assert "no trained model" in heard.told[0]


def point(run, data):
    """Have a run look for its rows elsewhere"""
    recipe = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(re.sub(r"(?m)^data: .*$", f"data: {data}", recipe))


# curves, sampling, conflict


def test_curves_are_the_log(run, made, page):
    log = Run.open(run).log()
    losses = [[line["step"], line["loss"]["mood"]] for line in log if line["event"] == "loss" and "mood" in line["loss"]]
    assert made.numbers["curves"]["loss"]["mood"] == losses
    scores = [[line["epoch"], line["scores"]["tasks"]["near"]["pearson"]] for line in log if line["event"] == "epoch"]
    assert made.numbers["curves"]["scores"]["near"]["pearson"] == scores
    assert page.tables["Loss of mood, in training"][1] == [str(losses[0][0]), f"{losses[0][1]:.3f}"]


def test_actual_sampling_is_what_the_sampler_gave_out(run, made):
    recipe = Run.open(run).recipe
    sizes = {"mood": 24, "same": 24, "near": 24, "tags": 24, "wild": 16}
    sampler = Sampler(sizes, recipe.sampling, seed=recipe.train.seed, epochs=2)
    for task in sizes:
        actual = [sum(np.concatenate(sampler.epoch(epoch))[:, 0] == list(sizes).index(task)) for epoch in range(2)]
        assert [each["actual"] for each in made.numbers["sampling"][task]] == actual
        planned = [sampler.log(epoch)[task]["planned"] for epoch in range(2)]
        assert [each["planned"] for each in made.numbers["sampling"][task]] == planned
    assert made.numbers["sampling"]["wild"][0]["actual"] != made.numbers["sampling"]["wild"][1]["actual"]


def test_rows_that_were_trained_on_are_named(made, page):
    assert made.numbers["trained on"]["wild"] == {"train": 16, "of": 16}
    assert [row[:2] for row in page.tables["Tasks"][1:3]] == [["mood", "24 of 24 rows"], ["same", "24 of 24 rows"]]


def test_conflicts_and_learned_weights_are_shown_where_they_were_logged(run, made, page):
    line = next(line for line in Run.open(run).log() if line["event"] == "loss")
    assert made.numbers["conflicts"]["mood/same"][0] == [line["step"], line["conflicts"]["mood/same"]]
    assert made.numbers["weights"]["near"][0] == [line["step"], line["weights"]["near"]]
    rows = page.tables["Steps in which two tasks' gradients pointed against each other"]
    assert len(rows) == 1 + 10
    rates = [float(row[1]) for row in rows[1:]]
    assert rates == sorted(rates, reverse=True)
    assert "What each task's loss is multiplied by, learned" in page.text


def test_what_was_not_watched_is_said(world, tmp_path):
    given = tiny.recipe(world, epochs=1)
    found = page_of(report(train(parse_recipe(given), tmp_path / "run").path).path)
    assert "Train with train.surgery: watch" in found.text
    assert "No task has numbers of its own in the encoder" in found.text


# inside the model


def test_similarity_is_the_cosine_of_the_tasks_vectors(run, made, page):
    weights = Run.open(run).load_best()
    tasks = ["mood", "same", "near", "tags", "wild"]
    vectors = [weights[f"injection.vectors.{task}"].double().numpy() for task in tasks]
    flat = np.array([vector.ravel() / np.linalg.norm(vector) for vector in vectors])
    np.testing.assert_allclose(made.numbers["similarity"]["whole"], flat @ flat.T, atol=1e-12)
    one, other = vectors[0], vectors[1]
    layers = [one[n] @ other[n] / np.linalg.norm(one[n]) / np.linalg.norm(other[n]) for n in range(2)]
    found = made.numbers["similarity"]["layers"]["mood/same"]
    np.testing.assert_allclose(found, [[0, layers[0]], [1, layers[1]]], atol=1e-12)
    assert page.tables["Cosine between the tasks' vectors"][1][:2] == ["mood", "1.00"]


@pytest.mark.parametrize(
    ("injection", "layers"),
    [("projected", None), ("input", None), ({"method": "gate", "share_layers": True}, None), (["input", "gate"], 2)],
)
def test_similarity_of_every_kind_of_vector(text, injection, layers):
    from predictors import predictor
    from teabert.reports.comparing import similarity

    model = predictor(text, injection).model
    found = similarity(model)
    assert found is not None
    assert found.whole[0][0] == pytest.approx(1)
    assert abs(found.whole[0][1]) < 0.99
    assert {len(points) for points in found.layers.values()} == ({layers} if layers else set())


def test_part_that_never_left_zero_has_no_direction(text):
    from predictors import predictor
    from teabert.reports.comparing import similarity

    model = predictor(text, "input").model
    with torch.no_grad():
        model.injection.vectors["mood"].zero_()
    found = similarity(model)
    assert np.isnan(found.whole[0]).all()
    assert found.sizes[0] == 0


def test_attention_is_the_predictor_s_on_our_sentences(run, made, page):
    predictor = load(run)
    first, other = SENTENCES[0]
    by_task = {seen["task"]: seen for seen in made.numbers["attention"][0]}
    mood = predictor.attention(first, "mood")
    assert by_task["mood"]["words"] == mood.words
    np.testing.assert_allclose(by_task["mood"]["weights"], mood.weights)
    near = predictor.attention((first, other), "near")
    assert by_task["near"]["words"] == near.words
    assert sum(by_task["near"]["weights"][: near.second]) == pytest.approx(1)
    np.testing.assert_allclose(
        np.array(by_task["near"]["weights"][near.second :]), 2 * np.array(near.weights[near.second :])
    )
    rows = page.tables[f"Attention on “{first}”: mood, same, near, tags, wild"]
    assert rows[1][:2] == [mood.words[0].casefold(), f"{mood.weights[0]:.3f}"]
    assert all(sentence in page.text for pair in SENTENCES for sentence in pair)


# what cannot be reported


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("log.jsonl", '{"event": "loss", "step": }\n', "log.jsonl is damaged"),
        ("log.jsonl", '{"event": "loss", "step": "one"}\n', "log.jsonl is damaged"),
        ("scores.json", '{"tasks": 3}', "scores.json is damaged"),
        ("subsets.json", '{"mood"', "subsets.json is damaged"),
        ("subsets.json", '{"mood": 3}', "subsets.json is damaged"),
        ("subsets.json", "[1]", "subsets.json is damaged"),
        ("scores.json", "[1]", "scores.json is damaged"),
    ],
)
def test_damaged_files_are_named(copied, file, content, message):
    (copied / file).write_text(content)
    with pytest.raises(UserError, match=message):
        report(copied)
    assert not list(copied.glob(".unfinished*"))


def test_lines_of_a_newer_version_are_passed_over(copied, made):
    with (copied / "log.jsonl").open("a") as log:
        log.write('{"event": "something new", "what": 1}\n[]}\n{"cut off')
    with pytest.raises(UserError, match="damaged"):
        report(copied)
    lines = (copied / "log.jsonl").read_text().replace("[]}\n", "")
    (copied / "log.jsonl").write_text(lines)
    assert report(copied).numbers == made.numbers


def test_only_a_report_is_written_over(copied, tmp_path):
    with pytest.raises(UserError, match="is no report"):
        report(copied, copied / "recipe.yaml")
    with pytest.raises(UserError, match="is a folder"):
        report(copied, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        report(copied, tmp_path / "file" / "page.html")
    first = report(copied, tmp_path / "new" / "page.html").path
    assert Page(report(copied, first).path.read_text()).tags("h1")


def test_folder_that_is_neither_run_nor_table_is_refused(tmp_path):
    with pytest.raises(UserError, match="no run folder"):
        report(tmp_path / "absent")
    with pytest.raises(UserError, match=r"lacks run\.json"):
        report(tmp_path)
    assert not list(tmp_path.iterdir())
