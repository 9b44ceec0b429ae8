"""`teabert report`: a run folder or a table's folder -> one HTML page that needs nothing else, and its numbers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teabert.errors import UserError
from teabert.files import write_text
from teabert.progress import Progress, Quiet
from teabert.reports.markup import MARK
from teabert.reports.numbers import gather
from teabert.reports.runpage import run_page
from teabert.reports.tablepage import FILE, read_table, table_page
from teabert.runs import Run

NAME = "report.html"
BEGINNING = 300
"""Bytes of a page within which its mark stands."""


@dataclass(frozen=True)
class Report:
    """A page that was written, and what it shows."""

    path: Path
    numbers: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return {"page": str(self.path)} | self.numbers


def report(place: str | Path, out: str | Path | None = None, progress: Progress | None = None) -> Report:
    """Write the page of a run folder or a table's folder; `out` is by default report.html in it."""
    folder = Path(place).expanduser()
    target = Path(out).expanduser() if out else folder / NAME
    check_target(target)
    if (folder / FILE).is_file():
        found = read_table(folder)
        content, numbers = table_page(found, folder), found.model_dump(mode="json")
    else:
        gathered = gather(Run.open(folder), progress or Quiet())
        content, numbers = run_page(gathered), gathered.as_json()
    try:
        write_text(target, content)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}. Choose another file with --out.") from None
    return Report(target, numbers)


def check_target(target: Path) -> None:
    """Only an earlier report is written over."""
    if target.is_dir():
        raise UserError(f"{target} is a folder; --out must name a file, such as {target / NAME}.")
    if target.exists() and MARK.encode() not in _beginning(target):
        raise UserError(f"{target} is there already and is no report. Choose another file with --out.")


def _beginning(file: Path) -> bytes:
    try:
        with file.open("rb") as content:
            return content.read(BEGINNING)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}. Choose another file with --out.") from None


__all__ = ["Report", "report"]
