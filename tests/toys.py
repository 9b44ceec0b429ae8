"""A small table over the tiny world, and made-up results of it."""

import numpy as np

import tiny
from teabert.experiments.base import Figure, Row, Table
from teabert.experiments.jobs import digest_of_recipe, judged_of, recipes_of
from teabert.metrics import METRICS

TASKS = ("mood", "same", "near")
COLUMNS = (*TASKS, "mean", "course", "seconds", "ratio", "parameters", "memory", "speed", "rows", "gap")
ENCODER = {"name": "bert-base-uncased", "sha256": "0" * 64, "weights": "F32"}


def toy(world, **train) -> Table:
    """Tasks apart and together, one task with the others judged, and one row that fails"""
    base = tiny.recipe(world, **train)
    alone = base | {"tasks": {"mood": base["tasks"]["mood"]}}
    rows = (
        Row("separate", base, apart=True),
        Row("shared", base, ("injection=input",), paper={"mood": 0.4, "mean": 0.3}),
        Row("mood-only", alone, judged=base),
        Row("exploding", base, ("train.lr=1e30",)),
    )
    return Table("toy", "A toy", rows, COLUMNS, Figure("dots", (*TASKS, "mean")), ("A note.",), against="separate")


def write_results(results, table, right, encoder=ENCODER, seeds=2, rows=60, **facts):
    """Records of a table's rows without training: the part of dev rows that each row has right, by seed"""
    draw = np.random.default_rng(0)
    for row in table.rows:
        if row.name not in right:
            continue
        for part, recipe in recipes_of(row).items():
            for seed in range(seeds):
                share = right[row.name][seed]
                predictions, labels = {}, {}
                for name, task in recipe.tasks.items():
                    truth = np.arange(rows) % 2 if task.kind != "score" else np.linspace(0, 5, rows)
                    wrong = np.arange(rows) >= round(share * rows)
                    noisy = 1 - truth if task.kind != "score" else draw.permutation(truth)
                    labels[name], predictions[name] = truth, np.where(wrong, noisy, truth)
                key = f"{row.name}-{part}-{seed}-{encoder['name']}"
                results.save_predictions(key, predictions, labels)
                scores = {
                    name: {metric: METRICS[metric](predictions[name], labels[name])}
                    for name, task in recipe.tasks.items()
                    for metric in task.all_metrics[:1]
                }
                what = digest_of_recipe(recipe, judged_of(row, recipe))
                record = {"key": key, "what": what, "row": row.name, "part": part, "seed": seed, "scores": scores}
                counts = dict.fromkeys(scores, rows)
                record |= {"encoder": encoder, "data": "d", "workers": 1, "seconds": 10.0, "fit": scores}
                record |= {"rows": {"train": counts, "dev": counts}, "machine": {"processor": "p", "gpu": None}}
                results.add(record | facts)
