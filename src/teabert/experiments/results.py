"""Results: rows.jsonl, one line a run that ended, only ever added to; and each run's answers beside it.

Files of two machines are merged by putting one behind the other: of several lines about one run the first good one counts.
"""

import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from teabert.errors import UserError
from teabert.experiments.labels import Labels, small
from teabert.files import write_bytes

Record = dict[str, Any]
ROWS = "rows.jsonl"
LABELS = ".labels"
"""What the name of an array of labels ends with; a run's file has only the name of the labels' own"""


class Results:
    """The results in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / ROWS
        self.labels = Labels(folder / "labels")

    def add(self, record: Mapping[str, Any]) -> None:
        """One more line, safely written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
        with self.file.open("ab+") as file:
            if file.tell() and not _ends_line(file):  # a kill may have cut the last one
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[Record]:
        """Every whole line."""
        if not self.file.exists():
            return []
        return read_records(self.file.read_text(encoding="utf-8"), str(self.file))

    def by_key(self) -> dict[str, Record]:
        """What counts of each run: its first good line, or else the last that says why it failed."""
        return by_key(self.read())

    # predictions

    def save_predictions(
        self,
        key: str,
        predictions: Mapping[str, np.ndarray],
        labels: Mapping[str, np.ndarray],
        test: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Keep what a run answered on dev, and what was right, row by row, and its answers to test rows; no text."""
        arrays = {f"{task}.predictions": small(found) for task, found in predictions.items()}
        arrays |= {f"{task}{LABELS}": small(wanted) for task, wanted in labels.items()}
        self.save_arrays(key, arrays | {f"{task}.test": small(found) for task, found in (test or {}).items()})

    def save_arrays(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        """The same as arrays of the file; labels that only another machine has are known by name"""
        content = io.BytesIO()
        np.savez_compressed(content, **{**arrays, **self.keep_labels(arrays)})  # type: ignore[arg-type]
        write_bytes(self._predictions(key), content.getvalue())

    def keep_labels(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Keep the labels that are among some arrays; their names in place of them"""
        labels = {name: each for name, each in arrays.items() if name.endswith(LABELS) and not is_name(each)}
        return {name: np.array(self.labels.keep(each)) for name, each in labels.items()}

    def predictions(self, key: str, task: str) -> tuple[np.ndarray, np.ndarray] | None:
        """A run's dev predictions of a task and the labels; nothing where they are not there."""
        arrays = self.answers(key) or {}
        found, wanted = arrays.get(f"{task}.predictions"), arrays.get(f"{task}{LABELS}")
        return None if found is None or wanted is None or is_name(wanted) else (found, wanted)

    def answers(self, key: str) -> dict[str, np.ndarray] | None:
        """All that is known of a run's answers, labels among it, or the names of those that are not here; nothing where
        nothing is"""
        try:
            with np.load(self._predictions(key), allow_pickle=False) as arrays:
                kept = dict(arrays)
        except (OSError, ValueError):
            return None
        right = {name: self.labels.find(str(each), self.read) for name, each in kept.items() if name.endswith(LABELS)}
        return kept | {name: each for name, each in right.items() if each is not None}

    def _predictions(self, key: str) -> Path:
        return self.folder / "answers" / f"{key}.npz"


def read_records(text: str, where: str) -> list[Record]:
    """Every whole line"""
    found: list[Record] = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            record = json.loads(line) if line.strip() else None
        except ValueError:
            continue  # cut by a kill; its run is done again
        if record is not None and not (isinstance(record, dict) and isinstance(record.get("key"), str)):
            raise UserError(f"{where} line {number} is no result: it has no key. Take the line out.")
        found += [record] if record is not None else []
    return found


def by_key(records: Iterable[Record]) -> dict[str, Record]:
    """See Results.by_key."""
    found: dict[str, Record] = {}
    for record in records:
        if not good(found.get(record["key"])):
            found[record["key"]] = record
    return found


def is_name(labels: np.ndarray) -> bool:
    """Whether these are no labels, but the name of some"""
    return labels.dtype.kind == "U"


def good(record: Record | None) -> bool:
    """Whether there is a result, and no failure"""
    return record is not None and "error" not in record


def _ends_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
