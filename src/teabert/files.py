"""Writing that is whole or not at all: a kill in the middle leaves the old file or folder, never half of a new one."""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from teabert.errors import UserError

UNFINISHED = ".unfinished-"
"""Begins the names of what is still being written; safe to delete."""
CHECKSUMS = "checksums.json"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    working = path.with_name(f"{UNFINISHED}{path.name}-{uuid.uuid4().hex[:8]}")
    working.write_bytes(content)
    os.replace(working, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file in one step."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A working folder that gets checksums and takes the target's place in one step when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    working = target.with_name(f"{UNFINISHED}{target.name}-{uuid.uuid4().hex[:8]}")
    working.mkdir()
    try:
        yield working
        sums = {file.name: sha256(file) for file in sorted(working.iterdir())}
        (working / CHECKSUMS).write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")
        if target.exists():  # a folder cannot be replaced in one step: the old one steps aside first
            aside = target.with_name(f"{UNFINISHED}old-{target.name}-{uuid.uuid4().hex[:8]}")
            os.replace(target, aside)
            os.replace(working, target)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.replace(working, target)
    finally:
        shutil.rmtree(working, ignore_errors=True)


def verify(folder: Path) -> None:
    """Refuse a folder whose files are not the ones that were written."""
    try:
        sums = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        wanted = {str(name): str(digest) for name, digest in sums.items()}
    except (OSError, ValueError, AttributeError):
        raise UserError(f"{folder} is damaged: its {CHECKSUMS} is missing or unreadable.") from None
    for name, digest in wanted.items():
        file = folder / name
        if not file.is_file():
            raise UserError(f"{folder} is damaged: {name} is missing.")
        if sha256(file) != digest:
            raise UserError(f"{folder} is damaged: {name} is not the file that was saved (its sha256 differs).")


def sha256(file: Path) -> str:
    """The checksum of a file."""
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def known_sha256(file: Path) -> str:
    """The same, read once as long as the file stays as it is"""
    facts = file.stat()
    return _known_sha256(file, facts.st_mtime_ns, facts.st_size)


@cache
def _known_sha256(file: Path, changed: int, size: int) -> str:
    return sha256(file)
