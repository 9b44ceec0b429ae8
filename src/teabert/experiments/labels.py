"""The labels of dev rows, each array once, by checksum: they belong to the data, so results may travel without them.

Where they are not there, they are read from the data's own files again.
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from teabert.config import parse_recipe
from teabert.errors import UserError
from teabert.files import write_bytes
from teabert.tasks import Task
from teabert.tasks.reading import read_split


class Labels:
    """The label files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.looked = False
        """whether the data was asked for what is missing"""

    def keep(self, labels: np.ndarray) -> str:
        """Write an array, unless it is there; its name"""
        name = hashlib.sha256(f"{labels.dtype}{labels.shape}".encode() + labels.tobytes()).hexdigest()[:16]
        if not self._file(name).exists():
            content = io.BytesIO()
            np.save(content, labels)
            write_bytes(self._file(name), content.getvalue())
        return name

    def find(self, name: str, records: Callable[[], Iterable[Mapping[str, Any]]]) -> np.ndarray | None:
        """An array by name; where it is missing, after reading anew the dev rows of all tasks of these results"""
        if not self._file(name).exists() and not self.looked:
            self.looked = True
            for task, data in _tasks(records()):
                with suppress(UserError):  # its files are not here
                    self.keep(dev_labels(task, data))
        with suppress(OSError, ValueError):
            found: np.ndarray = np.load(self._file(name), allow_pickle=False)
            return found
        return None

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


def dev_labels(task: Task, data: str | None) -> np.ndarray:
    """What is right, row by row, as results keep it"""
    rows = read_split(task, "dev", data).examples
    return small(task.meaning.truth(np.array([row.label for row in rows], dtype=np.float32)))


def _tasks(records: Iterable[Mapping[str, Any]]) -> list[tuple[Task, str | None]]:
    """All different tasks that these results are of"""
    found: dict[str, tuple[Task, str | None]] = {}
    for record in records:
        with suppress(UserError, KeyError):
            recipe = parse_recipe(record["recipe"])
            found |= {str(task): (task, recipe.data) for task in recipe.tasks.values()}
    return list(found.values())


def small(values: np.ndarray) -> np.ndarray:
    """Classes in one byte, scores in four"""
    whole = np.issubdtype(values.dtype, np.integer) and np.abs(values).max(initial=0) < 128
    return values.astype(np.int8 if whole else np.float32)
