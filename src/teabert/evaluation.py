"""Rows in, outputs and scores out: batches sorted by length, each task judged by its own metrics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from teabert.device import autocast
from teabert.metrics import AGGREGATES, METRICS, aggregate, is_constant
from teabert.model import Model
from teabert.source import Source
from teabert.tasks import Task


@dataclass(frozen=True)
class Scores:
    """What the metrics say of one split."""

    tasks: dict[str, dict[str, float]]
    """every metric of every task"""
    overall: dict[str, float]
    """the tasks' first metrics as one number: mean (TEA-BERT) and course (Task-specific attention)"""
    rows: dict[str, int]
    collapsed: tuple[str, ...]
    """tasks whose rows all got the same prediction, although their labels differ"""

    def as_json(self) -> dict[str, Any]:
        """For files and --json."""
        return {"tasks": self.tasks, "overall": self.overall, "rows": self.rows, "collapsed": list(self.collapsed)}


def outputs(
    model: Model, source: Source, precision: str, advance: Callable[[int], None] | None = None
) -> dict[str, np.ndarray]:
    """Each task's outputs for all its rows, (rows, outputs), in the order of the rows."""
    model.eval()
    results: dict[str, np.ndarray] = {}
    with torch.inference_mode(), autocast(precision, model.device):
        found = [(batch.parts[0], model(batch)[batch.parts[0].task].float()) for batch in source.all(model.device, advance)]
        for part, answers in found:  # read when all have been computed: until then nothing waits for the GPU
            if part.task not in results:
                results[part.task] = np.empty((len(source.rows[part.task]), answers.shape[1]), dtype=np.float32)
            results[part.task][list(part.rows)] = answers.cpu().numpy()
    return results


def judge(tasks: Mapping[str, Task], found: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]) -> Scores:
    """The scores of some outputs against their labels."""
    values: dict[str, dict[str, float]] = {}
    collapsed = []
    for name, answers in found.items():
        task = tasks[name]
        predictions = task.meaning.decide(answers)
        values[name] = judge_predictions(task, predictions, labels[name])
        if is_constant(predictions) and not is_constant(task.meaning.truth(labels[name])):
            collapsed.append(name)
    first = {name: (tasks[name].all_metrics[0], values[name][tasks[name].all_metrics[0]]) for name in values}
    overall = {how: aggregate(first, how) for how in AGGREGATES}
    return Scores(values, overall, {name: len(answers) for name, answers in found.items()}, tuple(collapsed))


def judge_predictions(task: Task, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Every metric of a task."""
    wanted = task.meaning.truth(labels)
    return {metric: METRICS[metric](predictions, wanted) for metric in task.all_metrics}


def evaluate(
    model: Model,
    tasks: Mapping[str, Task],
    source: Source,
    precision: str,
    advance: Callable[[int], None] | None = None,
) -> Scores:
    """The scores of a model on the rows of a source."""
    labels = {task: rows.labels for task, rows in source.rows.items()}
    return judge(tasks, outputs(model, source, precision, advance), labels)
