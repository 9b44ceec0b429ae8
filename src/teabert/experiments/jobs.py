"""Rows -> jobs: every training that a table needs, each known by a digest of what its result depends on.

Two tables that need the same training share it; folder names count for nothing, the files' contents for everything.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from safetensors import safe_open

from teabert.config import Recipe, apply_change, parse_recipe
from teabert.errors import UserError
from teabert.experiments.base import Row, Table, given_recipe
from teabert.files import known_sha256
from teabert.hub import encoder_folder
from teabert.optim import felt_decay
from teabert.pretrained import read_weights
from teabert.tasks import Task
from teabert.tasks.hubrows import PREFIX
from teabert.tasks.reading import locate

OWN_OPTIONS = {"encoder": "--encoder", "train.seed": "--seeds", "train.epochs": "--epochs"}
"""Keys that the table's own options set."""
UNFELT = ("name", "encoder", "base", "data")
"""Of a recipe, what says only where things are: their contents are known by checksum."""
UNFELT_OF_TASK = ("name", "files", "source", "course_column", "course_name", "shares_rows_with")


@dataclass(frozen=True)
class Choices:
    """What a table is run with."""

    encoder: str | None = None
    """by default the recipe's"""
    seeds: int = 3
    epochs: int | None = None
    rows: float | None = None
    """this part of every task's training rows"""
    changes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rows is not None and not 0 < self.rows <= 1:
            raise UserError(
                f"--rows {self.rows:g} is not a part of the rows. Give a number above 0, at most 1, such as 0.1."
            )
        for change in self.changes:
            key = change.partition("=")[0]
            if key in OWN_OPTIONS:
                raise UserError(f"--set {change!r}: give {key} with {OWN_OPTIONS[key]}, so that the table knows of it.")

    @property
    def reduced(self) -> dict[str, Any]:
        """How the runs differ from those of the full table; empty where they do not"""
        given = {"epochs": self.epochs, "rows": self.rows, "set": list(self.changes)}
        return {key: value for key, value in given.items() if value}

    def in_words(self) -> str:
        """The same for a title"""
        parts = {"epochs": f"epochs: {self.epochs}", "rows": f"rows: {self.rows}", "set": ", ".join(self.changes)}
        return "; ".join(parts[key] for key in self.reduced)


@dataclass(frozen=True)
class Job:
    """One training, and what is to be known of it."""

    key: str
    """digest of all that its result depends on"""
    what: str
    """digest of the recipe alone, without its seed"""
    table: str
    row: str
    part: str
    """the task that is trained alone; empty for the tasks together"""
    seed: int
    recipe: dict[str, Any]
    judged: dict[str, Any]
    """further tasks to judge, as a recipe has them"""
    encoder: dict[str, str]
    data: str
    """digest of the rows' files"""
    reduced: dict[str, Any] = field(default_factory=dict)


def jobs_of(table: Table, rows: Sequence[Row], choices: Choices) -> list[Job]:
    """Every training that these rows need, each once."""
    found: dict[str, Job] = {}
    for row in rows:
        for part, recipe in recipes_of(row, choices).items():
            for number in range(choices.seeds):
                job = make_job(table.name, row, part, recipe, number, choices)
                found.setdefault(job.key, job)
    return list(found.values())


def recipes_of(row: Row, choices: Choices = Choices()) -> dict[str, Recipe]:
    """A row's recipes: one, or where it trains its tasks apart one for each, by the task's name."""
    given = row.mapping()
    if choices.encoder is not None:
        given["encoder"] = choices.encoder
    known = parse_recipe(given, row.name).tasks
    for change in choices.changes:
        if names_other_task(change, known):
            continue
        apply_change(given, change)
    if choices.epochs is not None:
        apply_change(given, f"train.epochs={choices.epochs}")
    if choices.rows is not None:
        for name, task in parse_recipe(given, row.name).tasks.items():
            apply_change(given, f"tasks.{name}.take={part_of(task, choices.rows)}")
    whole = parse_recipe(given, row.name)
    if not row.apart:
        return {"": whole}
    return {name: parse_recipe(given | {"tasks": {name: given_task(given, name)}}, row.name) for name in whole.tasks}


