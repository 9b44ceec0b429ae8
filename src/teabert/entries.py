"""One row of an answers file: what every task said of a row of the input, or why it could not, as jsonl, csv or tsv."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from teabert.answers import ONE_LABEL, Answer
from teabert.requests import Refusal
from teabert.tasks import Task


@dataclass(frozen=True)
class Entry:
    """What is said of one row."""

    id: str
    found: Mapping[str, Answer | Refusal] = field(default_factory=dict)
    """by task"""
    problem: str = ""
    """why the row could not be used at all"""

    @property
    def problems(self) -> list[str]:
        """All that was wrong with it, each once"""
        refused = [found.message for found in self.found.values() if isinstance(found, Refusal)]
        return [self.problem] if self.problem else list(dict.fromkeys(refused))


class JsonLines:
    """A JSON object a row: the answer itself where one task was asked by name, else all answers by task."""

    def __init__(self, tasks: Sequence[Task], single: bool) -> None:
        self.tasks, self.single = tasks, single

    def header(self) -> str:
        """What stands above the rows"""
        return ""

    def line(self, entry: Entry) -> str:
        """A row"""
        content: dict[str, Any]
        if entry.problem:
            content = {"error": entry.problem, "id": entry.id}
        elif self.single:
            content = _as_json(entry.found[self.tasks[0].name])
        else:
            content = {"id": entry.id, "answers": {name: _as_json(found) for name, found in entry.found.items()}}
            for each in content["answers"].values():
                del each["id"], each["task"]
        return json.dumps(content, ensure_ascii=False) + "\n"


class Table(JsonLines):
    """Columns: id, answer, probability, error; where several tasks were asked, answer and probability of each."""

    separator = ","

    def header(self) -> str:
        """The columns"""
        if self.single:
            return self._cells(["id", "answer", "probability", "error"])
        columns = (column for task in self.tasks for column in [task.name, f"{task.name}.probability"][: _width(task)])
        return self._cells(["id", *columns, "error"])

    def line(self, entry: Entry) -> str:
        """A row"""
        cells = [cell for task in self.tasks for cell in self._of(task, entry.found.get(task.name))]
        return self._cells([entry.id, *cells, "; ".join(entry.problems)])

    def _of(self, task: Task, found: Answer | Refusal | None) -> list[Any]:
        width = 2 if self.single else _width(task)
        if not isinstance(found, Answer):
            return [""] * width
        label = "|".join(found.label) if isinstance(found.label, tuple) else found.label
        return [label if found.score is None else found.score, found.probability][:width]

    def _cells(self, cells: Sequence[Any]) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, delimiter=self.separator, lineterminator="\n").writerow(cells)
        return buffer.getvalue()


class Tabs(Table):
    """The same with tabs."""

    separator = "\t"


FORMS: dict[str, type[JsonLines]] = {"jsonl": JsonLines, "csv": Table, "tsv": Tabs}


def _width(task: Task) -> int:
    """How many columns a task has among others: what has no probability needs no column for it"""
    return 2 if task.kind in ONE_LABEL else 1


def _as_json(found: Answer | Refusal) -> dict[str, Any]:
    if isinstance(found, Refusal):
        return {"task": found.task, "error": found.message, "id": found.id}
    return found.as_json() | {"id": found.id}
