"""What a table shows of the runs of a row, for one seed: a task's score, their overall scores, and what they cost."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from teabert.experiments.results import Record
from teabert.metrics import AGGREGATES, METRICS, aggregate


def main_scores(records: Sequence[Record], part: str = "scores") -> dict[str, tuple[str, float]]:
    """Each task's first metric and its value."""
    return {task: next(iter(metrics.items())) for record in records for task, metrics in record[part].items()}


def _seconds(records: Sequence[Record]) -> float | None:
    return math.fsum(record["seconds"] for record in records)


def _memory(records: Sequence[Record]) -> float | None:
    known = [record["memory"] for record in records if record["memory"] is not None]
    return max(known, default=None)


def _parameters(records: Sequence[Record]) -> float | None:
    return math.fsum(record["parameters"]["total"] for record in records)


def _per_task(records: Sequence[Record]) -> float | None:
    learned = math.fsum(record["parameters"][part] for record in records for part in ("injection", "heads"))
    return learned / sum(len(record["rows"]["train"]) for record in records)


def _rows(records: Sequence[Record]) -> float | None:
    return math.fsum(sum(record["rows"]["train"].values()) for record in records)


def _speed(records: Sequence[Record]) -> float | None:
    rows = [sum(record["rows"]["dev"].values()) for record in records]
    return sum(rows) / math.fsum(count / record["speed"] for count, record in zip(rows, records, strict=True))


def _gap(records: Sequence[Record]) -> float | None:
    known, dev = main_scores(records, "fit"), main_scores(records)
    return math.fsum(value - dev[task][1] for task, (_, value) in known.items()) / len(known)


@dataclass(frozen=True)
class Measure:
    """A column that is no score."""

    title: str
    decimals: int
    of: Callable[[Sequence[Record]], float | None]
    """the runs of a row, one for each of its parts -> the number"""


MEASURES: dict[str, Measure] = {
    "seconds": Measure("seconds of training", 0, _seconds),
    "ratio": Measure("time, against the baseline's", 3, lambda records: None),  # known once all rows are
    "parameters": Measure("parameters", 0, _parameters),
    "per-task": Measure("parameters a task", 0, _per_task),
    "memory": Measure("GPU memory, GB", 2, _memory),
    "speed": Measure("answers a second", 0, _speed),
    "rows": Measure("training rows", 0, _rows),
    "gap": Measure("train score over dev score", 3, _gap),
    "injection": Measure("parameters of the injection", 0, lambda records: None),  # these two are counted
    "percent": Measure("% of the encoder", 3, lambda records: None),
}


def value(column: str, records: Sequence[Record]) -> float | None:
    """A column of one seed; nothing where the runs do not know it."""
    if column in MEASURES:
        return MEASURES[column].of(records)
    scores = main_scores(records)
    if column in AGGREGATES:
        return aggregate(scores, column)
    return scores[column][1] if column in scores else None


def title(column: str, metric: str | None) -> str:
    """A column's heading"""
    if column in MEASURES:
        return MEASURES[column].title
    return f"{column}, {METRICS[metric].title}" if metric else column


def decimals(column: str, counted: bool) -> int:
    """How exactly a column is shown"""
    return MEASURES[column].decimals if column in MEASURES else 0 if counted else 3
