"""Files in (csv, tsv, jsonl, parquet), checked Examples out; a row that cannot be used is named by file and line."""

import codecs
import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from teabert.errors import UserError, missing_extra, nearest
from teabert.hub import cache_folder
from teabert.tasks.base import Task, plain_label
from teabert.tasks.hubrows import PREFIX, hub_rows

NO_LABEL = "-1"
"""Stands for a missing label in the hub's test rows."""
FORMATS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".parquet")


@dataclass(frozen=True)
class Example:
    """One row of a task."""

    name: str
    texts: tuple[str, ...]
    label: float | tuple[float, ...]
    """The class's number, 0/1, a score, 0/1 or how likely for each label; not-a-number where the row has none."""


@dataclass(frozen=True)
class Table:
    """The usable rows of a file, and what was skipped and why."""

    path: Path
    examples: list[Example]
    skipped: list[str]


def locate(task: Task, split: str, data: str | None) -> Path:
    """The file of a split: below the data folder, then $TEABERT_DATA, there also by its bare name; then the cache."""
    relative = task.file(split)
    if relative is None:
        raise UserError(f"Task '{task.name}' has no {split} rows. It has: {', '.join(_splits(task))}.")
    folders = [Path(folder).expanduser() for folder in (data, os.environ.get("TEABERT_DATA")) if folder]
    tried = [path for folder in folders or [Path()] for path in (folder / relative, folder / Path(relative).name)]
    tried.append(cache_folder() / "data" / relative)  # where fetched data is kept
    tried = list(dict.fromkeys(tried))
    for path in tried:
        if path.is_file():
            return path
    raise UserError(
        f"Task '{task.name}': there is no file {tried[0]}"
        + (f" (nor {', '.join(map(str, tried[1:]))})" if len(tried) > 1 else "")
        + ". Set TEABERT_DATA, or data: in the recipe, to the folder that holds it"
        + (f", or fetch it with: teabert data get {task.name}." if task.source.startswith("hub:") else ".")
    )


def _splits(task: Task) -> list[str]:
    return ["train", "dev", "test"] if isinstance(task.files, str) else list(task.files)


def read_split(task: Task, split: str, data: str | None) -> Table:
    """The rows of one split; test rows may lack labels."""
    place = task.file(split)
    if place is not None and place.startswith(PREFIX):
        return _collect(task, Path(place), hub_rows(place, split), labelled=split != "test", unit=f"{split} row")
    return read_file(task, locate(task, split, data), labelled=split != "test")


def read_file(task: Task, path: Path, labelled: bool) -> Table:
    """The rows of one file; `labelled` rows must have a label, others may."""
    return _collect(task, path, read_rows(path, task.quotes), labelled, unit="line")


def _collect(task: Task, path: Path, rows: Iterable[tuple[int, Mapping[str, Any]]], labelled: bool, unit: str) -> Table:
    """Checked examples from rows that are named by path, unit and number."""
    examples: list[Example] = []
    skipped: list[str] = []
    for line, row in rows:
        if not examples and not skipped:
            _check_columns(task, path, row, labelled)
        try:
            examples.append(make_example(task, row, labelled, str(line)))
        except UserError as error:
            if task.on_bad_row == "error":
                raise UserError(f"{path} {unit} {line}: {error} Correct the row, or set on_bad_row: skip.") from None
            skipped.append(f"{path.name if unit == 'line' else path} {unit} {line}: {error}")
    if not examples:
        raise UserError(f"{path} holds no {'usable ' if skipped else ''}rows" + (f": {skipped[0]}" if skipped else "."))
    return Table(path, examples, skipped)


def _check_columns(task: Task, path: Path, row: Mapping[str, Any], labelled: bool) -> None:
    columns = [str(column) for column in row if column is not None]
    for key, column in [*(("texts", text) for text in task.texts), *([("label", task.label)] if labelled else [])]:
        if column not in columns:
            shown = ", ".join(repr(name) for name in columns)
            raise UserError(
                f"{path} has no column '{column}'.{nearest(column, columns)} Its columns: {shown}."
                f" Name the right one in the task's {key}."
            )


def make_example(task: Task, row: Mapping[str, Any], labelled: bool, name: str) -> Example:
    """One checked example from a row of cells."""
    if None in row or any(cell is SHORT for cell in row.values()):
        raise UserError("it has another number of cells than the header.")
    texts = tuple(clean(_text(row.get(column), column), task.clean) for column in task.texts)
    if task.id is not None and row.get(task.id) is not None:
        name = str(row[task.id]).strip().lower()
    return Example(name, texts, make_label(task, row.get(task.label), labelled))


def _text(cell: Any, column: str) -> str:
    if cell is None or str(cell).strip() == "":
        raise UserError(f"the text in column '{column}' is empty.")
    if not isinstance(cell, str | int | float):
        raise UserError(f"the text in column '{column}' is no text but a {type(cell).__name__}.")
    # tokenizers takes no lone surrogates, which JSON can carry
    return str(cell).encode("utf-8", "replace").decode("utf-8")


def clean(text: str, how: str) -> str:
    """A text as the task wants it; see Task.clean."""
    if how == "none":
        return text
    text = text.lower().strip()
    if how == "spaced":
        for mark in ".?,'":
            text = text.replace(mark, f" {mark}")
        text = " ".join(text.split())
    return text


