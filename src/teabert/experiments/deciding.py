"""One test of a claim against the runs of one encoder: a difference by paired bootstrap and seeds, or a plain number."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from teabert.experiments import TABLES
from teabert.experiments.base import Row
from teabert.experiments.bootstrap import Term, by_seed, interval
from teabert.experiments.claims import Between, Claim, Difference, Test
from teabert.experiments.columns import value
from teabert.experiments.comparing import same_rows, term
from teabert.experiments.jobs import digest_of_recipe, judged_of, recipes_of
from teabert.experiments.results import Record, Results
from teabert.experiments.summary import counted
from teabert.shapes import BERT_BASE

Answer = Literal["holds", "does not hold", "undecided"]
LEAST_SEEDS = 2


class Undecided(Exception):
    """Why a test cannot be decided, in words."""


@dataclass(frozen=True)
class Outcome:
    """What one test found."""

    test: str
    answer: Answer
    reason: str = ""
    found: float | None = None
    bound: list[float] = field(default_factory=list)
    low: float | None = None
    """of the middle 95 % of the bootstrap's draws"""
    high: float | None = None
    seeds: list[float] = field(default_factory=list)
    """the same for each seed"""


class Runs:
    """The runs of one encoder."""

    def __init__(self, records: Sequence[Record], results: Results) -> None:
        self.results = results
        self.encoder: dict[str, str] | None = records[0]["encoder"] if records else None
        self.found: dict[str, list[Record]] = {}
        for record in records:
            self.found.setdefault(record["what"], []).append(record)

    def outcome(self, claim: Claim, test: Test) -> Outcome:
        """Of one test"""
        try:
            self.check_same_data(claim, rows_of(test))
            return self.difference(claim, test) if isinstance(test, Difference) else self.between(claim, test)
        except Undecided as why:
            return Outcome(described(test), "undecided", str(why))

    # differences

    def difference(self, claim: Claim, test: Difference) -> Outcome:
        """Paired bootstrap over dev rows, and whether the seeds agree."""
        terms = self.terms(claim, test)
        seeds = by_seed(terms)
        low, high = interval(terms)
        answer, reason = judged(seeds, low, high, test.above)
        return Outcome(described(test), answer, reason, fmean(seeds), [test.above], low, high, seeds)

    def terms(self, claim: Claim, test: Difference) -> list[Term]:
        """The test's terms over the seeds that all its rows have"""
        parts: list[tuple[float, str, dict[int, Record]]] = []
        for weight, name, column in test.terms:
            tasks = self.tasks_of(claim, name) if column == "mean" else [column]
            parts += [(weight / len(tasks), task, self.of_task(claim, name, task)) for task in tasks]
        seeds = sorted(set.intersection(*(set(records) for _, _, records in parts)))
        if not seeds:
            raise Undecided("no seed has all rows that it takes")
        found = [term(weight, task, [records[seed] for seed in seeds], self.results) for weight, task, records in parts]
        terms = [each for each in found if each is not None]
        if len(terms) < len(found) or not same_rows(terms):
            raise Undecided("the predictions on dev, row by row, were not kept for all runs, or not of the same rows")
        return terms

    def tasks_of(self, claim: Claim, name: str) -> list[str]:
        """The tasks that a row is judged on"""
        return [task for records in self.parts(claim, name) for task in records[0]["scores"]]

    def of_task(self, claim: Claim, name: str, task: str) -> dict[int, Record]:
        """A row's records with a score on a task, by seed"""
        return {each["seed"]: each for records in self.parts(claim, name) for each in records if task in each["scores"]}

    def parts(self, claim: Claim, name: str) -> list[list[Record]]:
        """For each part of a row its records, one a seed"""
        found = [self.found.get(what, []) for what in whats(TABLES[claim.table].row(name))]
        if not all(found):
            raise Undecided(f"row {name} of {claim.table} has not been run")
        return found

    def check_same_data(self, claim: Claim, names: Collection[str]) -> None:
        """Runs of the same tasks say something of each other where they read the same files"""
        if TABLES[claim.table].counted:
            return
        data: dict[tuple[str, ...], str] = {}
        for record in (each for name in names for records in self.parts(claim, name) for each in records):
            if data.setdefault(tuple(sorted(record["scores"])), record["data"]) != record["data"]:
                raise Undecided("the runs are on different data files")

    # plain numbers

    def between(self, claim: Claim, test: Between) -> Outcome:
        """A count, or a measured number of every seed."""
        if TABLES[claim.table].counted:
            values = [counted_value(claim, test)]
            answer, reason = inside(values, test), ""
        else:
            values = self.measured(claim, test)
            answer, reason = inside(values, test), "" if len(values) >= LEAST_SEEDS else _few(values)
        return Outcome(
            described(test),
            "undecided" if reason else answer,
            reason or ("" if answer != "undecided" else "seeds disagree"),
            fmean(values),
            [test.low, test.high],
            seeds=values,
        )

    def measured(self, claim: Claim, test: Between) -> list[float]:
        """The number, or ratio, of every seed"""
        mine, under = self.by_seed(claim, test.row), self.by_seed(claim, test.under) if test.under else {}
        seeds = sorted(mine.keys() & under.keys() if test.under else mine.keys())
        used = [record for each in (mine, under) for seed in seeds if seed in each for record in each[seed]]
        if test.column == "seconds":
            check_comparable(used)
        found = [value(test.column, mine[seed]) for seed in seeds]
        base = [value(test.column, under[seed]) if test.under else 1.0 for seed in seeds]
        known = [a / b for a, b in zip(found, base, strict=True) if a is not None and b]
        if not known:
            raise Undecided("no seed has all rows that it takes")
        return known

    def by_seed(self, claim: Claim, name: str) -> dict[int, list[Record]]:
        """A row's records, one for each part, for each seed that has all of them"""
        parts = [{record["seed"]: record for record in records} for records in self.parts(claim, name)]
        return {seed: [part[seed] for part in parts] for seed in parts[0] if all(seed in part for part in parts)}


