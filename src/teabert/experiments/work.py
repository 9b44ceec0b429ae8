"""One job: train it, or go on with it, in its run folder; judge its best model on dev; say in one record what came out."""

import gc
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from teabert.config import Recipe, parse_recipe
from teabert.counting import count
from teabert.dataset import Examples, read_examples, tokenise
from teabert.device import pick_device
from teabert.encoder import Encoder, EncoderShape
from teabert.errors import UserError
from teabert.evaluation import judge, outputs
from teabert.experiments.jobs import Job, parse_tasks
from teabert.experiments.remembering import remembered_split, remembering_text
from teabert.experiments.results import Record, Results
from teabert.model import Model, assemble
from teabert.origins import run_shape
from teabert.progress import Quiet
from teabert.runs import Run, unbegun
from teabert.source import Source
from teabert.tasks.reading import Example
from teabert.text import TextEncoder
from teabert.training import Trainer

KEPT = ("recipe.yaml", "run.json", "scores.json", "log.jsonl", "subsets.json")
"""What stays of a run when its model is not kept."""
PATIENCE = 30
"""Checkpoints take at most about one part in so many of a run's time."""
FIT_ROWS = 1000
"""So many training rows of each task are judged, to see how much better they are known than dev."""


@dataclass(frozen=True)
class Place:
    """Where jobs are done, and how."""

    folder: Path
    workers: int = 1
    threads: int = 1
    keep_models: bool = False
    checkpoint_seconds: float = 60.0
    """A run is saved to go on from only so often: a checkpoint of a large encoder takes seconds, many runs are short."""

    def run_folder(self, key: str) -> Path:
        """The run folder of a job"""
        return self.folder / "runs" / key

    def has_model(self, key: str) -> bool:
        """Whether a job's model is still there"""
        return (self.run_folder(key) / "best").is_dir()


def work(job: Job, place: Place) -> Record:
    """Do a job; what goes wrong with it is its result."""
    torch.set_num_threads(place.threads)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        return describe(job, place) | do(job, place)
    except UserError as error:
        return failure(job, place, str(error))
    except (MemoryError, torch.OutOfMemoryError) as error:
        return failure(job, place, f"out of memory: {(str(error) or type(error).__name__).splitlines()[0]}")
    except Exception as error:  # anything at all: the other jobs go on
        return failure(job, place, f"{type(error).__name__}: {error}")
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def describe(job: Job, place: Place) -> Record:
    """Whose result a line is"""
    names = {"key": job.key, "what": job.what, "table": job.table, "row": job.row, "part": job.part, "seed": job.seed}
    more = {"reduced": job.reduced, "encoder": job.encoder, "data": job.data, "workers": place.workers}
    recipe = job.recipe | {"encoder": job.encoder["name"], "data": None}  # no folder of this machine
    return names | more | {"ended": datetime.now(UTC).isoformat(timespec="seconds"), "recipe": recipe}


def failure(job: Job, place: Place, message: str) -> Record:
    """What is kept of a job that failed"""
    return describe(job, place) | {"error": message.replace(f"{place.folder}/", "")}


def do(job: Job, place: Place) -> Record:
    """Train and judge."""
    folder = place.run_folder(job.key)
    recipe = parse_recipe(job.recipe, f"{job.table} {job.row}")
    Sparing.every = place.checkpoint_seconds
    fresh = unbegun(folder)
    trainer = Sparing.begin(recipe, folder, Quiet()) if fresh else Sparing.resume(folder, Quiet(), recipe)
    run = trainer.run_all()
    memory = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else None
    if place.keep_models:
        trainer.write_best()
    judged = Judged(trainer, recipe, parse_tasks(job.judged))
    found = judged.dev()
    Results(place.folder).save_predictions(job.key, found.predictions, found.labels, judged.test())
    best = run.scores()
    facts = run.facts()
    counts = count(recipe, run_shape(run)).as_json()
    return {
        "scores": found.scores,
        "rows": {"train": found.trained, "dev": {task: len(labels) for task, labels in found.labels.items()}},
        "fit": judged.fit(),
        "collapsed": found.collapsed,
        "epoch": best["epoch"],
        "seconds": run.seconds,
        "speed": found.speed,
        "memory": memory,
        "parameters": {part: counts[part] for part in ("encoder", "injection", "heads", "total")},
        "precision": run.recipe.train.precision,
        "commit": facts["commit"],
        "machine": {key: facts[key] for key in ("processor", "gpu", "torch", "python", "threads", "teabert")},
    }


