"""A run's best model on its dev rows: scores with bootstrap intervals, and which label was taken for which."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from teabert.errors import UserError
from teabert.evaluation import Scores, judge, outputs
from teabert.metrics import METRICS, aggregate
from teabert.predictor import Predictor
from teabert.progress import Progress
from teabert.sampling import generator
from teabert.tasks import Task
from teabert.tasks.reading import Example

RESAMPLES = 2000
"""Draws of as many rows, with repetition."""
COVERED = 0.95
"""Part of the draws that lie within an interval."""
LEVELS = 6
"""Scores count to the nearest of so many levels, from the lowest to the highest of their range."""
Interval = tuple[float, float]


@dataclass(frozen=True)
class Confusion:
    """How often each truth (down) got each prediction (across)."""

    labels: tuple[str, ...]
    counts: np.ndarray
    """(labels, labels)"""


@dataclass(frozen=True)
class Judged:
    """What the dev rows say of the model."""

    scores: Scores
    intervals: dict[str, dict[str, Interval]] = field(default_factory=dict)
    """of every metric of every task"""
    overall: dict[str, Interval] = field(default_factory=dict)
    """of the tasks' first metrics as one number"""
    confusion: dict[str, dict[str, Confusion]] = field(default_factory=dict)
    """of each task, by what it is of: the task itself, or each label where several may hold"""


def read_dev(predictor: Predictor, progress: Progress) -> dict[str, list[Example]]:
    """The dev rows of the tasks whose files can be read; a note says why others cannot."""
    found = {}
    for name, task in predictor.tasks.items():
        try:
            found[name] = predictor.read_split(task, "dev", progress)
        except UserError as error:  # stays off the page: it may quote a row
            progress.note(f"{name}: no intervals and no confusion matrix. {error}")
    return found


def judge_dev(predictor: Predictor, examples: Mapping[str, Sequence[Example]], progress: Progress) -> Judged:
    """Judge the model on these rows as `teabert evaluate` does, and resample them."""
    source = predictor.source(examples, progress)
    labels = {name: rows.labels for name, rows in source.rows.items()}
    with progress.bar("judging", sum(len(rows) for rows in labels.values())) as advance:
        found = outputs(predictor.model, source, predictor.precision, advance)
    tasks = {name: predictor.tasks[name] for name in found}
    predictions = {name: task.meaning.decide(found[name]) for name, task in tasks.items()}
    truths = {name: task.meaning.truth(labels[name]) for name, task in tasks.items()}
    drawn: dict[str, dict[str, np.ndarray]] = {}
    with progress.bar("resampling", len(tasks)) as advance:
        for name, task in tasks.items():
            drawn[name] = resampled(task, predictions[name], truths[name], predictor.run.recipe.train.seed)
            advance(1)
    return Judged(
        judge(tasks, found, labels),
        {name: {metric: interval(values) for metric, values in mine.items()} for name, mine in drawn.items()},
        overall_intervals(tasks, drawn),
        {name: confusions(task, predictions[name], truths[name]) for name, task in tasks.items()},
    )


def resampled(task: Task, predictions: np.ndarray, truth: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """(resamples,) of every metric of a task; all metrics see the same draws"""
    draw = generator(seed, "bootstrap", task.name)
    found = {metric: np.empty(RESAMPLES) for metric in task.all_metrics}
    for place in range(RESAMPLES):
        rows = draw.integers(0, len(truth), len(truth))
        given, wanted = predictions[rows], truth[rows]
        for metric, values in found.items():
            values[place] = METRICS[metric](given, wanted)
    return found


def interval(values: np.ndarray) -> Interval:
    """The middle part of some draws"""
    low, high = np.quantile(values, ((1 - COVERED) / 2, (1 + COVERED) / 2))
    return float(low), float(high)


def overall_intervals(tasks: Mapping[str, Task], drawn: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Interval]:
    """Of both overall scores: the tasks' rows are drawn apart from each other"""
    first = {name: (task.all_metrics[0], drawn[name][task.all_metrics[0]]) for name, task in tasks.items()}
    found = {}
    for how in ("mean", "course"):
        draws = zip(*(values for _, values in first.values()), strict=True)
        whole = [
            aggregate({name: (metric, value) for (name, (metric, _)), value in zip(first.items(), each, strict=True)}, how)
            for each in draws
        ]
        found[how] = interval(np.array(whole))
    return found


def confusions(task: Task, predictions: np.ndarray, truth: np.ndarray) -> dict[str, Confusion]:
    """A matrix for the task; where several labels may hold, one for each of them"""
    if task.kind == "multilabel":
        columns = zip(task.labels, predictions.T, truth.T, strict=True)
        return {label: Confusion(("no", "yes"), crossed(given, wanted, 2)) for label, given, wanted in columns}
    if task.kind == "score":
        return {task.name: Confusion(level_names(task), crossed(levels(task, predictions), levels(task, truth), LEVELS))}
    return {task.name: Confusion(task.labels, crossed(predictions, truth, len(task.labels)))}


def crossed(predictions: np.ndarray, truth: np.ndarray, size: int) -> np.ndarray:
    """(size, size) how often each truth got each prediction"""
    counts = np.zeros((size, size), dtype=np.int64)
    np.add.at(counts, (truth, predictions), 1)
    return counts


def levels(task: Task, scores: np.ndarray) -> np.ndarray:
    """The nearest level of each score"""
    low, high = task.span
    places = np.rint((scores.astype(np.float64) - low) / (high - low) * (LEVELS - 1))
    return np.clip(places, 0, LEVELS - 1).astype(np.int64)


def level_names(task: Task) -> tuple[str, ...]:
    """The levels in words"""
    return tuple(f"{level:.3g}" for level in np.linspace(*task.span, LEVELS))
