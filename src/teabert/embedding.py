"""`teabert embed`: the vector of every text of a file, in a NumPy file that is filled chunk by chunk, whatever its size."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from teabert.asking import Asking
from teabert.errors import UserError
from teabert.files import UNFINISHED
from teabert.predictor import Predictor, load
from teabert.progress import Progress
from teabert.requests import Prepared, prepare
from teabert.streaming import Line, stream
from teabert.tasks import Task
from teabert.vectors import check_vectors, one_text, vectors

ROWS = 2000
"""Rows of a chunk."""


@dataclass(frozen=True)
class Embedded:
    """What was written."""

    rows: int
    width: int
    bad: int
    """rows without a usable text: their vectors are not-a-number"""


def embed(run: Path, task: str | None, column: str | None, path: Path, target: Path, progress: Progress) -> Embedded:
    """Write (rows, width) vectors, as a task's head reads the texts; `column`: where they stand, if not in the task's."""
    predictor = load(run)
    chosen = _reading(predictor, predictor.task(task), column)
    asking = Asking((chosen,), fitting=False, single=True).of_file(path, progress)
    rows = sum(1 for _ in stream(path, asking.quotes))
    if not rows:
        raise UserError(f"{path} holds no rows.")
    table, done, bad = _table(target, rows, predictor.model.encoder.shape.width), 0, 0
    lines = stream(path, asking.quotes)
    with progress.bar(f"reading {path}", rows) as advance:
        while chunk := list(islice(lines, ROWS)):
            found = _vectors(predictor, asking, chunk)
            table[done : done + len(chunk)] = found
            done, bad = done + len(chunk), bad + int(np.isnan(found[:, 0]).sum())
            advance(len(chunk))
    table.flush()
    os.replace(_unfinished(target), target)
    return Embedded(rows, table.shape[1], bad)


def _reading(predictor: Predictor, task: Task, column: str | None) -> Task:
    """The task as it reads one text (or a joined pair), from the column where it stands"""
    check_vectors(predictor.model, task)
    alone = one_text(task)
    if column is None:
        return alone
    if len(alone.texts) == 2:
        raise UserError(f"--column is for tasks that read one text at a time; '{task.name}' reads pairs. Leave it out.")
    return alone.model_copy(update={"texts": (column,)})


def _table(target: Path, rows: int, width: int) -> np.memmap:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return np.lib.format.open_memmap(_unfinished(target), "w+", np.float32, (rows, width))
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}.") from None


def _unfinished(target: Path) -> Path:
    return target.with_name(f"{UNFINISHED}{target.name}")


def _vectors(predictor: Predictor, asking: Asking, chunk: Sequence[Line]) -> np.ndarray:
    """(rows, width), not-a-number where a row has no usable text"""
    (task,) = asking.tasks
    usable = [place for place, line in enumerate(chunk) if not line.problem]
    requests = [request for place in usable for request in asking.requests(chunk[place])]
    found, _ = prepare(requests, {task.name: task}, predictor.text)
    good = {place: each for place, each in zip(usable, found, strict=True) if isinstance(each, Prepared)}
    table = np.full((len(chunk), predictor.model.encoder.shape.width), np.nan, dtype=np.float32)
    table[list(good)] = vectors(predictor.model, predictor.precision, task, list(good.values()))
    return table
