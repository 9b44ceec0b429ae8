"""How sure a difference between runs is: the same dev rows are drawn again and again for all of them (paired bootstrap).

A difference is a weighted sum of terms, each one task's metric of one row's runs, averaged over their seeds.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from teabert.metrics import METRICS

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Term:
    """One row's runs on one task."""

    weight: float
    task: str
    metric: str
    labels: np.ndarray
    predictions: Sequence[np.ndarray]
    """of each seed, the same seeds in every term"""

    def by_seed(self) -> list[float]:
        """Its part of the difference, for each seed"""
        return [self.weight * METRICS[self.metric](found, self.labels) for found in self.predictions]


def by_seed(terms: Sequence[Term]) -> list[float]:
    """The difference on all rows, for each seed."""
    return [float(sum(values)) for values in zip(*(term.by_seed() for term in terms), strict=True)]


def interval(terms: Sequence[Term], resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float]:
    """The ends between which the difference lies for the middle 95 % of the draws; tasks are drawn independently."""
    draw = np.random.default_rng(seed)
    totals = np.zeros(resamples)
    for statistic, rows in _statistics(terms):
        totals += [statistic(draw.integers(0, rows, rows)) for _ in range(resamples)]
    low, high = np.quantile(totals, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


Statistic = Callable[[np.ndarray], float]


def _statistics(terms: Sequence[Term]) -> list[tuple[Statistic, int]]:
    """For each task, its part of the difference as a function of the drawn rows, and how many rows it has"""
    tasks: dict[str, list[Term]] = defaultdict(list)
    for term in terms:
        tasks[term.task].append(term)
    return [(_statistic(mine), len(mine[0].labels)) for mine in tasks.values()]


def _statistic(terms: Sequence[Term]) -> Statistic:
    accurate = [term for term in terms if term.metric == "accuracy"]
    others = [term for term in terms if term.metric != "accuracy"]
    # accuracy is a mean over rows, so all runs' parts of the difference add up row by row before anything is drawn
    rows = sum(
        (term.weight * np.mean([found == term.labels for found in term.predictions], axis=0) for term in accurate),
        np.zeros(len(terms[0].labels)),
    )

    def at(drawn: np.ndarray) -> float:
        value = float(rows[drawn].mean()) if accurate else 0.0
        for term in others:
            metric, labels = METRICS[term.metric], term.labels[drawn]
            value += term.weight * float(np.mean([metric(found[drawn], labels) for found in term.predictions]))
        return value

    return at
