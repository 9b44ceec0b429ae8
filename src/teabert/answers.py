"""What comes out: a head's numbers -> Answers in words, with calibrated probabilities; and the course's own lines."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from teabert.errors import UserError
from teabert.tasks import Task

ONE_LABEL = ("classes", "soft", "ordinal", "binary")
"""The kinds of task whose answer is one label, with one probability: they can abstain."""


@dataclass(frozen=True)
class Answer:
    """What the model says of one text."""

    task: str
    label: str | tuple[str, ...] | None
    """the class, yes/no label, or all labels that hold; nothing for scores and where the model abstains"""
    score: float | None
    """for score tasks"""
    probability: float | None
    """of the most fitting label; nothing for scores and multi-label"""
    probabilities: dict[str, float]
    """of every label; empty for scores"""
    id: str = ""
    """the row's id, where it came from a file"""
    abstained: bool = False
    """whether the probability lies below the threshold that was asked for"""

    def as_json(self) -> dict[str, Any]:
        """Only what the task has; an abstaining answer's label is null."""
        had = {key: value for key, value in asdict(self).items() if value not in (None, {}, "") and value is not False}
        return {"task": self.task, "label": None} | had if self.abstained else had


def check_threshold(abstain: float | None) -> None:
    """Refuse what is no probability."""
    if abstain is not None and not 0 <= abstain <= 1:
        raise UserError(f"abstain: {abstain} is not between 0 and 1. Give the lowest probability that is to be answered.")


def read_answers(
    task: Task, outputs: np.ndarray, ids: Sequence[str], temperature: float = 1.0, abstain: float | None = None
) -> list[Answer]:
    """(examples, outputs) of one task -> answers; the temperature changes probabilities, never a label."""
    decided = task.meaning.decide(outputs)
    if task.kind == "score":
        return [Answer(task.name, None, float(score), None, {}, id) for score, id in zip(decided, ids, strict=True)]
    chances = task.meaning.probabilities(outputs.astype(np.float64) / temperature)
    if task.kind == "binary":
        chances = np.concatenate([1 - chances, chances], axis=1)
    rows = zip(decided.tolist(), chances.tolist(), ids, strict=True)
    if task.kind == "multilabel":
        return [Answer(task.name, _holding(task, holds), None, None, _named(task, row), id) for holds, row, id in rows]
    return [_one_label(task, choice, row, id, abstain) for choice, row, id in rows]


def _one_label(task: Task, choice: int, chances: list[float], id: str, abstain: float | None) -> Answer:
    abstained = abstain is not None and chances[choice] < abstain
    label = None if abstained else task.labels[choice]
    return Answer(task.name, label, None, chances[choice], _named(task, chances), id, abstained)


def _holding(task: Task, holds: list[int]) -> tuple[str, ...]:
    return tuple(label for label, it_does in zip(task.labels, holds, strict=True) if it_does)


def _named(task: Task, chances: list[float]) -> dict[str, float]:
    return dict(zip(task.labels, chances, strict=True))


def course_lines(task: Task, answers: Iterable[Answer]) -> Iterable[str]:
    """A prediction file in the course's exact format, odd spaces included."""
    if not task.course_column:
        raise UserError(f"Task '{task.name}' is none of the course's; use --format jsonl or csv.")
    yield f"id \t {task.course_column} \n"
    for answer in answers:
        yield f"{answer.id} , {_course_value(task, answer)} \n"


def _course_value(task: Task, answer: Answer) -> str:
    if task.kind == "score":
        return str(answer.score)
    assert isinstance(answer.label, str), "the course's tasks have one label a row"
    number = task.labels.index(answer.label)
    return str(float(number)) if task.kind == "binary" and len(task.texts) == 2 else str(number)  # Quora: 0.0 or 1.0
