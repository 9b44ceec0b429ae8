"""`teabert predict`: texts from the command line, a file, standard input or a task's own split; answers as lines."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from teabert.errors import UserError
from teabert.files import write_text
from teabert.predictor import Answer, Predictor, course_lines, load
from teabert.progress import Progress
from teabert.runs import Run
from teabert.tasks import Task
from teabert.tasks.reading import Example, make_example


@dataclass(frozen=True)
class Given:
    """Where the texts come from: exactly one of these."""

    text: tuple[str, ...] = ()
    source: str | None = None
    split: str | None = None


def answer(run: Path, task: str | None, given: Given, form: str, progress: Progress) -> Iterable[str]:
    """The lines of the output file."""
    if sum(map(bool, (given.text, given.source, given.split))) != 1:
        raise UserError("Say what to answer: exactly one of --text, --input FILE (- for standard input) and --split.")
    predictor = load(run)
    chosen = predictor.task(task)
    if form == "cs224n" and not chosen.course_column:
        raise UserError(f"Task '{chosen.name}' is none of the course's; use --format jsonl or csv.")
    found = predictor.answer(chosen, _examples(predictor, chosen, given, progress), progress)
    return {"jsonl": _jsonl, "csv": _csv, "cs224n": lambda answers: course_lines(chosen, answers)}[form](found)


def _examples(predictor: Predictor, task: Task, given: Given, progress: Progress) -> list[Example]:
    if given.split:
        return predictor.read_split(task, given.split, progress)
    if given.source and given.source != "-":
        return predictor.read(task, Path(given.source), progress)
    lines = given.text if given.text else sys.stdin.buffer.read().decode("utf-8", "replace").splitlines()
    if given.text and len(task.texts) == 2:
        if len(lines) != 2:
            raise UserError(f"Task '{task.name}' takes a pair: give --text twice, got {len(lines)}.")
        lines = ["\t".join(text.replace("\t", " ") for text in lines)]
    return [_from_line(task, line, number) for number, line in enumerate(lines, 1)]


def _from_line(task: Task, line: str, number: int) -> Example:
    """One text a line, a pair with a TAB between."""
    cells = line.split("\t") if len(task.texts) == 2 else [line]
    if len(cells) != len(task.texts):
        raise UserError(f"line {number}: task '{task.name}' takes two texts with a TAB between, got {len(cells)}.")
    try:
        return make_example(task, dict(zip(task.texts, cells, strict=True)), labelled=False, name=str(number))
    except UserError as error:
        raise UserError(f"line {number}: {error}") from None


def usual_output(run: Path, task: str | None, given: Given, form: str) -> Path | None:
    """The course's own file name for its own rows; otherwise standard output."""
    if form != "cs224n" or not given.split:
        return None
    recipe = Run.open(run).recipe
    chosen = recipe.tasks[task] if task else next(iter(recipe.tasks.values()))
    return run / "predictions" / f"{chosen.course_name}-{given.split}-output.csv"


def write(target: Path, lines: Iterable[str]) -> None:
    """The whole file, or none of it."""
    try:
        write_text(target, "".join(lines))
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}.") from None


def _jsonl(answers: Iterable[Answer]) -> Iterator[str]:
    for found in answers:
        yield json.dumps(found.as_json(), ensure_ascii=False) + "\n"


def _csv(answers: Iterable[Answer]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["id", "answer", "probability"])
    for found in answers:
        label = found.score if found.score is not None else found.label
        shown = "|".join(label) if isinstance(label, tuple) else label
        writer.writerow([found.id, shown, "" if found.probability is None else found.probability])
    yield buffer.getvalue()
