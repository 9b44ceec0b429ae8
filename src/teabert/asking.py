"""What a row of a file asks: which tasks, and in which of its columns their texts stand."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from teabert.errors import UserError
from teabert.predictor import Predictor
from teabert.progress import Progress
from teabert.requests import ALL, Request, choose, readable
from teabert.streaming import Line, Place, columns_of
from teabert.tasks import Task

ANY = {1: ("text",), 2: ("text1", "text2")}
"""Columns that every task reads where its own are not there, by how many texts it takes."""


@dataclass(frozen=True)
class Asking:
    """Which tasks are asked."""

    tasks: tuple[Task, ...]
    fitting: bool
    """of a row only those whose texts it has"""
    single: bool
    """one task, asked by name"""

    @classmethod
    def of(cls, predictor: Predictor, names: str | None) -> "Asking":
        """From a task's name, several with commas between, or all"""
        if names == ALL:
            return cls(tuple(predictor.tasks.values()), True, False)
        if names is None or "," not in names:
            return cls((predictor.task(names),), False, True)
        return cls(tuple(choose(predictor.tasks, [name.strip() for name in names.split(",")])), False, False)

    def of_file(self, path: Path, progress: Progress) -> "Asking":
        """The same after a look at a file's columns: tasks asked by name must find theirs; of all, those that do remain"""
        columns, same = columns_of(path, self.quotes)
        missing = [task for task in self.tasks if _columns(task, columns) is None]
        if missing and not (self.fitting and (len(missing) < len(self.tasks) or not same)):
            task = missing[0]
            raise UserError(
                f"{path} has no {_listed(task.texts)}, which task '{task.name}' reads. Its columns: {_listed(columns)}."
                f" Rename them as the task's, or to {_listed(ANY[len(task.texts)])}, which every task reads."
            )
        if not missing or not same:
            return self
        progress.note(f"{path} has no columns of {_listed([task.name for task in missing])}: left out")
        return replace(self, tasks=tuple(task for task in self.tasks if task not in missing))

    @property
    def quotes(self) -> bool:
        """Whether cells of csv and tsv files may be quoted"""
        return any(task.quotes for task in self.tasks)

    def requests(self, line: Line) -> list[Request]:
        """What a row asks; nothing where it has no task's texts"""
        places = [(task, _columns(task, line.row)) for task in self.tasks]
        if self.fitting:
            places = [(task, columns) for task, columns in places if columns]
        name = self.name(line)
        return [
            Request(task.name, tuple(_cell(line.row.get(column)) for column in columns or task.texts), name)
            for task, columns in places
        ]

    def name(self, line: Line) -> str:
        """The row's id where it has one, or its line"""
        ids = (str(line.row[task.id]) for task in self.tasks if task.id and line.row.get(task.id) is not None)
        return readable(next(ids, str(line.number)).strip().lower())


def _columns(task: Task, row: Container[str]) -> tuple[str, ...] | None:
    return next((each for each in (task.texts, ANY[len(task.texts)]) if all(column in row for column in each)), None)


def _cell(cell: Any) -> Any:
    return "" if cell is None else str(cell) if isinstance(cell, int | float) else cell


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def typed(lines: Iterable[bytes], asking: Asking) -> Iterator[Line]:
    """Lines of texts without columns, one a line, a pair with a TAB between."""
    pairs = [len(task.texts) == 2 for task in asking.tasks]
    for number, raw in enumerate(lines, 1):
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        cells = text.split("\t") if all(pairs) or (any(pairs) and text.count("\t") == 1) else [text]
        problem = f"it takes two texts with a TAB between, got {len(cells)}." if all(pairs) and len(cells) != 2 else ""
        yield Line(number, dict(zip(ANY[2 if len(cells) == 2 else 1], cells, strict=False)), Place(0, number), problem)