class Sparing(Trainer):
    """The training loop that writes little: rows and texts are read once for all runs of a process, the best weights stay
    in memory, and a checkpoint is made, with them beside it, only where some time has gone by since the last."""

    every: ClassVar[float]
    """seconds; the same for all runs of a process"""
    saved, dear = 0.0, 0.0
    """when the last checkpoint was made, and how many seconds it took"""
    best: dict[str, Tensor] | None = None
    """the best epoch's weights; nothing where only the run folder has them"""
    unwritten: Mapping[str, Any] | None = None
    """what they scored, as long as they are nowhere else"""

    @staticmethod
    def read(recipe: Recipe) -> Examples:
        """The rows of all tasks"""
        return read_examples(recipe, remembered_split)

    @staticmethod
    def load_text(folder: Path, shape: EncoderShape) -> TextEncoder:
        """The encoder's tokenizer"""
        return remembering_text(folder, shape.longest, shape.vocabulary)

    def run_all(self) -> Run:
        """Train to the end."""
        self.saved = time.monotonic()
        return super().run_all()

    def save_best(self, record: Mapping[str, Any]) -> None:
        """Keep the weights as they are now."""
        self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        self.unwritten = dict(record)

    def load_best(self) -> dict[str, Tensor]:
        """The weights of the best epoch"""
        return self.run.load_best() if self.best is None else self.best

    def write_best(self) -> None:
        """Write them to the run folder, if they are not there."""
        if self.best is not None and self.unwritten is not None:
            self.run.save_best(self.best, self.unwritten)
            self.unwritten = None

    def checkpoint(self) -> None:
        """Save all that going on needs, if it is time and there is more to do."""
        begun = time.monotonic()
        if begun - self.saved >= max(self.every, PATIENCE * self.dear) and not self.place.finished:
            self.write_best()
            super().checkpoint()
            self.saved = time.monotonic()
            self.dear = self.saved - begun


@dataclass(frozen=True)
class Found:
    """What a run's best model says of dev."""

    scores: dict[str, dict[str, float]]
    predictions: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    collapsed: list[str]
    trained: dict[str, int]
    speed: float
    """examples answered in a second"""


class Judged:
    """A run's best model, with heads that never learned for the tasks that it is only judged on."""

    def __init__(self, trainer: Sparing, recipe: Recipe, others: Mapping[str, Any]) -> None:
        self.precision, self.text, self.examples = trainer.recipe.train.precision, trainer.text, trainer.examples
        self.whole = recipe.model_copy(update={"tasks": {**recipe.tasks, **others}})
        self.model = _best_model(trainer, self.whole, set(others))

    def dev(self) -> Found:
        """On all dev rows."""
        data, tasks = self.whole.data, self.whole.tasks
        source = self.source({name: remembered_split(task, "dev", data).examples for name, task in tasks.items()})
        begun = time.perf_counter()
        found = outputs(self.model, source, self.precision)
        seconds = time.perf_counter() - begun
        labels = {name: rows.labels for name, rows in source.rows.items()}
        scores = judge(tasks, found, labels)
        return Found(
            scores.tasks,
            {name: tasks[name].meaning.decide(mine) for name, mine in found.items()},
            {name: tasks[name].meaning.truth(mine) for name, mine in labels.items()},
            list(scores.collapsed),
            {name: len(mine) for name, mine in self.examples.train.items()},
            sum(map(len, labels.values())) / seconds,
        )

    def test(self) -> dict[str, np.ndarray]:
        """What it says of the course's unlabelled test rows, where they are at hand"""
        examples = {}
        for name, task in self.whole.tasks.items():
            if task.course_column and name in self.examples.train:
                with suppress(UserError):
                    examples[name] = remembered_split(task, "test", self.whole.data).examples
        found = outputs(self.model, self.source(examples), self.precision) if examples else {}
        return {name: self.whole.tasks[name].meaning.decide(mine) for name, mine in found.items()}

    def fit(self) -> dict[str, dict[str, float]]:
        """The scores on some of the rows that it learned from."""
        some = {name: mine[:: -(-len(mine) // FIT_ROWS)] for name, mine in self.examples.train.items()}
        source = self.source(some)
        labels = {name: rows.labels for name, rows in source.rows.items()}
        return judge(self.whole.tasks, outputs(self.model, source, self.precision), labels).tasks

    def source(self, examples: Mapping[str, list[Example]]) -> Source:
        """Tokenised rows, the tasks numbered as in the model"""
        rows, _ = tokenise(self.text, self.whole.tasks, examples)
        return Source(rows, self.model.tasks)


def _best_model(trainer: Sparing, recipe: Recipe, others: set[str]) -> Model:
    """The model with its best weights; heads of the other tasks as the seed makes them."""
    if not others:
        trainer.model.load_state_dict(trainer.load_best())
        return trainer.model
    torch.manual_seed(recipe.train.seed)
    model = assemble(recipe, Encoder(run_shape(trainer.run)))
    missing, unknown = model.load_state_dict(trainer.load_best(), strict=False)
    lacking = [name for name in missing if name.split(".")[1] not in others]
    assert not [*lacking, *unknown], f"{trainer.run.path}: weights do not fit: {lacking}, {unknown}"
    return model.to(pick_device()).eval().requires_grad_(False)


def tidy(place: Place, key: str) -> None:
    """Delete what a finished run no longer needs: its checkpoints; its model too, unless models are kept."""
    folder = place.run_folder(key)
    unneeded = (
        [folder / "checkpoints"] if place.keep_models else [path for path in folder.iterdir() if path.name not in KEPT]
    )
    for path in unneeded:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
