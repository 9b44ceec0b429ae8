"""Text in, answers out, for any mix of tasks: a run folder becomes a Predictor that batches exactly as training did."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, overload

import numpy as np
import torch

from teabert.answers import Answer, check_threshold, read_answers
from teabert.attention import Attention, attention, spell
from teabert.batches import collate
from teabert.calibration import Calibration
from teabert.dataset import skipped_notes, tokenise
from teabert.device import autocast, pick_device, pick_precision
from teabert.encoder import Encoder
from teabert.errors import UserError
from teabert.evaluation import Scores, evaluate
from teabert.model import Model, assemble
from teabert.origins import run_shape
from teabert.progress import Progress, Quiet
from teabert.requests import (
    ALL,
    Prepared,
    Refusal,
    Request,
    Text,
    by_tokens,
    check,
    choose,
    find_task,
    prepare,
    questions,
    rows_of,
    several,
)
from teabert.runs import Run
from teabert.source import Source, tokens_at_once
from teabert.taskfiles import TaskFile, attach, files_of
from teabert.tasks import Task
from teabert.tasks.reading import Example, Table, read_file, read_split
from teabert.text import TextEncoder
from teabert.vectors import check_comparing, check_vectors, compare, one_text, vectors

Found = TypeVar("Found")

__all__ = ["Answer", "Attention", "Predictor", "Prepared", "Refusal", "Request", "Text", "load"]


class Predictor:
    """A trained model, ready to answer."""

    def __init__(
        self,
        model: Model,
        text: TextEncoder,
        tasks: Mapping[str, Task],
        precision: str,
        run: Run,
        calibration: Calibration | None = None,
    ) -> None:
        self.model, self.text, self.tasks, self.precision, self.run = model, text, dict(tasks), precision, run
        self.calibration = calibration or Calibration()
        self.tokenising = Lock()  # the tokenizer keeps its greatest length, which differs between tasks

    def task(self, name: str | None) -> Task:
        """A task of the model by name; the only one where there is one."""
        if name is None and len(self.tasks) == 1:
            return next(iter(self.tasks.values()))
        if name is None:
            raise UserError(f"Say which task. This model has: {', '.join(self.tasks)}.")
        return find_task(self.tasks, name)

    # answers

    @overload
    def predict(
        self, texts: Text | Sequence[Text], task: str | None = None, tasks: None = None, abstain: float | None = None
    ) -> list[Answer]: ...

    @overload
    def predict(
        self, texts: Text | Sequence[Text], task: None = None, *, tasks: str | Sequence[str], abstain: float | None = None
    ) -> list[dict[str, Answer]]: ...

    def predict(
        self,
        texts: Text | Sequence[Text],
        task: str | None = None,
        tasks: str | Sequence[str] | None = None,
        abstain: float | None = None,
    ) -> list[Answer] | list[dict[str, Answer]]:
        """Answers for one or more texts (pairs: two strings each), in their order: of one task, or by name of several.

        tasks="all" are those that take what was given. Two strings are one pair where the tasks take pairs only, and also
        as a tuple where some do; otherwise they are two texts.
        """
        if task is not None and tasks is not None:
            raise UserError("Give task for one task's answers, or tasks for those of several, not both.")
        chosen = [self.task(task)] if tasks is None else choose(self.tasks, tasks)
        asked = questions(chosen, several(texts, chosen), fitting=tasks == ALL)
        answers = iter(_all(self.answers([request for mine in asked for request in mine], abstain)))
        if tasks is None:
            return list(answers)
        return [{request.task: next(answers) for request in mine} for mine in asked]

    def answers(
        self, requests: Sequence[Request], abstain: float | None = None, progress: Progress | None = None
    ) -> list[Answer | Refusal]:
        """Any mix of requests, in their order, in packed batches; one that cannot be answered harms no other."""
        check_threshold(abstain)
        progress = progress or Quiet()
        prepared = self.prepare_all(requests, progress)
        found: list[Any] = list(prepared)
        with progress.bar("answering", len(requests)) as advance:
            for places in by_tokens(prepared, tokens_at_once(self.model.device), self.reads_once):
                for place, answer in zip(places, self.answer_prepared([found[p] for p in places], abstain), strict=True):
                    found[place] = answer
                advance(len(places))
        return found

    def prepare(self, request: Request) -> Prepared | Refusal:
        """Checked and tokenised, or refused in words; no model runs."""
        return self.prepare_all([request])[0]

    def prepare_all(self, requests: Iterable[Request], progress: Progress | None = None) -> list[Prepared | Refusal]:
        """The same for many: a text that several tasks have in common is tokenised once."""
        with self.tokenising:
            prepared, cut = prepare(requests, self.tasks, self.text)
        if cut and progress:
            progress.note("some texts are longer than their task takes: they are cut")
        return prepared

    def answer_prepared(self, prepared: Sequence[Prepared], abstain: float | None = None) -> list[Answer]:
        """All in one packed batch, in their order; a text that several tasks have in common is read once."""
        check_threshold(abstain)
        places: dict[str, list[int]] = {}
        for place, each in enumerate(prepared):
            places.setdefault(find_task(self.tasks, each.task).name, []).append(place)
        if not places:
            return []
        rows = {name: rows_of(self.tasks[name], [prepared[place] for place in mine]) for name, mine in places.items()}
        chosen = ((mine, row) for mine in rows.values() for row in range(len(mine)))
        batch = collate(chosen, self.model.tasks, share=True).to(self.model.device)
        with torch.inference_mode(), autocast(self.precision, self.model.device):
            outputs = {name: found.float().cpu().numpy() for name, found in self.model(batch).items()}
        answers: dict[int, Answer] = {}
        for name, mine in places.items():
            found = read_answers(
                self.tasks[name], outputs[name], rows[name].names, self.calibration.temperature(name), abstain
            )
            answers |= zip(mine, found, strict=True)
        return [answers[place] for place in range(len(prepared))]

    def answer(
        self,
        task: Task,
        examples: Sequence[Example],
        progress: Progress | None = None,
        abstain: float | None = None,
    ) -> list[Answer]:
        """Answers for the checked examples of a task, in their order."""
        requests = [Request(task.name, example.texts, example.name) for example in examples]
        return _all(self.answers(requests, abstain, progress))

    @property
    def reads_once(self) -> bool:
        """Whether the encoder reads a text alike for all tasks."""
        return self.model.injection.first == self.model.encoder.shape.layers

    # what answers come from

    def attention(self, text: Text, task: str | None = None) -> Attention:
        """How much a task reads each word of a text (or pair)."""
        chosen = self.task(task)
        (prepared,) = _all([self.prepare(Request(chosen.name, text))])
        with self.tokenising:
            spelled = spell(self.text, chosen, check(chosen, text))
        return attention(self.model, self.precision, chosen, prepared, spelled)

    def embed(self, texts: Text | Sequence[Text], task: str | None = None) -> np.ndarray:
        """(texts, width): what a task's head reads off each text; for pairs encoded apart, off either side."""
        chosen = self.task(task)
        check_vectors(self.model, chosen)
        alone = one_text(chosen)
        return vectors(self.model, self.precision, alone, self._prepare_for(alone, several(texts, [alone])))

    def similar(self, texts: Sequence[str], task: str | None = None, others: Sequence[str] | None = None) -> np.ndarray:
        """(texts, others): the score, or probability of yes, of every text with every other; each is encoded once."""
        chosen = self.task(task)
        check_comparing(chosen)
        prepared = self._prepare_for(one_text(chosen), [*texts, *(others or ())])
        mine, theirs = prepared[: len(texts)], prepared if others is None else prepared[len(texts) :]
        found = compare(self.model, self.precision, chosen, mine, theirs)
        return chosen.meaning.probabilities(found / self.calibration.temperature(chosen.name))

    def _prepare_for(self, task: Task, texts: Sequence[Text]) -> list[Prepared]:
        """Texts prepared for a task as it is given, which may differ from the model's own"""
        with self.tokenising:
            requests = [Request(task.name, text, str(number)) for number, text in enumerate(texts, 1)]
            return _all(prepare(requests, {task.name: task}, self.text)[0])

    # rows of files

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
    shape = run_shape(opened)
    model = assemble(recipe, Encoder(shape))
    missing, extra = model.load_state_dict(weights, strict=False)
    if missing or extra:
        raise UserError(f"{opened.path}: the saved weights do not fit the recipe. Missing: {missing}; unknown: {extra}.")
    place = pick_device(device)
    model.to(place).eval().requires_grad_(False)
    text = TextEncoder.load(opened.path, shape.longest, shape.vocabulary)
    picked = pick_precision(precision or recipe.train.precision, place)
    predictor = Predictor(model, text, recipe.tasks, picked, opened, Calibration.load(opened.path))
    for file in files_of(opened.path):
        attach(predictor, TaskFile.load(file), str(file))
    return predictor


def _usable(task: Task, table: Table, progress: Progress) -> list[Example]:
    progress.notes(skipped_notes(task.name, table))
    return table.examples


def _all(found: Iterable[Found | Refusal]) -> list[Found]:
    """All of them, or the first refusal as an error"""
    answered = []
    for each in found:
        if isinstance(each, Refusal):
            raise UserError(f"Text {each.id}: {each.message}" if each.id else each.message)
        answered.append(each)
    return answered
