"""Text in, answers out, for any mix of tasks: a run folder becomes a Predictor that batches exactly as training did."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from teabert.dataset import skipped_notes, tokenise
from teabert.device import pick_device, pick_precision
from teabert.encoder import Encoder, EncoderShape
from teabert.errors import UserError, unknown
from teabert.evaluation import Scores, evaluate, outputs
from teabert.model import Model, assemble
from teabert.progress import Progress, Quiet
from teabert.runs import Run, shape_file
from teabert.source import Source
from teabert.tasks import Task
from teabert.tasks.reading import Example, Table, make_example, read_file, read_split
from teabert.text import TextEncoder

Text = str | Sequence[str]
"""A text, or the two texts of a pair."""


@dataclass(frozen=True)
class Answer:
    """What the model says of one text."""

    task: str
    label: str | tuple[str, ...] | None
    """the class, yes/no label, or all labels that hold; nothing for scores"""
    score: float | None
    """for score tasks"""
    probability: float | None
    """of the label given; nothing for scores and multi-label"""
    probabilities: dict[str, float]
    """of every label; empty for scores"""
    id: str = ""
    """the row's id, where it came from a file"""

    def as_json(self) -> dict[str, Any]:
        """Only what the task has."""
        return {key: value for key, value in asdict(self).items() if value not in (None, {}, "")}


class Predictor:
    """A trained model, ready to answer."""

    def __init__(self, model: Model, text: TextEncoder, tasks: Mapping[str, Task], precision: str, run: Run) -> None:
        self.model, self.text, self.tasks, self.precision, self.run = model, text, dict(tasks), precision, run

    def task(self, name: str | None) -> Task:
        """A task of the model by name; the only one where there is one."""
        if name is None and len(self.tasks) == 1:
            return next(iter(self.tasks.values()))
        if name is None:
            raise UserError(f"Say which task. This model has: {', '.join(self.tasks)}.")
        if name not in self.tasks:
            raise unknown("task", name, self.tasks, f"These are the tasks of {self.run.path}.")
        return self.tasks[name]

    def predict(self, texts: Text | Sequence[Text], task: str | None = None) -> list[Answer]:
        """Answers for one or more texts (pairs: two strings each), in their order."""
        chosen = self.task(task)
        single_pair = len(chosen.texts) == 2 and len(texts) == 2 and all(isinstance(text, str) for text in texts)
        several = [texts] if isinstance(texts, str) or single_pair else texts
        return self.answer(chosen, [_example(chosen, text, number) for number, text in enumerate(several, 1)])

    def answer(self, task: Task, examples: Sequence[Example], progress: Progress | None = None) -> list[Answer]:
        """Answers for checked examples, in their order."""
        if not examples:
            return []
        progress = progress or Quiet()
        source = self.source({task.name: examples}, progress)
        with progress.bar(f"answering {task.name}", len(examples)) as advance:
            found = outputs(self.model, source, self.precision, advance)[task.name]
        return [_answer(task, row, example.name) for row, example in zip(found, examples, strict=True)]

    def evaluate(self, split: str = "dev", progress: Progress | None = None) -> Scores:
        """The scores of all tasks on one split of their files."""
        progress = progress or Quiet()
        examples = {name: self.read_split(task, split, progress) for name, task in self.tasks.items()}
        for name, mine in examples.items():
            if any(np.isnan(example.label).any() for example in mine):
                raise UserError(f"The {split} rows of '{name}' have no labels, so they cannot be judged. Try --split dev.")
        source = self.source(examples, progress)
        with progress.bar("judging", sum(len(mine) for mine in examples.values())) as advance:
            return evaluate(self.model, self.tasks, source, self.precision, advance)

    def source(self, examples: Mapping[str, Sequence[Example]], progress: Progress) -> Source:
        """Tokenised rows, and a note where texts were too long; tasks that are not asked keep their numbers."""
        rows, notes = tokenise(self.text, self.tasks, examples)
        progress.notes(notes)
        return Source(rows, self.model.tasks)

    def read(self, task: Task, path: Path, progress: Progress) -> list[Example]:
        """The usable examples of a file with the task's columns; labels are not needed."""
        return _usable(task, read_file(task, path, labelled=False), progress)

    def read_split(self, task: Task, split: str, progress: Progress) -> list[Example]:
        """The usable examples of one of the task's own splits."""
        return _usable(task, read_split(task, split, self.run.recipe.data), progress)


def load(run: str | Path, device: str | None = None, precision: str | None = None) -> Predictor:
    """The best model of a run folder, as it was judged: same precision, unless another is asked for."""
    opened = Run.open(run)
    recipe = opened.recipe
    weights = opened.load_best()
    try:
        shape = EncoderShape(**json.loads(shape_file(opened).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{shape_file(opened)} is missing or damaged: {error}.") from None
    model = assemble(recipe, Encoder(shape))
    missing, extra = model.load_state_dict(weights, strict=False)
    if missing or extra:
        raise UserError(f"{opened.path}: the saved weights do not fit the recipe. Missing: {missing}; unknown: {extra}.")
    place = pick_device(device)
    model.to(place).eval().requires_grad_(False)
    text = TextEncoder.load(opened.path, shape.longest, shape.vocabulary)
    return Predictor(model, text, recipe.tasks, pick_precision(precision or recipe.train.precision, place), opened)


def _usable(task: Task, table: Table, progress: Progress) -> list[Example]:
    progress.notes(skipped_notes(task.name, table))
    return table.examples


def _example(task: Task, text: Any, number: int) -> Example:
    given = [text] if isinstance(text, str) else list(text)
    if len(given) != len(task.texts) or not all(isinstance(part, str) for part in given):
        needed = "a pair of texts" if len(task.texts) == 2 else "one text"
        raise UserError(f"Text {number}: task '{task.name}' takes {needed}, got {text!r}.")
    try:
        return make_example(task, dict(zip(task.texts, given, strict=True)), labelled=False, name=str(number))
    except UserError as error:
        raise UserError(f"Text {number}: {error}") from None


def _answer(task: Task, row: np.ndarray, name: str) -> Answer:
    decided = task.meaning.decide(row[None])[0]
    chances = task.meaning.probabilities(row[None].astype(np.float64))[0]
    if task.kind == "score":
        return Answer(task.name, None, float(decided), None, {}, name)
    if task.kind == "binary":
        chances = np.array([1 - chances[0], chances[0]])
    named = {label: float(chance) for label, chance in zip(task.labels, chances, strict=True)}
    if task.kind == "multilabel":
        holding = tuple(label for label, holds in zip(task.labels, decided, strict=True) if holds)
        return Answer(task.name, holding, None, None, named, name)
    label = task.labels[int(decided)]
    return Answer(task.name, label, None, named[label], named, name)


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
