"""What a table costs before anything runs: the steps of its runs, and which are there and which are missing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from teabert.config import Recipe, parse_recipe
from teabert.dataset import how_many
from teabert.experiments.base import Row, Table
from teabert.experiments.jobs import Choices, Job, jobs_of
from teabert.experiments.remembering import remembered_split
from teabert.experiments.results import Record, Results, good
from teabert.sampling import largest_remainder, planned

TITLES = ("row", "learns", "done", "steps a run", "missing")
TOKENS_OF_ROW = 32
"""Where batches are counted in tokens, a row is taken to have so many."""


@dataclass(frozen=True)
class Planned:
    """One row of a table."""

    table: str
    row: str
    learns: str
    """everything, or only what is added to an encoder that stays as it is, which may be read only once"""
    runs: int
    done: int
    failed: int
    missing: int
    """runs to be done, the failed ones among them"""
    steps: int
    """of one run of each of its parts"""
    steps_missing: int
    """of the missing runs that no row before it needs too"""

    def cells(self) -> list[str]:
        """A line of a table under TITLES"""
        done = f"{self.done} of {self.runs}" + (f", {self.failed} failed" if self.failed else "")
        return [f"{self.table}/{self.row}", self.learns, done, f"{self.steps:,}", f"{self.steps_missing:,}"]

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def plan(tables: Sequence[Table], rows: Mapping[str, Sequence[Row]], choices: Choices, results: Results) -> list[Planned]:
    """Each row, in the tables' order; of counted tables nothing."""
    known, seen = results.by_key(), set[str]()
    trained = [(table, row) for table in tables if not table.counted for row in rows[table.name]]
    return [_planned(table, row.name, jobs_of(table, [row], choices), known, seen) for table, row in trained]


def _planned(table: Table, row: str, jobs: Sequence[Job], known: Mapping[str, Record], seen: set[str]) -> Planned:
    """One row; what rows before it need too is theirs"""
    missing = [job for job in jobs if not good(known.get(job.key))]
    failed = [job for job in missing if job.key in known]
    mine = [job for job in missing if job.key not in seen]
    seen |= {job.key for job in jobs}
    first = [job for job in jobs if job.seed == jobs[0].seed]
    return Planned(
        table.name,
        row,
        learns(parse_recipe(jobs[0].recipe, row)),
        len(jobs),
        len(jobs) - len(missing),
        len(failed),
        len(missing),
        sum(steps_of(job) for job in first),
        sum(steps_of(job) for job in mine),
    )


def learns(recipe: Recipe) -> str:
    """What a recipe trains, in words"""
    if recipe.train.mode == "finetune":
        return "all"
    if recipe.injection not in ("none", {"method": "none"}):
        return "injection, heads"
    return "heads" if recipe.train.encoder_dropout else "heads, read once"


def steps_of(job: Job) -> int:
    """How many steps a run takes to its last epoch"""
    recipe = parse_recipe(job.recipe, job.row)
    available = {name: len(remembered_split(task, "train", recipe.data).examples) for name, task in recipe.tasks.items()}
    sizes = {name: how_many(task, available[name]) for name, task in recipe.tasks.items()}
    return steps(recipe, sizes)


def steps(recipe: Recipe, sizes: Mapping[str, int]) -> int:
    """The same for so many training rows"""
    sampling, epochs = recipe.sampling, recipe.train.epochs
    batch = sampling.batch if sampling.tokens is None else max(1, sampling.tokens // TOKENS_OF_ROW)
    total = 0
    for epoch in range(epochs):
        counts = largest_remainder(planned(sizes, sampling, epoch, epochs))
        parts = [sum(counts.values())] if sampling.mixed else counts.values()
        batches = sum(math.ceil(part / batch) for part in parts)
        total += math.ceil(batches / recipe.train.accumulate)
    return total
