"""The rows a run trains and selects on: files read, subsets chosen by seed, texts tokenised."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from teabert.batches import Rows
from teabert.config import Recipe
from teabert.errors import UserError
from teabert.sampling import generator
from teabert.tasks import Task
from teabert.tasks.base import Extra
from teabert.tasks.extra import borrow, lender
from teabert.tasks.reading import Example, Table, read_split
from teabert.text import TextEncoder

ReadSplit = Callable[[Task, str, str | None], Table]
"""A task, a split and the data folder -> its rows"""


@dataclass(frozen=True)
class Examples:
    """The examples of every task, by what they are for."""

    train: dict[str, list[Example]] = field(default_factory=dict)
    select: dict[str, list[Example]] = field(default_factory=dict)
    """what the best epoch is chosen on: dev, or a part of train"""
    calibrate: dict[str, list[Example]] = field(default_factory=dict)
    """what temperatures are fitted on: a part of train, or nothing"""
    chosen: dict[str, dict[str, Any]] = field(default_factory=dict)
    """for the record: which rows of which file train, which select and which calibrate"""
    notes: list[str] = field(default_factory=list)
    """what the user should hear: skipped rows"""


def read_examples(recipe: Recipe, read: ReadSplit = read_split) -> Examples:
    """Read the files of all tasks; before any weights are loaded."""
    found = Examples()
    for name, task in recipe.tasks.items():
        _read_own(name, task, recipe, found, read)
        for other, extra in task.extra.items():
            _read_extra(task, other, extra, recipe, found)
    return found


def _read_own(name: str, task: Task, recipe: Recipe, found: Examples, read: ReadSplit) -> None:
    """A task's own rows: those held out of training first, in an order that the seed decides."""
    table = read(task, "train", recipe.data)
    found.notes.extend(skipped_notes(name, table))
    order = generator(recipe.train.seed, "subset", name).permutation(len(table.examples)).tolist()
    record: dict[str, Any] = {"file": str(table.path), "of": len(order)}
    found.chosen[name] = record
    held = 0
    for purpose, part, into in (
        ("select", recipe.train.select, found.select),
        ("calibrate", None if task.kind == "score" else recipe.train.calibrate, found.calibrate),
    ):
        if isinstance(part, float):
            count = max(2, round(len(order) * part))
            record[purpose] = sorted(order[held : held + count])
            into[name] = [table.examples[row] for row in record[purpose]]
            held += count
    if recipe.train.select == "dev":
        dev = _dev(task, recipe, read)
        found.notes.extend(skipped_notes(name, dev))
        found.select[name] = dev.examples
    taken = sorted(order[held : held + how_many(task, len(order) - held)])
    found.train[name] = [table.examples[row] for row in taken]
    record["train"] = len(taken)
    if len(taken) < len(order):
        record["rows"] = taken


def _read_extra(task: Task, other: str, extra: Extra, recipe: Recipe, found: Examples) -> None:
    """Another task's training rows, added to this one's."""
    lending = lender(task, other, extra)
    table = borrow(task, lending, extra, recipe.data)
    found.notes.extend(skipped_notes(f"{task.name}, extra rows of {other}", table))
    order = generator(recipe.train.seed, "extra", task.name, other).permutation(len(table.examples)).tolist()
    taken = sorted(order[: how_many(lending, len(order))])
    found.train[task.name] += [table.examples[row] for row in taken]
    record: dict[str, Any] = {"file": str(table.path), "of": len(order), "train": len(taken)}
    found.chosen[task.name].setdefault("extra", {})[other] = (
        record if len(taken) == len(order) else record | {"rows": taken}
    )


def _dev(task: Task, recipe: Recipe, read: ReadSplit) -> Table:
    if task.file("dev") is None:
        raise UserError(
            f"Task '{task.name}' has no dev rows to choose the best epoch on."
            " Give it a dev file, or choose on a part of the training rows: --set train.select=0.1"
        )
    return read(task, "dev", recipe.data)


def how_many(task: Task, available: int) -> int:
    """How many rows the task trains on."""
    if task.take is None:
        return available
    count = round(task.take * available) if isinstance(task.take, float) else task.take
    if not 1 <= count <= available:
        raise UserError(f"Task '{task.name}': take: {task.take} asks for {count} of {available} training rows.")
    return count


def skipped_notes(name: str, table: Table) -> list[str]:
    """What to say of the rows of a file that were skipped; nothing where none were."""
    if not table.skipped:
        return []
    more = f" and {len(table.skipped) - 1} more" if len(table.skipped) > 1 else ""
    return [f"{name}: {len(table.skipped)} rows skipped ({table.skipped[0]}{more})"]


def tokenise(
    text: TextEncoder, tasks: Mapping[str, Task], examples: Mapping[str, Sequence[Example]]
) -> tuple[dict[str, Rows], list[str]]:
    """Token ids of all examples, and a note where texts were too long."""
    rows: dict[str, Rows] = {}
    notes = []
    for name, mine in examples.items():
        rows[name], cut = text.rows(tasks[name], mine)
        if cut:
            notes.append(
                f"{name}: {cut} of {len(mine)} examples were cut to {tasks[name].max_tokens or text.longest} tokens"
            )
    return rows, notes


def balanced(task: Task, rows: Rows) -> tuple[float, ...] | None:
    """The class weights of a task: given ones, or inversely to how often each label occurs."""
    if task.class_weights != "balanced":
        return task.class_weights
    if task.kind == "multilabel":
        positive = rows.labels.sum(axis=0)
        return tuple((len(rows) / np.maximum(positive, 1) / len(task.labels)).tolist())
    soft = task.kind == "soft"
    counts = rows.labels.sum(axis=0) if soft else np.bincount(rows.labels.astype(np.int64), minlength=len(task.labels))
    return tuple((len(rows) / np.maximum(counts, 1) / len(counts)).tolist())
