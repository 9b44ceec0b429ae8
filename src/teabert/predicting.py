"""`teabert predict`: texts from the command line, a file, standard input or a task's own split; answers as lines.

Files are answered chunk by chunk, whatever their size; after a kill the same command goes on behind the last chunk.
"""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch

from teabert import __version__
from teabert.answers import ONE_LABEL, Answer, check_threshold, course_lines
from teabert.asking import Asking, typed
from teabert.config import to_yaml
from teabert.entries import FORMS, Entry, JsonLines
from teabert.errors import UserError
from teabert.journal import Journal
from teabert.predictor import Predictor, load
from teabert.progress import Progress, Quiet
from teabert.requests import ALL
from teabert.streaming import Line, Place, end_of, stream

ANSWERS, ROWS = 2000, 100
"""Answers of a chunk, and the fewest rows it has, however many tasks are asked. A kill loses no more."""
COURSE = "cs224n"
"""The form of the course's prediction files."""


@dataclass(frozen=True)
class Given:
    """Where the texts come from: exactly one of these."""

    text: tuple[str, ...] = ()
    source: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What is answered, and how it is written."""

    task: str | None = None
    """a name, several with commas between, or all"""
    form: str = "jsonl"
    abstain: float | None = None


class _Once(Progress):
    """Passes each note on once: what is true of many chunks is said of the first."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.said = progress, set[str]()

    def note(self, text: str) -> None:
        """Something the user should know."""
        if text not in self.said:
            self.said.add(text)
            self.progress.note(text)


