"""What goes in: requests of any mix of tasks -> checked, tokenised, or refused in words; a bad one harms no other."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from teabert.batches import Rows
from teabert.errors import UserError, unknown
from teabert.settings import shown
from teabert.tasks import Task
from teabert.tasks.reading import make_example
from teabert.text import TextEncoder

Text = str | Sequence[str]
"""A text, or the two texts of a pair."""
ALL = "all"
"""In place of names: every task that takes what was given."""


@dataclass(frozen=True)
class Request:
    """One question."""

    task: str
    text: Text
    id: str = ""


@dataclass(frozen=True)
class Refusal:
    """Why one request of many was not answered."""

    task: str
    id: str
    message: str


@dataclass(frozen=True)
class Prepared:
    """A checked and tokenised request."""

    task: str
    id: str
    sequences: tuple[np.ndarray, ...]
    """token ids; two sequences for a pair encoded apart. The same text prepared in one go is the same array"""
    second_text: int
    """for joined pairs: the token where the second text begins; the end for others"""

    @property
    def tokens(self) -> int:
        """How many tokens it has."""
        return sum(len(ids) for ids in self.sequences)


@dataclass
class _Sheet:
    """The different texts (or pairs) of one greatest length, tokenised together."""

    texts: dict[Any, int] = field(default_factory=dict)
    ids: list[np.ndarray] = field(default_factory=list)
    second_text: list[int] = field(default_factory=list)

    def put(self, text: Any) -> int:
        """Where the text will stand"""
        return self.texts.setdefault(text, len(self.texts))


@dataclass(frozen=True)
class _Place:
    """Where the sequences of a request will stand."""

    sheet: _Sheet
    at: tuple[int, ...]


def prepare(
    requests: Iterable[Request], tasks: Mapping[str, Task], text: TextEncoder
) -> tuple[list[Prepared | Refusal], int]:
    """Requests in their order, each prepared or refused; and how many different texts were too long and were cut."""
    sheets: dict[tuple[int, bool], _Sheet] = {}
    noted: list[tuple[Request, _Place | Refusal]] = []
    for request in requests:
        try:
            task = find_task(tasks, request.task)
            noted.append((request, _note(task, check(task, request.text), sheets, text.longest)))
        except UserError as error:
            noted.append((request, Refusal(readable(request.task), readable(request.id), str(error))))
    cut = 0
    for (longest, _), sheet in sheets.items():
        tokens = text.tokens(list(sheet.texts), longest)
        sheet.ids, sheet.second_text = tokens.ids, tokens.second_text
        cut += tokens.cut
    return [_prepared(request, found) for request, found in noted], cut


def _note(task: Task, texts: tuple[str, ...], sheets: dict[tuple[int, bool], _Sheet], longest: int) -> _Place:
    together = len(texts) == 2 and task.pair == "together"
    sheet = sheets.setdefault((min(task.max_tokens or longest, longest), together), _Sheet())
    return _Place(sheet, (sheet.put(texts),) if together else tuple(map(sheet.put, texts)))


def _prepared(request: Request, found: _Place | Refusal) -> Prepared | Refusal:
    if isinstance(found, Refusal):
        return found
    sequences = tuple(found.sheet.ids[place] for place in found.at)
    return Prepared(request.task, readable(request.id), sequences, found.sheet.second_text[found.at[0]])


def choose(tasks: Mapping[str, Task], names: str | Sequence[str]) -> list[Task]:
    """The tasks of these names, in their order; "all" are all."""
    if isinstance(names, str):
        return list(tasks.values()) if names == ALL else [find_task(tasks, names)]
    if not names:
        raise UserError(f"tasks: the list is empty. Name some of {', '.join(tasks)}, or write tasks='all'.")
    return [find_task(tasks, name) for name in dict.fromkeys(names)]


def several(texts: Any, tasks: Sequence[Task]) -> list[Any]:
    """Each text or pair of what was given: two strings are one pair where tasks take pairs only, or some, as a tuple."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
        raise UserError(f"Give a text, a pair of texts, or a list of these; got {shown(texts)}.")
    texts = texts if isinstance(texts, tuple) else list(texts)
    pairs = [len(task.texts) == 2 for task in tasks]
    two = len(texts) == 2 and all(isinstance(text, str) for text in texts)
    return [tuple(texts)] if two and (all(pairs) or (isinstance(texts, tuple) and any(pairs))) else [*texts]


def questions(tasks: Sequence[Task], texts: Sequence[Any], fitting: bool) -> list[list[Request]]:
    """Each text's requests to the tasks; `fitting`: only to those that take what was given."""
    return [
        [Request(task.name, text, str(number)) for task in (_fitting(tasks, text, number) if fitting else tasks)]
        for number, text in enumerate(texts, 1)
    ]


def _fitting(tasks: Sequence[Task], text: Any, number: int) -> list[Task]:
    size = 1 if isinstance(text, str) else 2
    found = [task for task in tasks if len(task.texts) == size]
    if not found:
        taken = "pairs of texts" if size == 1 else "one text at a time"
        raise UserError(f"Text {number}: the tasks of this model take {taken}, got {shown(text)}.")
    return found


def find_task(tasks: Mapping[str, Task], name: Any) -> Task:
    """A task by name."""
    if not isinstance(name, str) or name not in tasks:
        raise unknown("task", readable(name), tasks, "These are the tasks of this model.")
    return tasks[name]


def check(task: Task, text: Any) -> tuple[str, ...]:
    """What was given as the task takes it: one text or two, cleaned as in training."""
    given = [text] if isinstance(text, str) else list(text) if isinstance(text, list | tuple | np.ndarray) else None
    if given is None or len(given) != len(task.texts) or not all(isinstance(part, str) for part in given):
        needed = "a pair of texts" if len(task.texts) == 2 else "one text"
        raise UserError(f"task '{task.name}' takes {needed}, got {shown(text)}.")
    return make_example(task, dict(zip(task.texts, given, strict=True)), labelled=False, name="").texts


def readable(text: Any) -> str:
    """As text that can be printed and saved: lone surrogates, which JSON can carry, become question marks."""
    return str(text).encode("utf-8", "replace").decode("utf-8")


def rows_of(task: Task, prepared: Sequence[Prepared]) -> Rows:
    """Prepared requests of one task as rows without labels."""
    return Rows(
        task=task.name,
        sequences=tuple([each.sequences[place] for each in prepared] for place in range(task.sequences)),
        second_text=[each.second_text for each in prepared] if len(task.texts) > task.sequences else None,
        labels=np.full(len(prepared), np.nan, dtype=np.float32),
        names=tuple(each.id for each in prepared),
    )


def by_tokens(prepared: Sequence[Prepared | Refusal], budget: int, once: bool) -> Iterator[list[int]]:
    """Which of the prepared go into one batch, shortest first; `once`: a text that several have in common counts once."""
    known = ((each.tokens, place, each) for place, each in enumerate(prepared) if isinstance(each, Prepared))
    batch: list[int] = []
    seen: set[int] = set()
    used = 0
    for _, place, each in sorted(known, key=lambda item: item[:2]):
        cost = sum(len(ids) for ids in each.sequences if not (once and id(ids) in seen))
        if batch and used + cost > budget:
            yield batch
            batch, seen, used, cost = [], set(), 0, each.tokens
        batch.append(place)
        seen.update(map(id, each.sequences))
        used += cost
    if batch:
        yield batch