def rows_of(test: Test) -> list[str]:
    """The rows that decide a test"""
    if isinstance(test, Between):
        return [name for name in (test.row, test.under) if name]
    return list(dict.fromkeys(name for _, name, _ in test.terms))


def whats(row: Row) -> list[str]:
    """The digests of a row's recipes"""
    return [digest_of_recipe(recipe, judged_of(row, recipe)) for recipe in recipes_of(row).values()]


def counted_value(claim: Claim, test: Between) -> float:
    """A number of a counted table, at BERT-base's size"""
    table = TABLES[claim.table]
    mine, under = (
        counted(recipes_of(table.row(name))[""], BERT_BASE)[test.column] if name else 1.0 for name in (test.row, test.under)
    )
    return mine / under


def check_comparable(records: Sequence[Record]) -> None:
    """Times say something where one run at a time had the same machine to itself."""
    if any(record["workers"] > 1 for record in records):
        raise Undecided("several runs were done at once, so their times say little; run these rows with --workers 1")
    machines = {(record["machine"]["processor"], record["machine"]["gpu"]) for record in records}
    if len(machines) > 1:
        raise Undecided("the runs were done on different machines")


def judged(seeds: Sequence[float], low: float, high: float, above: float) -> tuple[Answer, str]:
    """The interval and the seeds against the bound."""
    if len(seeds) < LEAST_SEEDS:
        return "undecided", _few(seeds)
    if low > above and min(seeds) > above:
        return "holds", ""
    if high < above and max(seeds) < above:
        return "does not hold", ""
    apart = min(seeds) <= above <= max(seeds)
    return "undecided", "seeds disagree" if apart else "chance on these dev rows is not ruled out"


def inside(values: Sequence[float], test: Between) -> Answer:
    """All between the two ends, or none"""
    within = [test.low <= each <= test.high for each in values]
    return "holds" if all(within) else "undecided" if any(within) else "does not hold"


def described(test: Test) -> str:
    """A test in words"""
    if isinstance(test, Between):
        of = f"{test.row} / {test.under}" if test.under else test.row
        return f"{test.column} of {of} from {test.low:,g} to {test.high:,g}"
    parts = [f"{_weight(weight)} {row}[{column}]" for weight, row, column in test.terms]
    return f"{' '.join(parts)} > {test.above:g}"


def _weight(weight: float) -> str:
    size = "" if abs(weight) == 1 else f" {abs(weight):.3g}"
    return f"{'-' if weight < 0 else '+'}{size}"


def _few(values: Sequence[float]) -> str:
    return f"{len(values)} seed only; at least {LEAST_SEEDS} are needed"