def make_label(task: Task, cell: Any, labelled: bool) -> float | tuple[float, ...]:
    """A cell as a number: the class's place in task.labels, 0/1, or the score."""
    if cell is None or _stands_for_none(task, cell, labelled):
        if labelled:
            raise UserError(f"there is no label in column '{task.label}'.")
        return (float("nan"),) * len(task.labels) if task.kind in ("multilabel", "soft") else float("nan")
    if task.kind == "score":
        return _score(task, cell)
    if task.kind == "multilabel":
        given = cell if isinstance(cell, list | tuple | np.ndarray) else str(cell).split(task.label_separator)
        found = {_known(task, label) for label in given if str(label).strip()}
        return tuple(float(place in found) for place in range(len(task.labels)))
    return _shares(task, cell) if task.kind == "soft" else float(_known(task, cell))


def _shares(task: Task, cell: Any) -> tuple[float, ...]:
    """How likely each label is: a number for each in their order, by name, or the one that is certain"""
    if isinstance(cell, str | int | float) and plain_label(cell) in task.labels:
        return tuple(float(label == plain_label(cell)) for label in task.labels)
    if isinstance(cell, Mapping):
        named = {task.labels[_known(task, label)]: share for label, share in cell.items()}
        given: Any = [named.get(label, 0) for label in task.labels]
    else:
        given = cell if isinstance(cell, list | tuple | np.ndarray) else str(cell).split(task.label_separator)
    try:
        shares = [float(share) for share in given]
    except (TypeError, ValueError, OverflowError):
        shares = []
    if len(shares) != len(task.labels) or not all(0 <= share < float("inf") for share in shares) or not sum(shares):
        raise UserError(
            f"'{cell}' says not how likely each of {', '.join(task.labels)} is: give a number from 0 for each, separated"
            f" by '{task.label_separator}', or one of the labels."
        )
    return tuple(share / sum(shares) for share in shares)


def _stands_for_none(task: Task, cell: Any, labelled: bool) -> bool:
    if task.kind == "multilabel":
        return False
    if isinstance(cell, str) and cell.strip() == "":
        return True
    meant = NO_LABEL in task.labels or task.span[0] <= float(NO_LABEL)
    return not labelled and not meant and plain_label(cell) == NO_LABEL


def _known(task: Task, cell: Any) -> int:
    label = plain_label(cell)
    if label not in task.labels:
        raise UserError(f"label '{label}' is not one of {', '.join(task.labels)}.")
    return task.labels.index(label)


def _score(task: Task, cell: Any) -> float:
    low, high = task.span
    try:
        score = float(cell)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"score '{cell}' is not a number between {low:g} and {high:g}.") from None
    if not low <= score <= high:
        raise UserError(f"score {score:g} is not between {low:g} and {high:g}.")
    return score


def read_rows(path: Path, quotes: bool = True) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a file as (line, cells by column), whatever its format."""
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise UserError(f"{path}: files must end in one of {', '.join(FORMATS)}.")
    if ending == ".parquet":
        return _parquet(path)
    text = _read_text(path)
    return _json_lines(path, text) if ending in (".jsonl", ".ndjson") else _delimited(path, text, quotes)


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if not raw.strip():
        raise UserError(f"{path} is empty.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path} line {line} is not UTF-8 text (byte {raw[error.start]:#04x}). Save the file as UTF-8."
        ) from None


SHORT = "\0short"
"""Stands in for the cells that a short row lacks."""


def _delimited(path: Path, text: str, quotes: bool) -> Iterator[tuple[int, Mapping[str, Any]]]:
    csv.field_size_limit(1 << 28)
    header = text.lstrip("\r\n").split("\n", 1)[0]
    separator = max("\t,;", key=header.count)  # the course's .csv files are tab-separated
    lines = io.StringIO(text, newline="")
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)  # an open quote swallows rows
    end = 0
    try:
        columns = next((cells for cells in reader if cells), [])
        end = reader.line_num
        for cells in reader:
            if cells:  # not an empty line
                yield end + 1, _by_column(columns, cells)
            end = reader.line_num
    except csv.Error as error:
        advice = "Close or double the quotation marks; where they are plain characters, set quotes: false in the task."
        raise UserError(f"{path} line {end + 1}: {error}. {advice}") from None


def _by_column(columns: list[str], cells: list[str]) -> dict[Any, Any]:
    """Cells by column; what is too much under None, what is too little as SHORT."""
    row: dict[Any, Any] = dict.fromkeys(columns, SHORT) | dict(zip(columns, cells, strict=False))
    return row if len(cells) <= len(columns) else row | {None: cells[len(columns) :]}


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
            if "\\ud" in content.lower():  # lone surrogates, which can be neither printed nor saved, become question marks
                row = json.loads(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} line {line} is not valid JSON: {error}.") from None
        if not isinstance(row, dict):
            raise UserError(f"{path} line {line} is not a JSON object but {content.strip()[:40]!r}.")
        yield line, row


def _parquet(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("pyarrow", "data", "Reading parquet files") from None
    try:
        table = pyarrow.parquet.ParquetFile(path)
        rows: Iterable[dict[str, Any]] = (row for batch in table.iter_batches() for row in batch.to_pylist())
        yield from enumerate(rows, 1)
    except (OSError, ValueError, ArithmeticError, LookupError, pyarrow.ArrowException) as error:
        # beyond damage: text that is not UTF-8, dates that Python does not have
        raise UserError(f"{path} is not a readable parquet file: {error}.") from None
