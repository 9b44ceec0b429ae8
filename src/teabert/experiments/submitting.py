"""A row's kept answers to the course's unlabelled test rows -> the course's prediction files, without the model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from teabert.answers import Answer, course_lines
from teabert.errors import UserError
from teabert.experiments import find_table
from teabert.experiments.base import Row, Table
from teabert.experiments.columns import value
from teabert.experiments.jobs import Choices, jobs_of, recipes_of
from teabert.experiments.remembering import remembered_split
from teabert.experiments.results import Record, Results, good
from teabert.files import write_json, write_text
from teabert.tasks import Task

ABOUT = "predictions.json"
"""Says beside the files which run answered."""


def submit(name: str, choices: Choices, folder: Path, target: Path) -> list[Path]:
    """The prediction files of TABLE/ROW, or of a TABLE's best row by its mean score on dev: of its best seed."""
    table = find_table(name.partition("/")[0])
    rows = [row for row in table.rows if name in (table.name, f"{table.name}/{row.name}")]
    if not rows:
        known = ", ".join(row.name for row in table.rows)
        raise UserError(f"Table '{table.name}' has no row '{name.partition('/')[2]}'. Rows: {known}.")
    results = Results(folder)
    row, runs = _best(table, rows, choices, results)
    written, about = [], []
    for record in runs:
        answers = results.answers(record["key"]) or {}
        recipe = recipes_of(row, choices)[record["part"]]
        for task in recipe.tasks.values():
            if not task.course_column or f"{task.name}.test" not in answers:
                continue
            found = _answers(task, recipe.data, answers[f"{task.name}.test"])
            written.append(target / f"{task.course_name}-test-output.csv")
            write_text(written[-1], "".join(course_lines(task, found)))
            facts = {"file": written[-1].name, "task": task.name, "table": table.name, "row": row.name}
            names = ("key", "seed", "commit", "encoder", "precision", "scores")
            about.append(facts | {key: record[key] for key in names if key in record})
    if not written:
        raise UserError(f"{folder}: the runs of {table.name}/{row.name} kept no answers to test rows. Run them anew.")
    write_json(target / ABOUT, about)
    return [*written, target / ABOUT]


def _best(table: Table, rows: Sequence[Row], choices: Choices, results: Results) -> tuple[Row, list[Record]]:
    """The row with the best mean over its seeds, and the runs of its best seed"""
    known, found = results.by_key(), []
    for row in rows:
        by_seed: dict[int, list[str]] = {}
        for job in jobs_of(table, [row], choices):
            by_seed.setdefault(job.seed, []).append(job.key)
        whole = [[known[key] for key in keys] for keys in by_seed.values() if all(good(known.get(key)) for key in keys)]
        scored = [(value("mean", records) or 0.0, records) for records in whole]
        if scored:
            best = max(scored, key=lambda each: each[0])[1]
            found.append((float(np.mean([score for score, _ in scored])), row, best))
    if not found:
        raise UserError(f"{results.folder} holds no whole run of these rows. Run them first: teabert table {table.name}")
    _, row, runs = max(found, key=lambda each: each[0])
    return row, runs


def _answers(task: Task, data: str | None, values: np.ndarray) -> list[Answer]:
    """Kept numbers as answers to the rows of the test file"""
    examples = remembered_split(task, "test", data).examples
    if len(examples) != len(values):
        raise UserError(f"Task '{task.name}': {len(values)} test rows were answered, the file has {len(examples)} now.")
    scores = [(None, float(each)) if task.kind == "score" else (task.labels[int(each)], None) for each in values]
    pairs = zip(scores, examples, strict=True)
    return [Answer(task.name, label, score, None, {}, row.name) for (label, score), row in pairs]
