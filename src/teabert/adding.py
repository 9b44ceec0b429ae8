"""Train one more task on a model that is there: everything it shares stays as it is, to the bit; out comes a task file."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from teabert.config import Recipe, apply_change, parse_recipe, read_yaml
from teabert.errors import UserError
from teabert.predictor import Predictor, load
from teabert.progress import Progress, Quiet
from teabert.runs import Run, unbegun
from teabert.taskfiles import ENDING, FOLDER, TaskFile, attach, detach, foundation, probe, probe_facts
from teabert.training import Trainer

SETTINGS = {"mode": "frozen", "epochs": 5, "lr": 1e-3, "schedule": "linear", "warmup": 0.1}
"""How a task is trained unless its file says otherwise: few numbers learn fast."""
KEYS = ("tasks", "data", "sampling", "train", "name")


def add_task(
    run: str | Path, given: str | Path | Mapping[str, Any], changes: Sequence[str] = (), progress: Progress | None = None
) -> Path:
    """Train the one task of a file (or mapping) on a run's model and keep it in the run; a task file is only checked.

    Killed and begun again with the same file, it goes on where it was.
    """
    progress = progress or Quiet()
    predictor = load(run)
    if not isinstance(given, Mapping) and str(given).endswith(ENDING):
        return keep(predictor, TaskFile.load(Path(given)), str(given))
    recipe = _recipe(predictor, given, changes)
    (task,) = recipe.tasks.values()
    working = predictor.run.path / "adding" / task.name
    if unbegun(working):
        trained = Trainer.begin(recipe, working, progress).run_all()
    else:
        trained = Trainer.resume(working, progress, recipe).run_all()
    path = keep(predictor, _file(predictor, trained, task.name), task.name)
    shutil.rmtree(working.parent, ignore_errors=True)
    return path


def remove_task(run: str | Path, name: str) -> None:
    """Take an added task out of a run."""
    predictor = load(run)
    detach(predictor, name)
    _path(predictor, name).unlink()


def keep(predictor: Predictor, file: TaskFile, place: str) -> Path:
    """Check a task file against a model, and put it into its run."""
    attach(predictor, file, place)
    path = _path(predictor, file.task.name)
    file.save(path)
    return path


def _path(predictor: Predictor, name: str) -> Path:
    return predictor.run.path / FOLDER / f"{name}{ENDING}"


def _recipe(predictor: Predictor, given: str | Path | Mapping[str, Any], changes: Sequence[str]) -> Recipe:
    """The recipe that trains the task: the file's, on the run as its base"""
    where = "the task" if isinstance(given, Mapping) else str(given)
    facts = dict(given) if isinstance(given, Mapping) else read_yaml(Path(given).expanduser())
    for change in changes:
        apply_change(facts, change)
    if "tasks" not in facts:
        raise UserError(f"{where} must hold 'tasks:' with one task, as in a recipe, and may hold data, sampling and train.")
    wrong = [key for key in facts if key not in KEYS]
    if wrong:
        raise UserError(f"{where}: {', '.join(wrong)} comes from the run. A task's file may hold {', '.join(KEYS)}.")
    run = predictor.run
    train = facts.get("train") or {}
    facts["train"] = SETTINGS | dict(train) if isinstance(train, Mapping) else train
    facts |= {"base": str(run.path.resolve()), "encoder": run.recipe.encoder, "injection": run.recipe.injection}
    if isinstance(given, Mapping):
        facts.setdefault("data", run.recipe.data)
    folder = None if isinstance(given, Mapping) else Path(given).expanduser().parent  # its files are beside it
    recipe = parse_recipe(facts, where, folder)
    if len(recipe.tasks) != 1 or recipe.train.mode != "frozen":
        raise UserError(
            f"{where} must name exactly one task, and leave train.mode at frozen: nothing the tasks share moves."
        )
    (task,) = recipe.tasks.values()
    if task.name in predictor.tasks:
        raise UserError(f"{run.path} already has a task '{task.name}'. It has: {', '.join(predictor.tasks)}.")
    if task.head.share is not None:
        raise UserError(f"{where}: tasks.{task.name}.head.share: an added task has a head of its own.")
    return recipe


def _file(predictor: Predictor, trained: Run, name: str) -> TaskFile:
    """The task file of a finished training run"""
    alone = load(trained.path, device=predictor.model.device.type)
    scores = trained.scores()
    facts = {"scores": scores, "seed": alone.run.recipe.train.seed, "teabert": trained.facts().get("teabert")}
    return TaskFile(
        task=alone.tasks[name],
        injection=predictor.run.recipe.injection,
        foundation=foundation(predictor.model),
        weights=alone.model.owned(name),
        probe=probe(predictor.model, predictor.tasks),
        probed=probe_facts(predictor.model),
        facts=facts,
    )
