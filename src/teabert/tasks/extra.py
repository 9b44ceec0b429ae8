"""Training rows that a task borrows from another: read as the other's, labelled as its own."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from teabert.errors import UserError
from teabert.tasks.base import Extra, Task
from teabert.tasks.reading import Example, Table, read_split

LABELLED = ("classes", "ordinal", "binary")
"""Kinds whose labels can stand for one another."""


def lender(task: Task, name: str, extra: Extra) -> Task:
    """The task whose training rows are borrowed: a known one, or the borrower with other files; checked to fit."""
    from teabert.tasks import TASKS, make_task

    where = f"tasks.{task.name}.extra.{name}"
    mine: dict[str, Any] = {} if name in TASKS else task.model_dump(exclude_unset=True, exclude={"name", "extra", "source"})
    if name not in TASKS and "files" not in extra.rows:
        raise UserError(
            f"{where}: there is no task '{name}'. Name one of {', '.join(sorted(TASKS))}, or say with rows: where its rows"
            " are, such as rows: {files: {train: more.csv}}."
        )
    lending = make_task(name, mine | {"clean": task.clean, "take": extra.take} | extra.rows, f"{where}.rows")
    _check(where, task, lending, extra)
    return lending


def _check(where: str, task: Task, lending: Task, extra: Extra) -> None:
    if len(lending.texts) != len(task.texts):
        counts = {1: "one text", 2: "a pair of texts"}
        raise UserError(
            f"{where}: '{lending.name}' has {counts[len(lending.texts)]}, '{task.name}' takes {counts[len(task.texts)]}."
        )
    if task.kind == lending.kind == "score":
        if extra.labels:
            raise UserError(f"{where}.labels: scores have no labels; they are moved from one range to the other.")
        return
    if task.kind not in LABELLED or lending.kind not in LABELLED:
        raise UserError(
            f"{where}: rows of kind '{lending.kind}' cannot become rows of kind '{task.kind}'. Scores can become scores,"
            f" and {', '.join(LABELLED)} one another."
        )
    meaning = _meaning(task, lending, extra)
    wrong = [mine for mine in meaning.values() if mine is not None and mine not in task.labels]
    unsaid = [theirs for theirs in lending.labels if theirs not in meaning]
    unknown = [theirs for theirs in meaning if theirs not in lending.labels]
    if wrong or unsaid or unknown:
        raise UserError(
            f"{where}.labels must say for each label of '{lending.name}' ({', '.join(lending.labels)}) which of"
            f" {', '.join(task.labels)} it is, or null to leave its rows out"
            + (f"; it says nothing of {', '.join(unsaid)}" if unsaid else "")
            + (f"; {', '.join(wrong)} is no label of '{task.name}'" if wrong else "")
            + (f"; {', '.join(unknown)} is no label of '{lending.name}'" if unknown else "")
            + "."
        )


def _meaning(task: Task, lending: Task, extra: Extra) -> Mapping[str, str | None]:
    """Their label -> ours; left out, the same where both have the same labels: a 1 of two is not a 1 of five"""
    if extra.labels is not None:
        return extra.labels
    return {label: label for label in task.labels} if set(task.labels) == set(lending.labels) else {}


def borrow(task: Task, lending: Task, extra: Extra, data: str | None) -> Table:
    """The lender's training rows with the task's own labels."""
    table = read_split(lending, "train", data)
    return replace(table, examples=list(_translated(task, lending, extra, table.examples)))


def _translated(task: Task, lending: Task, extra: Extra, examples: Iterable[Example]) -> Iterable[Example]:
    if task.kind == "score":
        (low, high), (from_low, from_high) = task.span, lending.span
        for example in examples:
            part = (float(example.label) - from_low) / (from_high - from_low)  # type: ignore[arg-type]
            yield Example(f"{lending.name}:{example.name}", example.texts, low + part * (high - low))
        return
    meaning = _meaning(task, lending, extra)
    for example in examples:
        mine = meaning[lending.labels[int(example.label)]]  # type: ignore[arg-type]
        if mine is not None:
            yield Example(f"{lending.name}:{example.name}", example.texts, float(task.labels.index(mine)))
