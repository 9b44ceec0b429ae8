"""A file that is written in chunks and takes its name when it is whole; after a kill it goes on behind the last chunk.

Beside the unfinished file stands its journal: the first line says what the file is made of; each further line that a
chunk is safely written, how long the file was then, and where its maker was.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from teabert.errors import UserError
from teabert.files import UNFINISHED


class Journal:
    """Writes a file chunk by chunk; the file takes its name when the `with` block ends well.

    A block that fails leaves what is needed to go on, or nothing where no chunk was written.
    """

    def __init__(self, target: Path, made_of: Mapping[str, Any], anew: bool = False) -> None:
        self.target, self.made_of, self.anew = target, dict(made_of), anew
        self.file = target.with_name(f"{UNFINISHED}{target.name}")
        self.notes = target.with_name(f"{UNFINISHED}{target.name}.journal")
        self.place: dict[str, Any] = {}
        """where the maker was after the last chunk; empty at the beginning"""

    def __enter__(self) -> Self:
        if self.target.exists() and not self.target.is_file():
            raise UserError(f"{self.target} cannot be written: it is no file.")
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            notes, length = self._kept()
            self.writing, self.noting = (path.open("r+b" if path.exists() else "wb") for path in (self.file, self.notes))
            for file, end in ((self.writing, length), (self.noting, len(notes))):
                file.truncate(end)
                file.seek(end)
            if not notes:
                _append(self.noting, json.dumps(self.made_of).encode() + b"\n")
        except OSError as error:
            raise UserError(f"{self.target} cannot be written: {error.strerror}.") from None
        return self

    def _kept(self) -> tuple[bytes, int]:
        """What of the notes and how much of the file to keep"""
        if self.anew:
            return b"", 0
        lines = [line for line in _read(self.notes).splitlines(keepends=True) if line.endswith(b"\n")]  # a kill cuts one
        if not lines:
            return b"", 0
        try:
            begun, *chunks = map(json.loads, lines)
            length, place = (int(chunks[-1]["length"]), dict(chunks[-1]["place"])) if chunks else (0, {})
        except (ValueError, TypeError, KeyError):
            raise UserError(f"{self.notes} is damaged. Delete it to begin anew.") from None
        if begun != self.made_of:
            other = [key for key in self.made_of if not isinstance(begun, dict) or begun.get(key) != self.made_of[key]]
            raise UserError(
                f"{self.file} was begun with another {', another '.join(other)}. Go on as it was begun, or"
                f" delete {self.notes} to begin anew."
            )
        if not self.file.exists() or self.file.stat().st_size < length:
            return lines[0], 0
        self.place = place
        return b"".join(lines), length

    def add(self, chunk: bytes, place: Mapping[str, Any]) -> None:
        """Write a chunk, and note where its maker is after it."""
        try:
            _append(self.writing, chunk)
            note = {"length": self.writing.tell(), "place": dict(place)}
            _append(self.noting, json.dumps(note).encode() + b"\n")
            self.place = dict(place)
        except OSError as error:
            raise UserError(f"{self.file} cannot be written: {error.strerror}.") from None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.writing.close()
        self.noting.close()
        if kind is None:
            os.replace(self.file, self.target)
        if kind is None or not self.place:
            self.file.unlink(missing_ok=True)
            self.notes.unlink()


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _append(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())
