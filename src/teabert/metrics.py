"""How good predictions are: one number per metric, and the overall scores of the two papers.

In: predictions and labels, class indexes or scores of shape (rows,), or 0/1 of shape (rows, labels) where a row may
carry several labels. Out: a float; nan where there are no rows.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from teabert.errors import unknown

Array = NDArray[np.generic]


def accuracy(predictions: Array, labels: Array) -> float:
    """The share of rows that are right; with several labels a row, all of them must be."""
    right = predictions == labels
    return float(right.mean() if right.ndim == 1 else right.all(axis=1).mean())


def macro_f1(predictions: Array, labels: Array) -> float:
    """F1 of each class seen in predictions or labels, averaged; a class that is never hit counts 0."""
    hits, named = _hits(predictions, labels)
    return float(np.mean(2 * hits / np.maximum(named, 1)))


def micro_f1(predictions: Array, labels: Array) -> float:
    """F1 over all decisions of all classes together; 0 where nothing is predicted and nothing was to be found."""
    hits, named = _hits(predictions, labels)
    return float(2 * hits.sum() / max(named.sum(), 1))


def matthews(predictions: Array, labels: Array) -> float:
    """Matthews' correlation for two or more classes; 0 where predictions or labels are constant."""
    assert labels.ndim == 1, "matthews needs one label a row"
    classes = np.union1d(predictions, labels)
    predicted = np.array([(predictions == each).sum() for each in classes], dtype=float)
    actual = np.array([(labels == each).sum() for each in classes], dtype=float)
    rows, right = float(len(labels)), float((predictions == labels).sum())
    spread = (rows**2 - predicted @ predicted) * (rows**2 - actual @ actual)
    return float((right * rows - predicted @ actual) / math.sqrt(spread)) if spread else 0.0


def pearson(predictions: Array, labels: Array) -> float:
    """Linear correlation of scores; 0 where predictions or labels are constant."""
    return float(np.clip(_direction(predictions) @ _direction(labels), -1, 1))


def spearman(predictions: Array, labels: Array) -> float:
    """Correlation of ranks, ties sharing their mean rank; 0 where predictions or labels are constant."""
    return pearson(_ranks(predictions), _ranks(labels))


@dataclass(frozen=True)
class Metric:
    """A function of (predictions, labels) and what a table needs to know about it."""

    compute: Callable[[Array, Array], float]
    title: str
    """Column title."""
    correlation: bool = False
    """True where the value runs from -1 to 1."""

    def __call__(self, predictions: ArrayLike, labels: ArrayLike) -> float:
        """The value, or nan where there are no rows."""
        given, wanted = np.asarray(predictions), np.asarray(labels)
        assert given.shape == wanted.shape, f"predictions {given.shape} and labels {wanted.shape} differ in shape"
        return self.compute(given, wanted) if len(wanted) else math.nan


METRICS: dict[str, Metric] = {
    "accuracy": Metric(accuracy, "Acc"),
    "macro_f1": Metric(macro_f1, "F1 (macro)"),
    "micro_f1": Metric(micro_f1, "F1 (micro)"),
    "matthews": Metric(matthews, "Matthews", correlation=True),
    "pearson": Metric(pearson, "Pearson", correlation=True),
    "spearman": Metric(spearman, "Spearman", correlation=True),
}


def _mean(metric: str, value: float) -> float:
    return value


def _course(metric: str, value: float) -> float:
    return (1 + value) / 2 if METRICS[metric].correlation else value


AGGREGATES: dict[str, Callable[[str, float], float]] = {"mean": _mean, "course": _course}
"""How a task's main metric enters the overall score: as it is (TEA-BERT), or a correlation r as (1 + r) / 2
(Task-specific attention). Their overall scores are never comparable with each other."""


def aggregate(scores: Mapping[str, tuple[str, float]], how: str) -> float:
    """The overall score of a run, from each task's main metric and its value; nan where there are no tasks."""
    if how not in AGGREGATES:
        raise unknown("overall score", how, AGGREGATES)
    for metric, _ in scores.values():
        if metric not in METRICS:
            raise unknown("metric", metric, METRICS)
    entered = [AGGREGATES[how](metric, value) for metric, value in scores.values()]
    return math.fsum(entered) / len(entered) if entered else math.nan


def is_constant(predictions: ArrayLike) -> bool:
    """Whether a model answers every row alike: two rows or more, equal up to a millionth of the largest score."""
    given = np.asarray(predictions, dtype=float)
    return len(given) > 1 and bool(np.ptp(given, axis=0).max() <= 1e-6 * np.abs(given).max())


def _hits(predictions: Array, labels: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each class: how often both name it, and how often each names it, added up."""
    if labels.ndim == 1:
        classes = np.union1d(predictions, labels)
        predictions, labels = predictions[:, None] == classes, labels[:, None] == classes  # (rows, classes)
    given, wanted = predictions.astype(bool), labels.astype(bool)
    return (given & wanted).sum(axis=0), given.sum(axis=0) + wanted.sum(axis=0)


def _direction(scores: Array) -> NDArray[np.float64]:
    """Scores about their mean, scaled to length 1; zeros where they are constant."""
    values = scores.astype(np.float64)
    if (values == values[0]).all():  # before the mean is taken: rounding would leave a spurious direction
        return np.zeros_like(values)
    centred = values - values.mean()
    centred /= np.abs(centred).max()  # so that no square overflows or vanishes
    return centred / np.linalg.norm(centred)


def _ranks(scores: Array) -> NDArray[np.float64]:
    """The rank of each score from 1 up, ties at the mean of their places; nan throughout where a score is nan."""
    if np.isnan(scores.astype(np.float64)).any():
        return np.full(len(scores), np.nan)
    _, place, ties = np.unique(scores, return_inverse=True, return_counts=True)
    return (np.cumsum(ties) - (ties - 1) / 2)[place]
