"""`teabert table`: run what is missing of a table, write down what is there."""

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import torch

from teabert.errors import UserError, nearest
from teabert.experiments import find_table
from teabert.experiments.base import Row, Table
from teabert.experiments.figures import draw
from teabert.experiments.jobs import Choices, Job, digest, encoder_facts, jobs_of, recipes_of
from teabert.experiments.results import Record, Results, good
from teabert.experiments.sharing_gpu import shared_gpu
from teabert.experiments.summary import Summary, summarise
from teabert.experiments.work import Place, tidy
from teabert.experiments.workers import run_jobs
from teabert.experiments.writing import write
from teabert.progress import Progress


@dataclass(frozen=True)
class Done:
    """What came out."""

    folder: Path
    summary: Summary
    failed: tuple[Record, ...]


def run_table(
    table: str | Table,
    choices: Choices,
    folder: Path,
    only: Sequence[str] = (),
    workers: int = 1,
    keep_models: bool = False,
    progress: Progress | None = None,
) -> Done:
    """Run what is missing of a table and write it down; `only` names rows, also by patterns such as input-*."""
    table = find_table(table) if isinstance(table, str) else table
    progress = progress or Progress()
    rows = pick(table, only)
    results = Results(folder)
    jobs = [] if table.counted else jobs_of(table, rows, choices)
    place = Place(folder, workers, max(1, torch.get_num_threads() // workers), keep_models)
    target = folder / folder_name(table, choices)
    try:
        _run_missing(jobs, results, place, progress)
    finally:  # also where somebody stops it
        summary = summarise(table, choices, results)
        write(summary, target)
    if table.figure is not None and any(row["seeds"] for row in summary["rows"]):
        draw(summary, table.figure, target, progress)
    known = results.by_key()
    return Done(target, summary, tuple(known[job.key] for job in jobs if job.key in known and not good(known[job.key])))


def pick(table: Table, only: Sequence[str]) -> list[Row]:
    """The rows that are asked for; all where none is named."""
    names = [row.name for row in table.rows]
    for pattern in only:
        if not any(fnmatch(name, pattern) for name in names):
            raise UserError(
                f"Table '{table.name}' has no row '{pattern}'.{nearest(pattern, names)} Rows: {', '.join(names)}."
            )
    return [row for row in table.rows if not only or any(fnmatch(row.name, pattern) for pattern in only)]


def folder_name(table: Table, choices: Choices) -> str:
    """The folder of a table: one for each encoder and each way to reduce it."""
    name = next(iter(recipes_of(table.rows[0], choices).values())).encoder
    parts = [table.name, encoder_facts(name)["name"]]
    if choices.reduced:
        parts += ["reduced", *(f"{key}-{value:g}" for key, value in choices.reduced.items() if key != "set")]
        parts += [digest(choices.changes)[:6]] if choices.changes else []
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts))


def _run_missing(jobs: Sequence[Job], results: Results, place: Place, progress: Progress) -> None:
    """Jobs without a good result, those that failed before among them; and those whose model is wanted and gone."""
    known = results.by_key()
    bare = [job for job in jobs if place.keep_models and good(known.get(job.key)) and not place.has_model(job.key)]
    for job in bare:  # from the start, with the code as it is now
        shutil.rmtree(place.run_folder(job.key), ignore_errors=True)
    missing = [job for job in jobs if not good(known.get(job.key)) or job in bare]
    total, done = len(jobs), len(jobs) - len(missing)
    begun = time.perf_counter()
    with progress.bar("runs", total, done) as advance:

        def ended(job: Job, record: Record) -> None:
            nonlocal done
            results.add(record)
            if good(record):
                tidy(place, job.key)
            done += 1
            advance(1)
            left = (time.perf_counter() - begun) / (done - total + len(missing)) * (total - done)
            progress.note(f"{_in_words(job, record)}; {done} of {total} runs done, about {_duration(left)} left")

        with shared_gpu(place.workers if missing else 1) as why:
            if why is not None:
                progress.note(why)
            run_jobs(missing, place, ended)


def _in_words(job: Job, record: Record) -> str:
    name = " ".join(part for part in (job.row, job.part, f"seed {job.seed}") if part)
    if not good(record):
        return f"{name} FAILED: {record['error']}"
    scores = "  ".join(f"{task} {next(iter(metrics.values())):.3f}" for task, metrics in record["scores"].items())
    return f"{name}: {scores}"


def _duration(seconds: float) -> str:
    return (
        f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
    )