def names_other_task(change: str, tasks: Mapping[str, Task]) -> bool:
    """Whether a change is about a task that the recipe does not have."""
    path = change.partition("=")[0].split(".")
    return path[0] == "tasks" and len(path) > 1 and path[1] not in tasks


def given_task(given: Mapping[str, Any], name: str) -> Any:
    """What a mapping says of a task"""
    tasks = given["tasks"]
    return tasks[name] if isinstance(tasks, Mapping) else None


def part_of(task: Task, part: float) -> int | float:
    """This part of what the task trains on."""
    if isinstance(task.take, int):
        return max(2, round(part * task.take))
    return part * (task.take or 1.0)


def judged_of(row: Row, recipe: Recipe) -> dict[str, Any]:
    """The tasks that a row judges without learning them"""
    if row.judged is None:
        return {}
    others = parse_recipe(given_recipe(row.judged), row.name).tasks
    return {name: task.model_dump(mode="json") for name, task in others.items() if name not in recipe.tasks}


def make_job(table: str, row: Row, part: str, recipe: Recipe, number: int, choices: Choices) -> Job:
    """The job of a recipe and the number of a seed."""
    seed, judged = recipe.train.seed + number, judged_of(row, recipe)
    what, encoder = digest_of_recipe(recipe, judged), encoder_facts(recipe.encoder)
    data = data_digest([*recipe.tasks.values(), *parse_tasks(judged).values()], recipe.data)
    key = digest([what, seed, encoder["sha256"], data])
    given = recipe.model_dump(mode="json") | {"name": key}
    given["train"]["seed"] = seed
    return Job(key, what, table, row.name, part, seed, given, judged, encoder, data, choices.reduced)


def parse_tasks(judged: Mapping[str, Any]) -> dict[str, Task]:
    """Tasks from what a job says of them"""
    return {name: Task.model_validate(facts) for name, facts in judged.items()}


def digest_of_recipe(recipe: Recipe, judged: Mapping[str, Any]) -> str:
    """Of all that a recipe says, but for its seed, where things are, and a weight decay that changes nothing."""
    facts = recipe.model_dump(mode="json")
    felt = {key: value for key, value in facts.items() if key not in UNFELT}
    felt["tasks"] = {name: _felt(task) for name, task in facts["tasks"].items()}
    felt["train"] = {key: value for key, value in facts["train"].items() if key != "seed"}
    felt["train"]["weight_decay"] = felt_decay(recipe.lr, recipe.train.weight_decay)
    return digest([felt, {name: _felt(task) for name, task in judged.items()}])


def _felt(task: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in task.items() if key not in UNFELT_OF_TASK}


def digest(facts: Any) -> str:
    """A short name for some facts"""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


@cache
def encoder_facts(name: str) -> dict[str, str]:
    """An encoder's short name, the checksum of its weights, and the precision they came in; fetched if need be."""
    folder = encoder_folder(name, progress=False)
    weights = folder / "model.safetensors"
    weights = weights if weights.exists() else folder / "pytorch_model.bin"
    short = Path(name).name if Path(name).exists() else name.split("/")[-1]
    return {"name": short, "sha256": known_sha256(weights), "weights": " and ".join(sorted(precisions(folder)))}


def precisions(folder: Path) -> set[str]:
    """The precisions of an encoder's weights, such as F32 or float32."""
    weights = folder / "model.safetensors"
    if not weights.exists():
        found = {str(tensor.dtype).removeprefix("torch.") for tensor in read_weights(folder).values()}
    else:
        with safe_open(weights, "pt") as opened:
            found = {opened.get_slice(name).get_dtype() for name in opened.keys()}  # noqa: SIM118
    return {each for each in found if "F" in each.upper()}  # old files also hold whole numbers


def data_digest(tasks: Sequence[Task], data: str | None) -> str:
    """Of the contents of the files that these tasks train on and are judged on; of a hub data set its name."""
    sums: dict[str, str] = {}
    for task in tasks:
        for split in ("train", "dev"):
            place = task.file(split) or ""
            sums[f"{task.name} {split}"] = place if place.startswith(PREFIX) else known_sha256(locate(task, split, data))
    return digest(sums)
