"""Files of any size, a row at a time: each row with its line, what is wrong with it, and where the next one begins.

Nothing is held but the row at hand, and reading can begin at any row's end, so that a long run goes on where it stopped.
"""

import codecs
import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal

from teabert.errors import UserError, missing_extra
from teabert.tasks.reading import FORMATS

LONGEST = 1 << 24
"""Bytes of a line, and characters of a cell, beyond which a file holds no texts."""
JSON = (".jsonl", ".ndjson")
ADVICE = "Close or double the quotation marks; where they are plain characters, set quotes: false in the task"


@dataclass(frozen=True)
class Place:
    """Between two rows."""

    offset: int = 0
    """bytes before it; of parquet files rows"""
    line: int = 0
    """lines before it"""


@dataclass(frozen=True)
class Line:
    """A row of a file."""

    number: int
    """the line it begins on"""
    row: Mapping[str, Any]
    """cells by column"""
    end: Place
    """where the next one begins"""
    problem: str = ""
    """why it cannot be used"""


def columns_of(path: Path, quotes: bool = True) -> tuple[list[str], bool]:
    """The columns of a file, those of its first usable row where rows may differ; and whether all rows have the same."""
    _check(path)
    if path.suffix.lower() == ".parquet":
        with _parquet_file(path) as table:
            return list(table.schema_arrow.names), True
    if path.suffix.lower() in JSON:
        return list(next((line.row for line in _json_lines(path, Place()) if not line.problem), {})), False
    with path.open("rb") as file:
        return _header(_Lines(path, file), quotes)[0], True


def stream(path: Path, quotes: bool = True, start: Place = Place()) -> Iterator[Line]:
    """The rows of a file from a place on; `quotes`: whether cells of csv and tsv files may be quoted."""
    _check(path)
    if path.suffix.lower() == ".parquet":
        return _parquet(path, start)
    return _json_lines(path, start) if path.suffix.lower() in JSON else _delimited(path, quotes, start)


def end_of(path: Path) -> int:
    """The offset of a file's end."""
    if path.suffix.lower() != ".parquet":
        return path.stat().st_size
    with _parquet_file(path) as table:
        return int(table.metadata.num_rows)


def _check(path: Path) -> None:
    """Refuse what is no readable file of a known format"""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"{path}: files must end in one of {', '.join(FORMATS)}.")
    try:
        with path.open("rb") as file:
            if not file.read(1):
                raise UserError(f"{path} is empty.")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None


class _Lines:
    """The lines of a file as text, the place after the last one, and whether one was no UTF-8."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file, self.place, self.damaged = path, file, Place(), False

    def go(self, place: Place) -> None:
        """Read on from a place"""
        self.file.seek(place.offset)
        self.place = place

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        raw = self.file.readline(LONGEST + 1)
        if not raw:
            raise StopIteration
        if len(raw) > LONGEST:
            raise UserError(f"{self.path} line {self.place.line + 1} is longer than {LONGEST} bytes: no file of texts.")
        begin, self.place = self.place, Place(self.place.offset + len(raw), self.place.line + 1)
        try:
            return (raw if begin.offset else raw.removeprefix(codecs.BOM_UTF8)).decode("utf-8")
        except UnicodeDecodeError:
            self.damaged = True
            return raw.decode("utf-8", "replace")


def _json_lines(path: Path, start: Place) -> Iterator[Line]:
    with path.open("rb") as file:
        lines = _Lines(path, file)
        lines.go(start)
        for text in lines:
            if text.strip():
                row, problem = _json_row(text)
                yield Line(lines.place.line, row, lines.place, "it is not UTF-8 text." if lines.damaged else problem)
            lines.damaged = False


def _json_row(text: str) -> tuple[dict[str, Any], str]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"it is not valid JSON: {error}."
    return (row, "") if isinstance(row, dict) else ({}, f"it is not a JSON object but {text.strip()[:40]!r}.")


def _delimited(path: Path, quotes: bool, start: Place) -> Iterator[Line]:
    with path.open("rb") as file:
        lines = _Lines(path, file)
        columns, reader = _header(lines, quotes)
        if start.offset:
            lines.go(start)
        while True:
            number, lines.damaged = lines.place.line + 1, False
            try:
                cells = next(reader, None)
            except csv.Error as error:
                yield Line(number, {}, lines.place, f"{error}. {ADVICE}.")
                continue
            if cells is None:
                return
            if cells:  # not an empty line
                problem = "it is not UTF-8 text." if lines.damaged else ""
                if len(cells) != len(columns):
                    problem = "it has another number of cells than the header."
                yield Line(number, dict(zip(columns, cells, strict=False)), lines.place, problem)


def _header(lines: _Lines, quotes: bool) -> tuple[list[str], Iterator[list[str]]]:
    """The columns of a csv or tsv file, and the cells of the rows that follow."""
    csv.field_size_limit(LONGEST)
    header = next((text for text in lines if text.strip()), "")
    separator = max("\t,;", key=header.count)  # the course's .csv files are tab-separated
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    reader = csv.reader(chain([header], lines), delimiter=separator, quoting=quoting, strict=True)
    try:
        return next(reader, []), reader
    except csv.Error as error:
        raise UserError(f"{lines.path} line {lines.place.line}: {error}. {ADVICE}.") from None


def _parquet(path: Path, start: Place) -> Iterator[Line]:
    with _parquet_file(path) as table:
        rows = (row for batch in table.iter_batches(1000) for row in batch.to_pylist())
        for number, row in enumerate(rows, 1):
            if number > start.offset:
                yield Line(number, row, Place(number, number))


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("pyarrow", "data", "Reading parquet files") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            yield table
    except (OSError, ValueError, ArithmeticError, LookupError, pyarrow.ArrowException) as error:
        # beyond damage: text that is not UTF-8, dates that Python does not have
        raise UserError(f"{path} is not a readable parquet file: {error}.") from None
