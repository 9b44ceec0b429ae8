"""The demo: make the synthetic corpus, train one model on its three tasks, print it beside a TF-IDF baseline."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from teabert.baseline import tfidf_predictions
from teabert.config import find_recipe, load_recipe
from teabert.corpus import write_corpus
from teabert.evaluation import judge_predictions
from teabert.hub import cache_folder
from teabert.predictor import Answer, Predictor, load
from teabert.progress import Progress, Quiet
from teabert.runs import Run
from teabert.tasks import Task
from teabert.tasks.reading import Example, read_split
from teabert.training import train


@dataclass(frozen=True)
class Sample:
    """A dev row, what the model answers, and the label it was given."""

    task: str
    texts: tuple[str, ...]
    answer: Answer
    label: str


@dataclass(frozen=True)
class Demo:
    """What the demo shows."""

    run: Run
    seconds: float
    """spent training"""
    metrics: dict[str, str]
    """each task's first metric"""
    baseline: dict[str, float]
    ours: dict[str, float]
    samples: list[Sample]
    """the first dev row of each task: not chosen"""


def run_demo(out: Path | None = None, changes: Sequence[str] = (), progress: Progress | None = None) -> Demo:
    """Everything `teabert demo` does but print."""
    progress = progress or Quiet()
    data = cache_folder() / "demo-corpus"
    write_corpus(data)
    recipe = load_recipe(find_recipe("demo"), [*changes, f"data={os.path.abspath(data)}"])
    baseline = baseline_scores(recipe.tasks, str(data), progress)
    run = train(recipe, out, progress=progress)
    predictor = load(run.path)
    samples = [first_row(predictor, task) for task in recipe.tasks.values()]
    scores = run.scores()["tasks"]
    metrics = {name: task.all_metrics[0] for name, task in recipe.tasks.items()}
    ours = {name: float(scores[name][metric]) for name, metric in metrics.items()}
    return Demo(run, run.seconds, metrics, baseline, ours, samples)


def first_row(predictor: Predictor, task: Task) -> Sample:
    """The first dev row of a task."""
    example = predictor.read_split(task, "dev", Quiet())[0]
    assert isinstance(example.label, float), "the demo's tasks have one label a row"
    label = f"{example.label:g}" if task.kind == "score" else task.labels[int(example.label)]
    return Sample(task.name, example.texts, predictor.answer(task, [example])[0], label)


def baseline_scores(tasks: Mapping[str, Task], data: str, progress: Progress) -> dict[str, float]:
    """TF-IDF and logistic regression (ridge for scores) on the same rows, judged by the same metric."""
    scores = {}
    with progress.bar("TF-IDF baseline", len(tasks)) as advance:
        for name, task in tasks.items():
            rows = [read_split(task, split, data).examples for split in ("train", "dev")]
            labels = [np.array([example.label for example in mine]) for mine in rows]
            predictions = tfidf_predictions(task.kind, _texts(rows[0]), labels[0], _texts(rows[1]))
            scores[name] = judge_predictions(task, predictions, labels[1])[task.all_metrics[0]]
            advance(1)
    return scores


def _texts(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    return [example.texts for example in examples]
