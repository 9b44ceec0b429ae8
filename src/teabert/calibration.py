"""Calibration: one temperature per task, so that of the answers given at 0.8 four out of five are right.

Outputs and labels of rows that neither trained nor scored -> the temperature that fits them best (Guo et al. 2017).
Labels never change by it. It is kept beside the model as calibration.json.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from pydantic import Field

from teabert.errors import UserError
from teabert.files import write_json
from teabert.settings import Settings, parse
from teabert.tasks import Task
from teabert.tasks.kinds import KINDS

FILE = "calibration.json"
LOWEST, HIGHEST = 0.05, 20.0
"""Temperatures that are looked through."""
BINS = 15
"""Bins of the expected calibration error, as in the paper."""
GOLDEN = (5**0.5 - 1) / 2


class TaskCalibration(Settings):
    """What was fitted for one task, and on what."""

    temperature: float = Field(gt=0)
    """What outputs are divided by."""
    rows: int = Field(ge=1)
    """How many it was fitted on."""
    loss_before: float
    """Mean negative log-likelihood of the labels."""
    loss_after: float
    """The same with the temperature."""
    ece_before: float
    """Expected calibration error."""
    ece_after: float
    """The same with the temperature."""
    source: str
    """Where the rows came from."""


class Calibration(Settings):
    """The temperatures of a model's tasks."""

    tasks: dict[str, TaskCalibration] = {}
    """By task; not all of them need to be calibrated."""

    def temperature(self, task: str) -> float:
        """A task's; 1 where none was fitted."""
        found = self.tasks.get(task)
        return 1.0 if found is None else found.temperature

    def save(self, folder: Path) -> None:
        """Write calibration.json."""
        write_json(folder / FILE, {name: fitted.model_dump() for name, fitted in self.tasks.items()})

    @classmethod
    def load(cls, folder: Path) -> "Calibration":
        """From calibration.json; nothing is calibrated where there is none."""
        file = folder / FILE
        if not file.exists():
            return cls()
        try:
            return parse(cls, {"tasks": json.loads(file.read_text(encoding="utf-8"))}, "calibration")
        except (OSError, ValueError) as error:
            raise UserError(f"{file} is damaged: {error} Delete it, or fit it again with: teabert calibrate") from None


def fit(
    tasks: Mapping[str, Task], outputs: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray], source: str
) -> Calibration:
    """The temperatures of all tasks that have probabilities and labelled rows here; `source` says where these came from."""
    fitted = {}
    for name, found in outputs.items():
        kind, wanted = tasks[name].kind, np.asarray(labels[name])
        known = ~np.isnan(wanted).reshape(len(wanted), -1).any(axis=1)
        if kind != "score" and known.any():
            fitted[name] = _fit_task(kind, found[known].astype(np.float64), wanted[known], source)
    return Calibration(tasks=fitted)


def _fit_task(kind: str, outputs: np.ndarray, labels: np.ndarray, source: str) -> TaskCalibration:
    temperature = fit_temperature(kind, outputs, labels)
    return TaskCalibration(
        temperature=temperature,
        rows=len(labels),
        loss_before=loss(kind, outputs, labels),
        loss_after=loss(kind, outputs / temperature, labels),
        ece_before=expected_calibration_error(*confidences(kind, outputs, labels)),
        ece_after=expected_calibration_error(*confidences(kind, outputs / temperature, labels)),
        source=source,
    )


def fit_temperature(kind: str, outputs: np.ndarray, labels: np.ndarray) -> float:
    """The temperature with the least loss; 1 where the rows leave it open: the lower the better, as if never wrong."""

    def at(place: float) -> float:
        return loss(kind, outputs / math.exp(place), labels)

    found = math.exp(_least(at, math.log(LOWEST), math.log(HIGHEST)))
    return 1.0 if found < 1.01 * LOWEST else found


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is lowest: golden-section search"""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > 1e-6:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
    return (low + high) / 2


def loss(kind: str, outputs: np.ndarray, labels: np.ndarray) -> float:
    """The mean negative log-likelihood of the labels"""
    return -float(LIKELIHOODS[kind](outputs, labels).mean())


def _log_softmax(outputs: np.ndarray) -> np.ndarray:
    shifted = outputs - outputs.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _classes(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return _log_softmax(outputs)[np.arange(len(labels)), labels.astype(np.int64)]


def _shares(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (labels * _log_softmax(outputs)).sum(-1)


def _yes_or_no(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return _log_sigmoid(np.where(labels.reshape(outputs.shape) == 1, outputs, -outputs))


def _ordinal(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The log of sigmoid(above) - sigmoid(below), the label's two thresholds, without the cancellation"""
    passed = np.minimum.accumulate(outputs, axis=-1)  # as in tasks.kinds.levels
    ends = np.full((len(outputs), 1), np.inf)
    limits = np.concatenate([ends, passed, -ends], axis=-1)
    rows, places = np.arange(len(labels)), labels.astype(np.int64)
    above, below = limits[rows, places], limits[rows, places + 1]
    gap = np.maximum(above - below, 1e-12)  # where thresholds fall together the label's probability is zero
    return _log_sigmoid(above) + _log_sigmoid(-below) + np.log(-np.expm1(-gap))


def _log_sigmoid(x: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0, -x)


LIKELIHOODS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "classes": _classes,
    "soft": _shares,
    "ordinal": _ordinal,
    "binary": _yes_or_no,
    "multilabel": _yes_or_no,
}


def confidences(kind: str, outputs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The probability of each label that is answered, and how right it is; for multi-label each yes or no counts"""
    decided, chances = KINDS[kind].decide(outputs), KINDS[kind].probabilities(outputs)
    if kind in ("binary", "multilabel"):
        return np.maximum(chances, 1 - chances).reshape(-1), (decided == labels).reshape(-1)
    rows = np.arange(len(labels))
    return chances[rows, decided], labels[rows, decided] if kind == "soft" else decided == labels


def expected_calibration_error(chances: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """How far the answers' probability lies from how often they are right, over bins of like probability."""
    place = np.minimum((chances * bins).astype(np.int64), bins - 1)
    apart = np.bincount(place, chances - right, minlength=bins)
    return float(np.abs(apart).sum() / len(chances))
