"""Records -> a table: mean and deviation over seeds, where every number comes from, what failed and what is missing."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from teabert.config import Recipe
from teabert.counting import count
from teabert.encoder import EncoderShape
from teabert.experiments.base import Row, Table
from teabert.experiments.columns import MEASURES, main_scores, value
from teabert.experiments.comparing import losers
from teabert.experiments.jobs import Choices, Job, jobs_of, recipes_of
from teabert.experiments.notes import notes_on
from teabert.experiments.results import Record, Results, good
from teabert.shapes import encoder_shape

Summary = dict[str, Any]
"""What table.json holds."""


def summarise(table: Table, choices: Choices, results: Results) -> Summary:
    """The table as it stands: what has been run so far."""
    if table.counted:
        rows = [counted_row(row, table, choices) for row in table.rows]
        return _whole(table, choices, rows, [])
    known = results.by_key()
    jobs = {row.name: jobs_of(table, [row], choices) for row in table.rows}
    rows = [summarise_row(row, table, jobs[row.name], known) for row in table.rows]
    _relate_times(table, rows)
    done = {name: [known[job.key] for job in mine if good(known.get(job.key))] for name, mine in jobs.items()}
    lost = _say_who_loses(table, rows, done, results)
    said = notes_on([record for mine in done.values() for record in mine])
    return _whole(table, choices, rows, [*same_runs(jobs), *said, *lost]) | {"said": said}


def _whole(table: Table, choices: Choices, rows: list[dict[str, Any]], notes: Iterable[str]) -> Summary:
    title = f"{table.title} - REDUCED ({choices.in_words()})" if choices.reduced else table.title
    scores = [column for column in table.columns if table.counted or column not in MEASURES]
    metrics = {column: row["metrics"][column] for row in rows for column in scores if column in row["metrics"]}
    for row in rows:
        row["reduced"] = choices.reduced
    return {
        "name": table.name,
        "title": title,
        "reduced": choices.reduced,
        "columns": scores,
        "measures": [column for column in table.columns if column not in scores],
        "metrics": metrics,
        "counted": table.counted,
        "rows": rows,
        "notes": [*table.notes, *notes],
    }


def same_runs(jobs: Mapping[str, Sequence[Job]]) -> list[str]:
    """Which rows are one and the same, in words: their recipes differ in nothing that a run could feel."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, mine in jobs.items():
        rows.setdefault(tuple(job.key for job in mine), []).append(name)
    alike = [" and ".join(names) for names in rows.values() if len(names) > 1]
    return [f"The same runs, done once: {'; '.join(alike)}."] if alike else []


def summarise_row(row: Row, table: Table, jobs: Sequence[Job], known: Mapping[str, Record]) -> dict[str, Any]:
    """One row."""
    by_seed: dict[int, list[Job]] = {}
    for job in jobs:
        by_seed.setdefault(job.seed, []).append(job)
    whole = [[known[job.key] for job in mine] for mine in by_seed.values() if all(good(known.get(job.key)) for job in mine)]
    failed = [known[job.key] for job in jobs if job.key in known and not good(known[job.key])]
    cells = {column: found for column in table.columns if (found := cell(column, whole))}
    scores = main_scores(whole[0]) if whole else {}
    return {
        "name": row.name,
        "group": row.group or row.name,
        "series": row.series,
        "x": row.x if row.x is not None else cells.get("rows", {}).get("mean"),
        "seeds": [records[0]["seed"] for records in whole],
        "scores": {column: found for column, found in cells.items() if column not in MEASURES},
        "measures": {column: found for column, found in cells.items() if column in MEASURES},
        "metrics": {task: metric for task, (metric, _) in scores.items()},
        "paper": dict(row.paper),
        "runs": [trace(record) for records in whole for record in records],
        "seconds": statistics.fmean(value("seconds", records) or 0.0 for records in whole) if whole else None,
        "collapsed": sorted({task for records in whole for record in records for task in record["collapsed"]}),
        "error": _in_words(failed),
        "missing": sum(not good(known.get(job.key)) for job in jobs) - len(failed),
    }


