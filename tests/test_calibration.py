"""Temperatures: the ones that scipy finds, labels untouched, and kept strictly beside the model."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax

from predictors import predictor, recipe
from teabert.calibration import (
    HIGHEST,
    LOWEST,
    Calibration,
    TaskCalibration,
    confidences,
    expected_calibration_error,
    fit,
    fit_temperature,
    loss,
)
from teabert.errors import UserError
from teabert.tasks.kinds import KINDS, levels

KINDS_WITH_CHANCES = ("classes", "soft", "ordinal", "binary", "multilabel")


def drawn(kind, rows=400, sharper=2.5, seed=0):
    """Outputs, and labels drawn with the probabilities of outputs that are `sharper` times smaller"""
    draw = np.random.default_rng(seed)
    outputs = draw.normal(0, 3, (rows, 1 if kind == "binary" else 4))
    if kind == "ordinal":
        outputs = draw.normal(0, 3, (rows, 1)) + np.array([4.0, 1.0, -1.0, -5.0])
    chances = KINDS[kind].probabilities(outputs / sharper)
    if kind in ("binary", "multilabel"):
        labels = (draw.uniform(size=chances.shape) < chances).astype(np.int64)
        return outputs, labels[:, 0] if kind == "binary" else labels
    if kind == "soft":  # shares near the probabilities
        shares = chances * draw.uniform(0.5, 1.5, chances.shape)
        return outputs, shares / shares.sum(-1, keepdims=True)
    return outputs, np.array([draw.choice(len(row), p=row) for row in chances])


def plain_loss(kind, outputs, labels):
    """The negative log-likelihood without any trick"""
    if kind == "classes":
        return -log_softmax(outputs, axis=1)[np.arange(len(labels)), labels].mean()
    if kind == "soft":
        return -(labels * log_softmax(outputs, axis=1)).sum(1).mean()
    if kind == "ordinal":
        return -np.log(levels(outputs)[np.arange(len(labels)), labels]).mean()
    chances = expit(outputs)
    wanted = labels.reshape(chances.shape)
    return -(wanted * np.log(chances) + (1 - wanted) * np.log(1 - chances)).mean()


@pytest.mark.parametrize("kind", KINDS_WITH_CHANCES)
@pytest.mark.parametrize("sharper", [0.4, 1.0, 2.5])
def test_temperature_is_the_one_that_scipy_finds(kind, sharper):
    outputs, labels = drawn(kind, sharper=sharper)
    best = minimize_scalar(
        lambda place: plain_loss(kind, outputs / np.exp(place), labels), bounds=(np.log(0.1), np.log(10)), method="bounded"
    )
    assert fit_temperature(kind, outputs, labels) == pytest.approx(np.exp(best.x), rel=1e-3)


@pytest.mark.parametrize("kind", KINDS_WITH_CHANCES)
def test_loss_is_the_negative_log_likelihood_and_stays_finite(kind):
    outputs, labels = drawn(kind)
    assert loss(kind, outputs, labels) == pytest.approx(plain_loss(kind, outputs, labels), rel=1e-9)
    assert np.isfinite(loss(kind, outputs * 1e4, labels))


def test_temperature_of_thresholds_that_cross_is_finite():
    outputs, labels = drawn("ordinal")
    assert LOWEST < fit_temperature("ordinal", outputs[:, ::-1], labels) <= HIGHEST


@pytest.mark.parametrize("kind", KINDS_WITH_CHANCES)
def test_rows_that_are_all_answered_right_leave_the_temperature_alone(kind):
    outputs, _ = drawn(kind)
    labels = KINDS[kind].decide(outputs)
    assert fit_temperature(kind, outputs, np.eye(4)[labels] if kind == "soft" else labels) == 1.0


@given(st.sampled_from(KINDS_WITH_CHANCES), st.floats(LOWEST, HIGHEST), st.integers(0, 1000))
def test_no_label_changes_by_a_temperature(kind, temperature, seed):
    outputs, _ = drawn(kind, rows=30, seed=seed)
    assert np.array_equal(KINDS[kind].decide(outputs / temperature), KINDS[kind].decide(outputs))


@pytest.mark.parametrize("task", ["mood", "stars", "same", "tags"])
def test_answers_keep_their_labels_and_soften_their_probabilities(text, task):
    fitted = {name: calibrated(2.0) for name in ("mood", "stars", "same", "tags")}
    before, after = predictor(text), predictor(text, calibration=Calibration(tasks=fitted))
    texts = ["the film was good", "rice", "how do I learn to cook", "dull dull plot"]
    given_texts = [(one, "a plot") for one in texts] if task == "same" else texts
    one, other = before.predict(given_texts, task=task), after.predict(given_texts, task=task)
    assert [answer.label for answer in one] == [answer.label for answer in other]
    outputs = [chances(answer) for answer in one], [chances(answer) for answer in other]
    assert np.abs(np.array(outputs[0]) - outputs[1]).max() > 1e-3
    if task == "mood":
        halved = np.log(outputs[0]) / 2
        assert np.array(outputs[1]) == pytest.approx(np.exp(log_softmax(halved, axis=1)), abs=1e-5)


def chances(answer):
    return list(answer.probabilities.values())


def calibrated(temperature):
    return TaskCalibration(
        temperature=temperature, rows=9, loss_before=1, loss_after=0.9, ece_before=0.1, ece_after=0.05, source="made up"
    )


def test_expected_calibration_error_counts_by_hand():
    sure = np.array([0.95, 0.97, 0.61, 0.62, 1.0])
    right = np.array([True, False, True, True, True])
    # bins of 1/15: (0.95, 0.97, 1.0) and (0.61, 0.62)
    by_hand = (abs(2 - (0.95 + 0.97 + 1.0)) + abs(2 - (0.61 + 0.62))) / 5
    assert expected_calibration_error(sure, right) == pytest.approx(by_hand)
    assert expected_calibration_error(np.full(4, 0.75), np.array([1, 1, 1, 0])) == 0


@pytest.mark.parametrize("kind", KINDS_WITH_CHANCES)
def test_calibration_error_is_that_of_the_labels_answered(kind):
    outputs, labels = drawn(kind, rows=4000)
    found = expected_calibration_error(*confidences(kind, outputs / 2.5, labels))
    assert found < 0.04 < expected_calibration_error(*confidences(kind, outputs, labels))


def test_every_task_with_probabilities_and_labels_is_fitted():
    tasks = recipe().tasks
    given_rows = {"mood": "classes", "stars": "ordinal", "same": "binary", "tags": "multilabel"}
    outputs, labels = {}, {}
    for name, kind in given_rows.items():
        found, wanted = drawn(kind, sharper=3.0)
        outputs[name], labels[name] = found.astype(np.float32), wanted.astype(np.float32)
    outputs["stars"] = outputs["stars"][:, :3]
    labels["stars"] = np.minimum(labels["stars"], 3)
    outputs["near"] = np.zeros((400, 1), dtype=np.float32)
    labels["near"] = np.ones(400, dtype=np.float32)
    outputs["told"], labels["told"] = np.zeros((3, 2), dtype=np.float32), np.full(3, np.nan, dtype=np.float32)
    labels["mood"][:100] = np.nan
    found = fit(tasks, outputs, labels, "0.05 of the training rows")
    assert list(found.tasks) == ["mood", "stars", "same", "tags"]
    assert found.tasks["mood"].rows == 300
    for fitted in found.tasks.values():
        assert fitted.loss_after <= fitted.loss_before
        assert fitted.source == "0.05 of the training rows"
    for name in ("mood", "same", "tags"):
        assert found.temperature(name) == pytest.approx(3.0, rel=0.25)
        assert found.tasks[name].ece_after < found.tasks[name].ece_before
    assert found.temperature("near") == found.temperature("absent") == 1.0


def test_calibration_survives_its_file(tmp_path):
    made = Calibration(tasks={"mood": calibrated(1.5), "same": calibrated(0.7)})
    made.save(tmp_path)
    assert json.loads((tmp_path / "calibration.json").read_text())["mood"]["temperature"] == 1.5
    assert Calibration.load(tmp_path) == made
    assert Calibration.load(tmp_path / "absent") == Calibration()


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"mood": {"temperature": 1}}', '{"mood": 3}', "nul\0"],
)
def test_damaged_calibration_is_refused_in_words(tmp_path, content):
    (tmp_path / "calibration.json").write_text(content)
    with pytest.raises(UserError, match=r"(?s)calibration\.json is damaged.*teabert calibrate"):
        Calibration.load(tmp_path)


@pytest.mark.parametrize("temperature", [0, -1, float("nan"), float("inf")])
def test_temperature_that_is_none_is_refused(tmp_path, temperature):
    made = calibrated(1.0).model_dump() | {"temperature": temperature}
    (tmp_path / "calibration.json").write_text(json.dumps({"mood": made}))
    with pytest.raises(UserError, match="temperature"):
        Calibration.load(tmp_path)


def test_every_kind_with_probabilities_is_tested():
    assert set(KINDS_WITH_CHANCES) == set(KINDS) - {"score"}
