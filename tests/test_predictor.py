"""A run folder answers: the same batches as training, every kind of task, the course's exact files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import tiny
from teabert import load, parse_recipe, train
from teabert.answers import Answer
from teabert.errors import UserError
from teabert.evaluation import outputs
from teabert.files import write_json
from teabert.predicting import Given, Predicting, Wanted
from teabert.progress import Quiet
from teabert.tasks.reading import read_split


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    world = tiny.write_world(tmp_path_factory.mktemp("world"))
    given = tiny.recipe(world)
    given["tasks"]["tags"] = {
        "texts": "sentence",
        "label": "tags",
        "kind": "multilabel",
        "labels": ["x", "y", "z"],
        "files": "tags-{split}.jsonl",
    }
    rows = [{"sentence": "film good", "tags": ["x", "z"]}, {"sentence": "meal bad", "tags": []}] * 8
    for split in ("train", "dev"):
        (world / "data" / f"tags-{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given["tasks"]["stars"] = given["tasks"]["mood"] | {"kind": "ordinal", "head": {"answer": "coral"}}
    given["tasks"]["mood"] |= {"course_column": "Predicted_Sentiment", "course_name": "sst"}
    given["tasks"]["same"] |= {"course_column": "Predicted_Is_Paraphrase", "course_name": "para"}
    given["tasks"]["near"] |= {"course_column": "Predicted_Similiary", "course_name": "sts"}
    return train(parse_recipe(given), world / "run").path


@pytest.fixture(scope="module")
def predictor(run):
    return load(run)


TEXTS = {
    "mood": "the film was great",
    "same": ("how do i cook rice", "best way to cook rice"),
    "near": ("a dog", "a child"),
}


def test_answers_of_each_kind_carry_what_the_kind_has(predictor):
    mood = predictor.predict("the film was great", task="mood")[0]
    assert sum(mood.probabilities.values()) == pytest.approx(1)
    assert mood.probability == max(mood.probabilities.values()) == mood.probabilities[mood.label]
    same = predictor.predict(TEXTS["same"], task="same")[0]
    assert set(same.probabilities) == {"0", "1"}
    assert (same.label == "1") == (same.probabilities["1"] > 0.5)
    near = predictor.predict(TEXTS["near"], task="near")[0]
    assert near.label is None
    assert isinstance(near.score, float)
    stars = predictor.predict("film good", task="stars")[0]
    assert sum(stars.probabilities.values()) == pytest.approx(1)
    assert stars.probability == stars.probabilities[stars.label]
    tags = predictor.predict("film good", task="tags")[0]
    assert tags.label == tuple(label for label, chance in tags.probabilities.items() if chance > 0.5)


def test_answer_less_probable_than_asked_for_is_withheld(predictor):
    for task, text in (("mood", "film good"), ("same", TEXTS["same"]), ("stars", "film good")):
        (plain,) = predictor.predict(text, task=task)
        (same,) = predictor.predict(text, task=task, abstain=plain.probability)
        (withheld,) = predictor.predict(text, task=task, abstain=plain.probability + 1e-6)
        assert same == plain
        assert not plain.abstained
        assert withheld == replace(plain, label=None, abstained=True)
        assert withheld.as_json() == plain.as_json() | {"label": None, "abstained": True}
        assert "abstained" not in plain.as_json()


def test_scores_and_several_labels_are_never_withheld(predictor):
    answers = predictor.predict(["film good", ("a dog", "a child")], tasks="all", abstain=1.0)
    assert answers[0]["tags"].label == predictor.predict("film good", task="tags")[0].label
    assert answers[1]["near"].score == pytest.approx(predictor.predict(TEXTS["near"], task="near")[0].score, abs=1e-5)
    assert answers[0]["mood"].abstained


def test_score_of_nothing_is_said():
    assert Answer("near", None, 0.0, None, {}, "1").as_json() == {"task": "near", "score": 0.0, "id": "1"}


def test_many_texts_answer_in_their_order_as_one_by_one(predictor):
    texts = ["film", "the meal was not good at all in the park", "dull", "a great book " * 3]
    together = predictor.predict(texts, task="mood")
    for text, answered in zip(texts, together, strict=True):
        alone = predictor.predict(text, task="mood")[0]
        assert alone.probabilities == pytest.approx(answered.probabilities, abs=1e-5)


def test_training_and_prediction_build_identical_batches(run, predictor):
    recipe = predictor.run.recipe
    for name, task in recipe.tasks.items():
        examples = read_split(task, "dev", recipe.data).examples
        from_file = outputs(predictor.model, predictor.source({name: examples}, Quiet()), "fp32")[name]
        texts = [example.texts if len(example.texts) == 2 else example.texts[0] for example in examples]
        answers = predictor.predict(texts, task=name)
        decided = task.meaning.probabilities(from_file.astype(np.float64))
        for row, answered in zip(decided, answers, strict=True):
            if task.kind == "score":
                assert answered.score == pytest.approx(row[0], abs=1e-6)
            else:
                assert answered.probabilities[task.labels[-1]] == pytest.approx(row[-1], abs=1e-6)


def test_saved_and_loaded_model_gives_the_same_outputs(run, predictor):
    other = load(run)
    batch = predictor.source({"mood": predictor.read_split(predictor.task("mood"), "dev", Quiet())}, Quiet()).batch(
        [(0, 0), (0, 5)]
    )
    with torch.inference_mode():
        assert torch.equal(predictor.model(batch)["mood"], other.model(batch)["mood"])


@pytest.mark.parametrize(
    ("task", "first", "pattern"),
    [
        ("mood", "id \t Predicted_Sentiment \n", r"0 , [0-4] \n"),
        ("same", "id \t Predicted_Is_Paraphrase \n", r"0 , [01]\.0 \n"),
        ("near", "id \t Predicted_Similiary \n", r"0 , -?\d+\.\d+(e-\d+)? \n"),
    ],
)
def test_course_files_have_the_course_s_exact_format(run, task, first, pattern):
    import re

    found = "".join(Predicting(run, Given(split="dev"), Wanted(task, "cs224n"), Quiet()).lines())
    lines = found.splitlines(keepends=True)
    assert lines[0] == first
    assert len(lines) == 25
    assert re.fullmatch(pattern, lines[1])


def test_unknown_task_names_the_tasks_of_the_run(predictor):
    with pytest.raises(UserError, match=r"'moods'. Did you mean 'mood'\? Known: mood, near, same, stars, tags"):
        predictor.predict("film", task="moods")


def test_unstated_task_is_asked_for(predictor):
    with pytest.raises(UserError, match="Say which task"):
        predictor.predict("film")


@pytest.mark.parametrize(
    ("texts", "task", "message"),
    [
        ("", "mood", "Text 1: the text in column 'sentence' is empty"),
        (["film", "  "], "mood", "Text 2: the text"),
        ([("a", "")], "same", "Text 1: the text in column 'two' is empty"),
        (["only one"], "same", "takes a pair of texts"),
        ([("a", "b")], "mood", "takes one text"),
    ],
)
def test_unusable_texts_are_named(predictor, texts, task, message):
    with pytest.raises(UserError, match=message):
        predictor.predict(texts, task=task)


def test_text_of_ten_thousand_words_is_answered(predictor):
    assert predictor.predict("film " * 10_000, task="mood")[0].label in "01234"


def test_run_from_a_newer_version_is_refused_in_words(run, tmp_path):
    import shutil

    shutil.copytree(run, tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    write_json(tmp_path / "run" / "run.json", facts | {"format": 99, "teabert": "9.9"})
    with pytest.raises(UserError, match=r"teabert 9\.9 \(run format 99\).*Update"):
        load(tmp_path / "run")


def test_folder_that_is_no_run_is_refused_in_words(tmp_path):
    with pytest.raises(UserError, match="is no run folder"):
        load(tmp_path)
    with pytest.raises(UserError, match="There is no run folder"):
        load(tmp_path / "absent")


def test_run_is_loaded_without_the_encoder_folder_it_started_from(run, tmp_path):
    import shutil

    shutil.copytree(run, tmp_path / "elsewhere")
    moved = run.parent / "encoder"
    moved.rename(run.parent / "away")
    try:
        assert load(tmp_path / "elsewhere").predict("film", task="mood")[0].label in "01234"
    finally:
        (run.parent / "away").rename(moved)
