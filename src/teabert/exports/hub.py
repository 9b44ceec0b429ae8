"""A folder ready for the hub: the run without its checkpoints, its log and this machine's paths, and a model card.

`teabert.load` opens it as it opens the run. No row of a data set is in it.
"""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from teabert.calibration import FILE as CALIBRATION
from teabert.catalogue import ENCODERS
from teabert.config import Recipe, to_yaml
from teabert.exports.asked import Asked, Written
from teabert.exports.card import Judged, Story, card
from teabert.exports.folders import write_json
from teabert.predictor import Predictor
from teabert.runs import shape_file
from teabert.taskfiles import FOLDER, TaskFile, files_of
from teabert.tasks import Task
from teabert.text import TOKENIZER_FILE

KEPT = ("scores.json", TOKENIZER_FILE, CALIBRATION)
MACHINE = ("processor", "threads", "gpu")
"""Of run.json: facts about a machine that nobody else has."""


def write(asked: Asked, folder: Path) -> Written:
    """Recipe, facts, scores, tokenizer, weights, added tasks, card."""
    run = asked.predictor.run
    recipe = portable(run.recipe)
    (folder / "recipe.yaml").write_text(to_yaml(recipe), encoding="utf-8")
    facts = {key: value for key, value in run.facts().items() if key not in MACHINE}
    facts["encoder"] = dict(facts.get("encoder", {})) | {"name": recipe.encoder}
    write_json(folder / "run.json", facts)
    shutil.copyfile(shape_file(run), folder / shape_file(run).name)
    for name in KEPT:
        if (run.path / name).is_file():
            shutil.copyfile(run.path / name, folder / name)
    shutil.copytree(run.path / "best", folder / "best")
    added = {path.name: TaskFile.load(path) for path in files_of(run.path)}
    for name, file in added.items():
        replace(file, task=portable_task(file.task)).save(folder / FOLDER / name)
    (folder / "README.md").write_text(card(_story(asked.predictor, recipe, facts, added.values())), encoding="utf-8")
    advice = "read README.md first: licence and data are its publisher's to state"
    return Written([f"upload it with: hf upload YOU/{recipe.name} FOLDER", advice])


def _story(predictor: Predictor, recipe: Recipe, facts: Mapping[str, Any], added: Iterable[TaskFile]) -> Story:
    found, seed = predictor.run.scores(), recipe.train.seed
    judged = [(found, name, seed) for name in recipe.tasks]
    judged += [(file.facts["scores"], file.task.name, file.facts["seed"]) for file in added]
    return Story(
        model=predictor.model,
        recipe=recipe,
        tasks={name: portable_task(task) for name, task in predictor.tasks.items()},
        facts=facts,
        judged=[
            Judged(name, scores["rows"][name], seed, scores["tasks"][name])
            for scores, name, seed in judged
            if name in scores.get("rows", {})
        ],
        collapsed=[name for scores, name, _ in judged if name in scores.get("collapsed", [])],
    )


def portable(recipe: Recipe) -> Recipe:
    """The recipe without the paths of this machine."""
    tasks = {name: portable_task(task) for name, task in recipe.tasks.items()}
    known = {"data": None, "base": recipe.base and PurePath(recipe.base).name, "encoder": encoder_name(recipe.encoder)}
    return recipe.model_copy(update={"tasks": tasks} | known)


def portable_task(task: Task) -> Task:
    """The task without the paths of this machine."""
    extra = {name: each.model_copy(update={"rows": _portable_rows(each.rows)}) for name, each in task.extra.items()}
    return task.model_copy(update={"files": _without_folders(task.files), "extra": extra})


def _portable_rows(rows: dict[str, Any]) -> dict[str, Any]:
    return rows | {"files": _without_folders(rows["files"])} if "files" in rows else rows


def _without_folders(files: Any) -> Any:
    """Of a path, or one for each split, the file's name where it is somewhere on this machine"""
    if not isinstance(files, str):
        return {split: _without_folders(file) for split, file in files.items()}
    return PurePath(files).name if PurePath(files).is_absolute() or files.startswith("~") else files


def encoder_name(encoder: str) -> str:
    """A known name or hub id as it is, a local folder by its last part"""
    known = encoder in ENCODERS or (encoder.count("/") <= 1 and not encoder.startswith((".", "/", "~")))
    return encoder if known and not Path(encoder).expanduser().exists() else PurePath(encoder).name
