"""`teabert table`: run what is missing of a table, write down what is there."""

import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import torch

from teabert.errors import UserError, nearest
from teabert.experiments import find_table
from teabert.experiments.base import Row, Table
from teabert.experiments.clock import Clock
from teabert.experiments.figures import draw
from teabert.experiments.jobs import Choices, Job, digest, encoder_facts, jobs_of, recipes_of
from teabert.experiments.plan import Planned, plan, steps_of
from teabert.experiments.results import Record, Results, good
from teabert.experiments.sharing_gpu import shared_gpu
from teabert.experiments.summary import Summary, summarise
from teabert.experiments.work import Place, tidy
from teabert.experiments.workers import run_jobs
from teabert.experiments.writing import write
from teabert.progress import Progress

QUIET = Progress()


@dataclass(frozen=True)
class Done:
    """What came out; no folders and summaries where no tables were to be written."""

    folders: tuple[Path, ...]
    summaries: tuple[Summary, ...]
    failed: tuple[Record, ...]

    @property
    def folder(self) -> Path:
        """Of a lone table"""
        return self.folders[0]

    @property
    def summary(self) -> Summary:
        """Of a lone table"""
        return self.summaries[0]


@dataclass(frozen=True)
class How:
    """How tables are run and written down."""

    only: Sequence[str] = ()
    """rows, also by patterns such as input-*, tea-bert/input-* or task-attention/*/sst; all where none is named"""
    workers: int = 1
    """so many runs at once"""
    minutes: float | None = None
    """for the runs; none begins that cannot end in this time"""
    keep_models: bool = False
    run: bool = True
    write: bool = True


def run_table(table: str | Table, choices: Choices, folder: Path, how: How = How(), progress: Progress = QUIET) -> Done:
    """Run what is missing of a table and write it down."""
    return run_tables([table], choices, folder, how, progress)


def run_tables(
    tables: Sequence[str | Table], choices: Choices, folder: Path, how: How = How(), progress: Progress = QUIET
) -> Done:
    """Run what is missing of some tables, seed by seed, and write them down."""
    if not (how.run or how.write):
        raise UserError("--run-only and --write-only leave nothing to do. Give one of them at most.")
    found = [find_table(table) if isinstance(table, str) else table for table in tables]
    jobs = _jobs(found, how.only, choices)
    results = Results(folder)
    try:
        if how.run:
            place = Place(folder, how.workers, max(1, torch.get_num_threads() // how.workers), how.keep_models)
            _run_missing(jobs, results, place, how.minutes, progress)
    finally:  # also where somebody stops it
        targets = [folder / folder_name(table, choices) for table in found if how.write]
        summaries = [summarise(table, choices, results) for table in found if how.write]
        for summary, target in zip(summaries, targets, strict=True):
            write(summary, target)
    for table, summary, target in zip(found, summaries, targets, strict=False):
        if table.figure is not None and any(row["seeds"] for row in summary["rows"]):
            draw(summary, table.figure, target, progress)
    known = results.by_key()
    failed = [known[job.key] for job in jobs if job.key in known and not good(known[job.key])]
    return Done(tuple(targets), tuple(summaries), tuple(failed))


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, a machine that asks the command to end (SIGTERM) is heard as somebody at the keyboard is"""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def plan_tables(tables: Sequence[str], choices: Choices, folder: Path, only: Sequence[str]) -> list[Planned]:
    """What running these tables would take, row by row; nothing is run."""
    found = [find_table(name) for name in tables]
    return plan(found, pick(found, only), choices, Results(folder))


def pick(tables: Sequence[Table], only: Sequence[str]) -> dict[str, list[Row]]:
    """The rows of each table that are asked for; all where none is named."""
    names = {table.name: [row.name for row in table.rows] for table in tables}
    for pattern in only:
        if not any(_asked(table, row, [pattern]) for table, rows in names.items() for row in rows):
            known = [row for rows in names.values() for row in rows]
            one = f"Table '{tables[0].name}' has" if len(tables) == 1 else "These tables have"
            raise UserError(f"{one} no row '{pattern}'.{nearest(pattern, known)} Rows: {', '.join(known)}.")
    return {table.name: [row for row in table.rows if not only or _asked(table.name, row.name, only)] for table in tables}


def _asked(table: str, row: str, patterns: Sequence[str]) -> bool:
    """Whether a row is meant: by its name, by TABLE/ROW, or one of its tasks by TABLE/ROW/TASK"""
    shortened = ["/".join(pattern.split("/")[:2]) for pattern in patterns]
    return any(fnmatch(row, pattern) or fnmatch(f"{table}/{row}", pattern) for pattern in shortened)


def _part_asked(job: Job, table: str, patterns: Sequence[str]) -> bool:
    """Whether a row's task is meant, where it trains its tasks apart"""
    mine = [pattern for pattern in patterns if _asked(table, job.row, [pattern])]
    parts = [pattern.split("/")[2] if pattern.count("/") > 1 else "*" for pattern in mine]
    return not patterns or any(fnmatch(job.part, part) for part in parts)


def _jobs(tables: Sequence[Table], only: Sequence[str], choices: Choices) -> list[Job]:
    """Every run once, the first seed of every row before the second of any: stopped early, no row lacks numbers"""
    rows, trained = pick(tables, only), [table for table in tables if not table.counted]
    wanted = [(table.name, job) for table in trained for job in jobs_of(table, rows[table.name], choices)]
    found = [job for table, job in wanted if _part_asked(job, table, only)]
    once = {job.key: job for job in reversed(found)}
    return sorted((job for job in found if once.get(job.key) is job), key=lambda job: job.seed)


def folder_name(table: Table, choices: Choices) -> str:
    """The folder of a table: one for each encoder and each way to reduce it."""
    name = next(iter(recipes_of(table.rows[0], choices).values())).encoder
    parts = [table.name, encoder_facts(name)["name"]]
    if choices.reduced:
        parts += ["reduced", *(f"{key}-{value:g}" for key, value in choices.reduced.items() if key != "set")]
        parts += [digest(choices.changes)[:6]] if choices.changes else []
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts))


def _run_missing(jobs: Sequence[Job], results: Results, place: Place, minutes: float | None, progress: Progress) -> None:
    """Jobs without a good result, those that failed before among them; and those whose model is wanted and gone."""
    known = results.by_key()
    bare = [job for job in jobs if place.keep_models and good(known.get(job.key)) and not place.has_model(job.key)]
    for job in bare:  # from the start, with the code as it is now
        shutil.rmtree(place.run_folder(job.key), ignore_errors=True)
    missing = [job for job in jobs if not good(known.get(job.key)) or job in bare]
    total, done = len(jobs), len(jobs) - len(missing)
    if not missing:
        return
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

        with shared_gpu(place.workers) as why:
            if why is not None:
                progress.note(why)
            rest = run_jobs(missing, place, ended, Clock() if minutes is None else Clock(minutes, steps_of))
        if rest:
            progress.note(f"time is up: {len(rest)} runs are left for the same command to do")


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
