"""Records -> terms of a difference: their kept dev predictions, row by row, the same seeds on both sides."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from teabert.experiments.bootstrap import Term, by_seed, interval
from teabert.experiments.columns import main_scores
from teabert.experiments.results import Record, Results


def term(weight: float, task: str, records: Sequence[Record], results: Results) -> Term | None:
    """A term over one record a seed; nothing where predictions were not kept or are not of the same rows."""
    kept = [results.predictions(record["key"], task) for record in records]
    found = [each for each in kept if each is not None]
    if len(found) < len(kept) or any(not np.array_equal(labels, found[0][1]) for _, labels in found):
        return None
    return Term(weight, task, main_scores(records[:1])[task][0], found[0][1], [predictions for predictions, _ in found])


def same_rows(terms: Sequence[Term]) -> bool:
    """Whether terms on the same task are on the same dev rows"""
    first = {each.task: each.labels for each in reversed(terms)}
    return all(np.array_equal(each.labels, first[each.task]) for each in terms)


def of_task(records: Sequence[Record], task: str) -> dict[int, Record]:
    """The records with a score on a task, by seed"""
    return {record["seed"]: record for record in records if task in record["scores"]}


def losers(mine: Sequence[Record], theirs: Sequence[Record], results: Results) -> dict[str, Mapping[str, float]]:
    """The tasks on which one row's runs are below another's beyond chance: the whole interval, and every seed."""
    found: dict[str, Mapping[str, float]] = {}
    for task in dict.fromkeys(task for record in mine for task in record["scores"]):
        ours, base = of_task(mine, task), of_task(theirs, task)
        seeds = sorted(ours.keys() & base.keys())
        if not seeds:
            continue
        sides = [
            term(weight, task, [records[seed] for seed in seeds], results)
            for weight, records in ((1.0, ours), (-1.0, base))
        ]
        terms = [side for side in sides if side is not None]
        if len(terms) == 2 and same_rows(terms):
            (low, high), each = interval(terms), by_seed(terms)
            if high < 0 and max(each) < 0:
                found[task] = {"difference": fmean(each), "low": low, "high": high}
    return found