def cell(column: str, seeds: Sequence[Sequence[Record]]) -> dict[str, Any] | None:
    """One number over the seeds, and the runs that it comes from; nothing where it is not known."""
    found = [(value(column, records), records) for records in seeds]
    known = [(each, records) for each, records in found if each is not None and math.isfinite(each)]
    if not known:
        return None
    of_task = [[record for record in records if column in record["scores"]] or records for _, records in known]
    keys = [record["key"] for records in of_task for record in records]
    return {**spread([each for each, _ in known]), "runs": keys}


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean and standard deviation over seeds."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "deviation": deviation, "values": list(values)}


def trace(record: Record) -> dict[str, Any]:
    """Where a run's numbers come from."""
    names = (
        "key",
        "table",
        "row",
        "part",
        "seed",
        "commit",
        "precision",
        "seconds",
        "epoch",
        "workers",
        "ended",
        "reduced",
    )
    machine = record["machine"]
    hardware = machine["gpu"] or machine["processor"]
    return {name: record[name] for name in names} | {"encoder": record["encoder"], "hardware": hardware}


def _in_words(failed: Sequence[Record]) -> str | None:
    parts = {
        f"{record['part'] + ' ' if record['part'] else ''}seed {record['seed']}: {record['error']}" for record in failed
    }
    return "; ".join(sorted(parts)) or None


def _relate_times(table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Training time over that of the row that it is related to, seed by seed."""
    if "ratio" not in table.columns:
        return
    by_name = {row["name"]: row for row in rows}
    for row in rows:
        other = by_name.get(table.row(row["name"]).against or table.against)
        mine, theirs = (each and each["measures"].get("seconds") for each in (row, other))
        if mine and theirs:
            base = dict(zip(other["seeds"], theirs["values"], strict=True)) if other else {}
            pairs = zip(row["seeds"], mine["values"], strict=True)
            ratios = [seconds / base[seed] for seed, seconds in pairs if base.get(seed)]
            row["measures"] |= {"ratio": {**spread(ratios), "runs": mine["runs"]}} if ratios else {}


# counted tables


def counted_row(row: Row, table: Table, choices: Choices) -> dict[str, Any]:
    """A row whose numbers are counted on the model; nothing is trained."""
    recipe = recipes_of(row, choices)[""]
    numbers = counted(recipe, encoder_shape(recipe.encoder, progress=False))
    scores = {column: spread([numbers[column]]) for column in table.columns}
    plain = {"name": row.name, "group": row.group or row.name, "series": row.series, "x": row.x, "paper": dict(row.paper)}
    return plain | {
        "seeds": [],
        "scores": scores,
        "measures": {},
        "metrics": {},
        "runs": [],
        "seconds": None,
        "collapsed": [],
        "error": None,
        "missing": 0,
    }


def counted(recipe: Recipe, shape: EncoderShape) -> dict[str, float]:
    """The columns of counted tables."""
    found = count(recipe, shape)
    numbers: dict[str, float] = {task.task: task.table for task in found.tasks}
    numbers |= {f"{task.task}-true": task.head for task in found.tasks}
    return numbers | {"injection": found.injection, "percent": 100 * found.injection / found.encoder}


# sharing


def _say_who_loses(
    table: Table, rows: Sequence[dict[str, Any]], done: Mapping[str, Sequence[Record]], results: Results
) -> list[str]:
    """Where a table compares shared models with tasks trained apart: the tasks that lose by sharing, for each row."""
    if not table.against or not table.row(table.against).apart or all(row.apart for row in table.rows):
        return []
    notes = []
    for row in rows:
        if row["name"] == table.against or not row["seeds"]:
            continue
        row["loses"] = losers(done[row["name"]], done[table.against], results)
        named = ", ".join(f"{task} ({facts['difference']:+.3f})" for task, facts in row["loses"].items())
        notes.append(f"{row['name']} loses against {table.against}, beyond chance, on {named or 'no task'}.")
    return notes
