"""Vectors of texts, and every text against every other: as the pairs one by one, each text encoded once."""

import numpy as np
import pytest
import torch

from injected import name_of
from predictors import predictor
from teabert.batches import collate
from teabert.calibration import Calibration, TaskCalibration
from teabert.errors import UserError
from teabert.requests import Request, rows_of

TEXTS = ["the film was good", "how do I cook rice?", "the film was good", "dull", "why not learn " * 9]
OTHERS = ["nice plot", "the film was good", "rice"]
INJECTIONS = ["none", "attention", ["input", "prefix"]]


def number(answer):
    """What similar says of a pair"""
    return answer.score if answer.score is not None else list(answer.probabilities.values())[1]


@pytest.mark.parametrize("choice", INJECTIONS, ids=name_of)
@pytest.mark.parametrize("task", ["same", "kin", "heard"])
def test_similar_gives_what_predict_gives_for_every_pair(text, task, choice):
    mine = predictor(text, choice)
    for others in (None, OTHERS):
        found = mine.similar(TEXTS, task, others)
        expected = [[number(mine.predict([(one, two)], task=task)[0]) for two in others or TEXTS] for one in TEXTS]
        assert found == pytest.approx(np.array(expected), abs=1e-5)
        assert np.ptp(found) > 0.005, "nothing to compare"


@pytest.mark.parametrize("task", ["same", "heard"])
def test_each_text_is_encoded_once(text, task, monkeypatch):
    mine = predictor(text, "attention")
    read = []
    mine.model.encoder.blocks[0].register_forward_pre_hook(lambda block, given: read.append(len(given[0].input)))
    mine.similar(TEXTS, task, OTHERS)
    known = dict.fromkeys([*TEXTS, *OTHERS])
    assert sum(read) == sum(len(ids) for ids in mine.text.tokens(list(known)).ids)


def test_pairs_beyond_one_go_through_in_blocks(text, monkeypatch):
    mine = predictor(text)
    whole = {task: mine.similar(TEXTS, task, OTHERS) for task in ("same", "heard")}
    monkeypatch.setattr("teabert.vectors.PAIRS", 4)
    monkeypatch.setattr("teabert.vectors.OTHERS", 2)
    for task, expected in whole.items():
        assert mine.similar(TEXTS, task, OTHERS) == pytest.approx(expected, abs=1e-6)


def test_temperature_counts_for_probabilities_of_pairs(text):
    fitted = TaskCalibration(
        temperature=3.0, rows=9, loss_before=1, loss_after=1, ece_before=0, ece_after=0, source="made up"
    )
    plain, mine = predictor(text), predictor(text, calibration=Calibration(tasks={"same": fitted}))
    pairs = [(one, two) for one in TEXTS for two in OTHERS]
    expected = np.array([number(answer) for answer in mine.predict(pairs, task="same")]).reshape(len(TEXTS), -1)
    assert mine.similar(TEXTS, "same", OTHERS) == pytest.approx(expected, abs=1e-6)
    assert np.abs(expected - plain.similar(TEXTS, "same", OTHERS)).max() > 0.01


@pytest.mark.parametrize("choice", INJECTIONS, ids=name_of)
@pytest.mark.parametrize("task", ["mood", "tags", "same", "kin", "told"])
def test_embedded_texts_are_what_the_head_reads(text, task, choice):
    mine = predictor(text, choice)
    pair = len(mine.tasks[task].texts) == 2
    found = mine.embed(TEXTS, task)
    assert found.shape == (len(TEXTS), 32)
    assert found.dtype == np.float32
    for one, vector in zip(TEXTS, found, strict=True):
        prepared = mine.prepare(Request(task, (one, "rice") if pair else one))
        batch = collate([(rows_of(mine.tasks[task], [prepared]), 0)], mine.model.tasks)
        with torch.no_grad():
            expected = mine.model.head(task).reader(mine.model.read(batch), batch.parts[0])[0][0]
        assert vector == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_joined_pair_has_one_vector(text):
    found = predictor(text).embed([("a film", "a plot"), ("rice", "a plot")], "near")
    assert found.shape == (2, 32)
    assert np.abs(found[0] - found[1]).max() > 0.01


def test_text_alone_has_no_vector_where_texts_are_read_by_pairs(text):
    with pytest.raises(UserError, match=r"Task 'heard' reads each text of a pair in the light of the other.*similar"):
        predictor(text).embed(TEXTS, "heard")


@pytest.mark.parametrize(("task", "has"), [("mood", "has 1, together and classes"), ("near", "has 2, together and score")])
def test_task_that_compares_nothing_is_refused_in_words(text, task, has):
    with pytest.raises(UserError, match=has):
        predictor(text).similar(TEXTS, task)


def test_unusable_text_is_refused_in_words(text):
    with pytest.raises(UserError, match="Text 2: the text in column 'one' is empty"):
        predictor(text).similar(["film", " "], "same")
    with pytest.raises(UserError, match="Text 1: task 'mood' takes one text"):
        predictor(text).embed([("a", "b")], "mood")


def test_no_texts_make_an_empty_table(text):
    mine = predictor(text)
    assert mine.similar([], "same").shape == (0, 0)
    assert mine.similar(TEXTS, "heard", []).shape == (5, 0)
    assert mine.embed([], "mood").shape == (0, 32)
