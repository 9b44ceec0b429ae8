"""Results of another machine: packed there into one small file, merged here into the results that are there.

A pack holds rows.jsonl and what every run answered on dev; labels, which all runs share, take room in it only once.
"""

import io
import json
import lzma
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from teabert.errors import UserError
from teabert.experiments.results import ROWS, Record, Results, by_key, good, read_records
from teabert.files import UNFINISHED

KEY = re.compile(r"answers/([0-9A-Za-z-]+)\.npz")
PRESET = 2
"""How hard xz tries: half a second for a hundred runs"""
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Carried:
    """What was packed or merged."""

    file: str
    runs: int
    failed: int
    new: int
    """runs that were not there before"""


def pack(folder: Path, file: Path) -> Carried:
    """The results of a folder as one file."""
    results = Results(folder)
    known = results.by_key()
    if not known:
        raise UserError(f"{folder} holds no {ROWS} with results. Run a table first: teabert table NAME --out {folder}")
    file.parent.mkdir(parents=True, exist_ok=True)
    working = file.with_name(f"{UNFINISHED}{file.name}")
    with lzma.open(working, "wb", preset=PRESET) as pressed, tarfile.open(fileobj=pressed, mode="w") as packed:
        _put(packed, ROWS, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in known.values()).encode())
        for key in known:
            if (arrays := results.answers(key)) is not None:
                _put(packed, f"answers/{key}.npz", _plain(arrays))
    working.replace(file)
    runs = sum(good(record) for record in known.values())
    return Carried(str(file), runs, len(known) - runs, runs)


def _put(packed: tarfile.TarFile, name: str, content: bytes) -> None:
    facts = tarfile.TarInfo(name)
    facts.size = len(content)
    packed.addfile(facts, io.BytesIO(content))


def _plain(arrays: Arrays) -> bytes:
    """Arrays as they are: what is pressed already cannot be pressed together"""
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def merge(given: Path, folder: Path) -> Carried:
    """Add a pack's results, or those of another folder, to a folder's; of each run the first good result counts."""
    results = Results(folder)
    before = results.by_key()
    records, answers = _of_folder(given) if given.is_dir() else _of_pack(given)
    found, new = by_key(records), 0
    if strange := [key for key in found if not KEY.fullmatch(f"answers/{key}.npz")]:
        raise UserError(f"{given}: {strange[0]!r} is no run's key. Take its line out.")
    for key, arrays in answers:
        if key in found and results.answers(key) is None:
            results.save_arrays(key, arrays)
        else:
            results.keep_labels(arrays)  # which runs may wait for that are there already
    for key, record in found.items():
        if key not in before or (good(record) and not good(before[key])):
            results.add(record)
            new += good(record)
    runs = sum(good(record) for record in found.values())
    return Carried(str(given), runs, len(found) - runs, new)


def _of_folder(folder: Path) -> tuple[list[Record], Iterator[tuple[str, Arrays]]]:
    results = Results(folder)
    if not results.file.is_file():
        raise UserError(f"{folder} holds no {ROWS}. Give a folder of results, or a file that `teabert results pack` wrote.")
    records = results.read()
    kept = ((record["key"], results.answers(record["key"])) for record in records)
    return records, ((key, arrays) for key, arrays in kept if arrays is not None)


def _of_pack(file: Path) -> tuple[list[Record], Iterator[tuple[str, Arrays]]]:
    """Nothing is unpacked to disk, and names in the file are only compared"""
    try:
        with tarfile.open(file, "r:xz") as packed:
            contents = {each.name: opened.read() for each in packed if (opened := packed.extractfile(each))}
        records = read_records(contents[ROWS].decode(), str(file))
        answers = [(known[1], _read(content)) for name, content in contents.items() if (known := KEY.fullmatch(name))]
    except (OSError, EOFError, KeyError, ValueError, tarfile.TarError, lzma.LZMAError) as error:
        raise UserError(f"{file} is no whole file that `teabert results pack` wrote: {error}.") from None
    return records, iter(answers)


def _read(content: bytes) -> Arrays:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)