class Predicting:
    """One run's answers to what was given."""

    rows = 0
    """Rows answered so far, those before a kill included."""
    bad = 0
    """Rows of which something could not be answered."""

    def __init__(self, run: Path, given: Given, wanted: Wanted, progress: Progress) -> None:
        if sum(map(bool, (given.text, given.source, given.split))) != 1:
            raise UserError("Say what to answer: exactly one of --text, --input FILE (- for standard input) and --split.")
        check_threshold(wanted.abstain)
        self.predictor, self.given, self.wanted, self.progress = load(run), given, wanted, progress
        self.asking, self.notes = Asking.of(self.predictor, wanted.task), _Once(progress)
        self.path = Path(given.source) if given.source not in (None, "-") and wanted.form != COURSE else None
        """the file that is answered chunk by chunk"""
        if wanted.abstain is not None and not any(task.kind in ONE_LABEL for task in self.asking.tasks):
            raise UserError("--abstain is for tasks that answer with one label; none of those asked does. Leave it out.")
        if given.split and not self.asking.single:
            raise UserError("--split is for the rows of one task. Name it with --task.")
        if wanted.form == COURSE:
            self._check_course()
        if self.path:
            self.asking = self.asking.of_file(self.path, progress)

    def _check_course(self) -> None:
        """Refuse what the course's prediction files cannot hold"""
        if not self.asking.single:
            raise UserError("--format cs224n is for the rows of one task. Name it with --task.")
        if not self.asking.tasks[0].course_column:
            raise UserError(f"Task '{self.asking.tasks[0].name}' is none of the course's; use --format jsonl, csv or tsv.")
        if self.given.text or self.given.source == "-":
            raise UserError("--format cs224n is for rows with ids. Give --split, or a file with --input.")
        if self.wanted.abstain is not None:
            raise UserError("--abstain leaves rows without a label, and the course's files need one in each. Leave it out.")

    def lines(self) -> Iterator[str]:
        """The output, many lines at a time."""
        return (lines for lines, _ in self._output(Place()))

    def write(self, target: Path) -> None:
        """The output as a file: the whole, or none of it; that of a file goes on after a kill where it stopped."""
        with Journal(target, self._made_of(), anew=self.path is None) as journal:
            start = Place(**journal.place.get("place", {}))
            self.rows, self.bad = journal.place.get("rows", 0), journal.place.get("bad", 0)
            if self.rows:
                self.progress.note(f"{self.rows} rows were answered before; going on behind them")
            for lines, place in self._output(start):
                journal.add(lines.encode(), {"place": vars(place), "rows": self.rows, "bad": self.bad})

    def _output(self, start: Place) -> Iterator[tuple[str, Place]]:
        """Lines behind a place of the input, and the place behind them"""
        if self.path:
            return self._chunks(stream(self.path, self.asking.quotes, start))
        if self.given.source == "-":
            return self._chunks(typed(sys.stdin.buffer, self.asking))
        return iter([("".join(self._few()), Place())])

    def usual_output(self) -> Path | None:
        """The course's own file name for its own rows; otherwise standard output."""
        if self.wanted.form != COURSE or not self.given.split:
            return None
        name = f"{self.asking.tasks[0].course_name}-{self.given.split}-output.csv"
        return self.predictor.run.path / "predictions" / name

    # rows of files

    @property
    def chunk_rows(self) -> int:
        """Rows that are answered together"""
        return max(ROWS, ANSWERS // len(self.asking.tasks))

    def _chunks(self, lines: Iterator[Line]) -> Iterator[tuple[str, Place]]:
        """Answers to the rows, as text, and the place behind them"""
        form = self._form()
        head = "" if self.rows else form.header()
        chunk = list(islice(lines, self.chunk_rows))
        if not chunk and not self.rows:
            raise UserError(f"{self.given.source} holds no rows.")
        progress = self.progress if self.path else Quiet()  # nobody knows how long standard input is
        with progress.bar(f"answering {self.given.source}", self._total(chunk), self.rows) as advance:
            while chunk:
                entries = self._entries(chunk)
                self.rows += len(entries)
                self.bad += sum(bool(entry.problems) for entry in entries)
                yield head + "".join(map(form.line, entries)), chunk[-1].end
                advance(len(chunk))
                head, chunk = "", list(islice(lines, self.chunk_rows))

    def _total(self, chunk: Sequence[Line]) -> int:
        """About how many rows the file has, from its size and the rows so far"""
        rows = self.rows + len(chunk)
        return round(rows * end_of(self.path) / chunk[-1].end.offset) if self.path and chunk else rows

    def _entries(self, chunk: Sequence[Line]) -> list[Entry]:
        requests = [[] if line.problem else self.asking.requests(line) for line in chunk]
        flat = [request for mine in requests for request in mine]
        answers = iter(self.predictor.answers(flat, self.wanted.abstain, self.notes))
        entries = []
        for line, mine in zip(chunk, requests, strict=True):
            found = {request.task: next(answers) for request in mine}
            problem = line.problem or ("" if found else "it has the texts of none of the tasks.")
            entries.append(Entry(self.asking.name(line), found, problem))
        return entries

    def _made_of(self) -> dict[str, Any]:
        """All that decides what a file of answers will hold"""
        facts = self.path.stat() if self.path else None
        return {
            "teabert": __version__,
            "run": fingerprint(self.predictor) if self.path else None,
            "precision": self.predictor.precision,
            "tasks": [task.name for task in self.asking.tasks],
            "format": [self.wanted.form, self.asking.single, self.chunk_rows],  # rows are batched within their chunk
            "abstain": self.wanted.abstain,
            "input": [facts.st_size, facts.st_mtime_ns] if facts else None,
        }

    # few texts

    def _few(self) -> Iterator[str]:
        """Texts of the command line, or the rows of a split, as lines"""
        if self.wanted.form == COURSE:
            return iter(course_lines(self.asking.tasks[0], self._rows_of_the_task()))
        form = self._form()
        if self.given.split:
            entries = [Entry(found.id, {found.task: found}) for found in self._rows_of_the_task()]
        else:
            entries = self._texts()
        self.rows = len(entries)
        return chain([form.header()], map(form.line, entries))

    def _texts(self) -> list[Entry]:
        tasks, given = self.asking.tasks, self.given.text
        if all(len(task.texts) == 2 for task in tasks) and len(given) != 2:
            raise UserError(f"Task '{tasks[0].name}' takes a pair: give --text twice, got {len(given)}.")
        names = ALL if self.asking.fitting else [task.name for task in tasks]
        found = self.predictor.predict(given, tasks=names, abstain=self.wanted.abstain)
        return [Entry(str(number), answers) for number, answers in enumerate(found, 1)]

    def _rows_of_the_task(self) -> list[Answer]:
        """Answers to the rows of one of the task's own files"""
        (task,) = self.asking.tasks
        if self.given.split:
            examples = self.predictor.read_split(task, self.given.split, self.progress)
        else:
            examples = self.predictor.read(task, Path(str(self.given.source)), self.progress)
        return self.predictor.answer(task, examples, self.progress, self.wanted.abstain)

    def _form(self) -> JsonLines:
        return FORMS[self.wanted.form](self.asking.tasks, self.asking.single)


def usual_form(output: Path | None) -> str:
    """What the name of the output file ends in, where that is a form; else jsonl."""
    ending = "" if output is None else output.suffix.removeprefix(".").lower()
    return ending if ending in FORMS else "jsonl"


def fingerprint(predictor: Predictor) -> str:
    """What tells a model from all others: its recipe, its tasks, its calibration, its weights."""
    tasks = [task.model_dump_json() for task in predictor.tasks.values()]
    settings = [to_yaml(predictor.run.recipe), *tasks, predictor.calibration.model_dump_json()]
    digest = hashlib.sha256("\n".join(settings).encode())
    for name, tensor in predictor.model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
