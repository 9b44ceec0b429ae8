"""The rows a run trains and selects on: files read, subsets chosen by seed, texts tokenised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from teabert.batches import Rows
from teabert.config import Recipe
from teabert.errors import UserError
from teabert.sampling import generator
from teabert.tasks import Task
from teabert.tasks.reading import Example, Table, read_split
from teabert.text import TextEncoder


@dataclass(frozen=True)
class Examples:
    """The examples of every task, by what they are for."""

    train: dict[str, list[Example]]
    select: dict[str, list[Example]]
    """what the best epoch is chosen on: dev, or a part of train"""
    chosen: dict[str, dict[str, Any]]
    """for the record: which rows of which file train, and which select"""
    notes: list[str]
    """what the user should hear: skipped rows"""


def read_examples(recipe: Recipe) -> Examples:
    """Read the files of all tasks; before any weights are loaded."""
    train: dict[str, list[Example]] = {}
    select: dict[str, list[Example]] = {}
    chosen: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    for name, task in recipe.tasks.items():
        table = read_split(task, "train", recipe.data)
        notes += skipped_notes(name, table)
        order = generator(recipe.train.seed, "subset", name).permutation(len(table.examples)).tolist()
        held = 0
        if recipe.train.select == "dev":
            dev = _dev(task, recipe)
            notes += skipped_notes(name, dev)
            select[name] = dev.examples
        else:
            held = max(2, round(len(order) * recipe.train.select))
            select[name] = [table.examples[row] for row in sorted(order[:held])]
        taken = sorted(order[held : held + _take(task, len(order) - held)])
        train[name] = [table.examples[row] for row in taken]
        everything = len(taken) + held == len(order)
        chosen[name] = {"file": str(table.path), "of": len(order), "train": len(taken), "select": sorted(order[:held])}
        if not everything or held:
            chosen[name]["rows"] = taken
    return Examples(train, select, chosen, notes)


def _dev(task: Task, recipe: Recipe) -> Table:
    if task.file("dev") is None:
        raise UserError(
            f"Task '{task.name}' has no dev rows to choose the best epoch on."
            " Give it a dev file, or choose on a part of the training rows: --set train.select=0.1"
        )
    return read_split(task, "dev", recipe.data)


def _take(task: Task, available: int) -> int:
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
    counts = np.bincount(rows.labels.astype(np.int64), minlength=len(task.labels))
    return tuple((len(rows) / np.maximum(counts, 1) / len(counts)).tolist())
