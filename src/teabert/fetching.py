"""`teabert data get`: names of public tasks in; their files from the hub, whole and checked, in the data folder out."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from teabert.errors import UserError, missing_extra, unknown
from teabert.hub import cache_folder, get_files
from teabert.tasks import SPLITS, TASKS, Task
from teabert.tasks.public import ALIASES, PUBLIC, Public
from teabert.tasks.reading import locate, read_file

MOST_SKIPPED = 0.01
"""Where a release has more unusable rows than this part, it is not what its task says."""


@dataclass(frozen=True)
class Fetched:
    """A public task whose files are on this machine."""

    name: str
    files: tuple[Path, ...]
    source: str
    """hub:REPO@REVISION"""
    licence: str
    rows: dict[str, int]
    """usable rows of each split"""
    note: str = ""
    """what the user should hear, such as that another name was asked for"""


def data_folder() -> Path:
    """Where fetched data goes, and where tasks look for it: $TEABERT_DATA, else below the cache."""
    chosen = os.environ.get("TEABERT_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder() / "data"


def get_data(names: Iterable[str], folder: Path | str | None = None, progress: bool = True) -> list[Fetched]:
    """Fetch public tasks; what is already there is only checked."""
    found: dict[str, tuple[Public, str]] = {}
    for name in names:  # all names are known before anything is fetched
        public, note = _find(name)
        found.setdefault(public.task.name, (public, note))
    root = Path(folder).expanduser() if folder else data_folder()
    return [_get(public, note, root, progress) for public, note in found.values()]


def find_files() -> list[dict[str, str | None]]:
    """Each built-in task, where the file of each of its splits is (nothing where it is not here), and its source."""
    return [
        {"task": task.name} | {split: _place(task, split) for split in SPLITS} | {"source": task.source}
        for task in TASKS.values()
    ]


def _place(task: Task, split: str) -> str | None:
    try:
        return str(locate(task, split, None))
    except UserError:
        return None


def _find(name: str) -> tuple[Public, str]:
    if name in PUBLIC:
        return PUBLIC[name], ""
    if name in ALIASES:
        public = PUBLIC[ALIASES[name]]
        note = f"The course's own split of '{name}' cannot be fetched; this is the public release, task '{ALIASES[name]}'."
        if apart := public.task.shares_rows_with:
            note += f" It is never trained together with '{', '.join(apart)}'."
        return public, note
    if name in TASKS:
        advice = "Put its files into the folder that TEABERT_DATA names."
        raise UserError(f"Task '{name}' has no public release to fetch ({TASKS[name].source}). {advice}")
    advice = "Any other data set on the hub can be named in a recipe, as files: {train: hub:ORG/NAME, dev: hub:ORG/NAME}."
    raise unknown("public task", name, [*PUBLIC, *ALIASES], advice)


def _get(public: Public, note: str, root: Path, progress: bool) -> Fetched:
    task, release = public.task, public.release
    if find_spec("pyarrow") is None and any(path.endswith(".parquet") for path in release.files.values()):
        raise missing_extra("pyarrow", "data", f"Reading the parquet files of '{task.name}'")
    places = {split: root / str(task.file(split)) for split in release.files}
    # files wait here, as the hub names them, until all of them are checked
    waiting = root / "public" / "from-hub" / release.repo.replace("/", "--")
    absent = {split: path for split, path in release.files.items() if not places[split].exists()}
    try:
        arrived = _from_hub(public, absent, waiting, progress)
        rows = {
            split: _count(public, split, arrived.get(split, place), split in arrived) for split, place in places.items()
        }
        for split, file in arrived.items():
            with suppress(FileNotFoundError):  # another process was first
                os.replace(file, places[split])
    finally:
        _remove_empty(waiting)
    source = f"hub:{release.repo}@{release.revision}"
    return Fetched(task.name, tuple(places.values()), source, release.licence, rows, note)


def _from_hub(public: Public, absent: dict[str, str], waiting: Path, progress: bool) -> dict[str, Path]:
    """The absent splits' files, each put whole into the waiting folder."""
    release = public.release
    try:
        files = get_files(release.repo, list(absent.values()), "dataset", waiting, release.revision, progress)
    except UserError as error:
        raise UserError(f"{error} Then: teabert data get {public.task.name}") from None
    return dict(zip(absent, files, strict=True))


def _count(public: Public, split: str, file: Path, came: bool) -> int:
    """How many rows can be used; a file that is not what its task says is refused, and removed if it just came."""
    task = public.task
    try:
        table = read_file(task, file, labelled=split != "test")
        if len(table.skipped) > MOST_SKIPPED * len(table.examples):
            raise UserError(f"{file}: {len(table.skipped)} rows cannot be used, the first being {table.skipped[0]}")
    except UserError as error:
        if came:
            file.unlink(missing_ok=True)
        origin = f"hub:{public.release.repo} {public.release.files[split]}"
        advice = f"{'It was not kept' if came else 'Remove the file'}; try again: teabert data get {task.name}"
        raise UserError(f"Task '{task.name}': {split} is not what {origin} should be. {error} {advice}") from None
    return len(table.examples)


def _remove_empty(waiting: Path) -> None:
    for folder in (*sorted(waiting.rglob("*"), reverse=True), waiting, waiting.parent):
        with suppress(OSError):  # not empty, or a file
            folder.rmdir()
