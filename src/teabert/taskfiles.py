"""A task in a file of its own: its part of the injection and its head, to be added to the model it was trained on.

The file knows that model by the checksum of all that tasks share, and holds a probe: made-up texts and what the old tasks
answered to them before it was added. It is safetensors: numbers and text, no code.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from teabert.batches import Batch, Rows, collate
from teabert.errors import UserError, unknown
from teabert.injections import Injections, make_injection
from teabert.model import Model, Use, build_head
from teabert.settings import parse
from teabert.tasks import Task

if TYPE_CHECKING:
    from teabert.predictor import Predictor

FORMAT = 1
FOLDER = "tasks"
"""Where a run folder keeps its added tasks"""
ENDING = ".task.safetensors"
KEY = "teabert-task"
PROBES = (5, 9, 17)
"""Lengths of the made-up sequences, for each task"""
NEAR = 1e-3
"""How far answers to the probe may lie apart where the hardware or torch differs from when they were taken"""


@dataclass(frozen=True)
class TaskFile:
    """A task, its weights, and how to know the model it belongs to."""

    task: Task
    injection: Injections
    foundation: str
    """checksum of what tasks share in the model it was trained on"""
    weights: dict[str, Tensor]
    probe: dict[str, Tensor]
    """each old task's answers to the probe before this task was added"""
    probed: dict[str, Any]
    """where they were computed"""
    facts: dict[str, Any]
    """scores and how it was trained, for the record"""

    def save(self, path: Path) -> None:
        """Write the file in one step."""
        from safetensors.torch import save

        content = {
            "format": FORMAT,
            "task": self.task.model_dump(mode="json"),
            "injection": self.injection,
            "foundation": self.foundation,
            "probed": self.probed,
            "facts": self.facts,
        }
        tensors = {f"weights/{name}": tensor.detach().cpu().contiguous() for name, tensor in self.weights.items()}
        tensors |= {f"probe/{name}": tensor.cpu().contiguous() for name, tensor in self.probe.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        working = path.with_name(f".unfinished-{path.name}")
        working.write_bytes(save(tensors, {KEY: json.dumps(content)}))
        working.replace(path)

    @classmethod
    def load(cls, path: Path) -> "TaskFile":
        """Read a file; anything else is refused in words."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                content = json.loads((file.metadata() or {}).get(KEY, "null"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        except FileNotFoundError:
            raise UserError(f"There is no task file {path}.") from None
        except (SafetensorError, OSError, ValueError, RecursionError) as error:
            raise UserError(f"{path} is damaged or no task file: {error}.") from None
        wanted = {"task": dict, "foundation": str, "probed": dict, "facts": dict, "format": int}
        if not isinstance(content, dict) or not all(isinstance(content.get(key), kind) for key, kind in wanted.items()):
            raise UserError(f"{path} is no task file: it lacks what teabert add-task writes.")
        if content["format"] > FORMAT:
            raise UserError(f"{path} was written by a newer teabert. Update with: pip install -U teabert")
        task = parse(Task, content["task"], f"{path}: task")
        weights, probe = (_below(tensors, prefix) for prefix in ("weights/", "probe/"))
        rest = (
            content.get("injection", "none"),
            content["foundation"],
            weights,
            probe,
            content["probed"],
            content["facts"],
        )
        return cls(task, *rest)


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def files_of(run: Path) -> list[Path]:
    """The added tasks of a run, oldest first."""
    return sorted((run / FOLDER).glob(f"*{ENDING}"), key=lambda path: (path.stat().st_mtime_ns, path.name))


def foundation(model: Model) -> str:
    """The checksum of all weights that no task owns."""
    owned = model.owned(*model.tasks)
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if name not in owned:
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy())
    return digest.hexdigest()


# the probe


def probe(model: Model, tasks: Mapping[str, Task]) -> dict[str, Tensor]:
    """What tasks answer to the same made-up texts, in one mixed batch, in full precision."""
    training = model.training
    model.eval()
    with torch.inference_mode(), torch.autocast(model.device.type, enabled=False):
        answers = model(_probe_batch(model, tasks).to(model.device))
    model.train(training)
    return {name: answers[name].cpu() for name in tasks}


def _probe_batch(model: Model, tasks: Mapping[str, Task]) -> Batch:
    draw, shape = np.random.default_rng(0), model.encoder.shape
    sizes = [min(size, shape.longest) for size in PROBES]
    rows = []
    for name, task in tasks.items():
        ids = [[draw.integers(0, shape.vocabulary, size) for size in sizes] for _ in range(task.sequences)]
        labels = np.zeros(len(sizes), np.float32)
        rows.append(Rows(name, tuple(ids), None, labels, ("",) * len(sizes)))
    return collate([(mine, row) for mine in rows for row in range(len(mine))], model.tasks)


def probe_facts(model: Model) -> dict[str, Any]:
    """What the last bits of an answer depend on."""
    from teabert.runs import machine_facts

    known = machine_facts()
    return {"device": model.device.type} | {key: known[key] for key in ("torch", "processor", "threads", "gpu")}


def check_probe(model: Model, tasks: Mapping[str, Task], file: TaskFile) -> None:
    """The old tasks must answer as before the task was added: to the bit on the same machine, else nearly."""
    old = {name: task for name, task in tasks.items() if name in file.probe}
    if not old:
        return
    exact = file.probed == probe_facts(model)
    for name, found in probe(model, old).items():
        wanted = file.probe[name]
        same = torch.equal(found, wanted) if exact and len(old) == len(file.probe) else _near(found, wanted)
        if not same:
            raise UserError(
                f"With task '{file.task.name}' added, '{name}' no longer answers as it did before"
                f" (by up to {(found - wanted).abs().max().item():.2g}). Remove the task, and train it anew on this model."
            )


def _near(found: Tensor, wanted: Tensor) -> bool:
    return found.shape == wanted.shape and bool(((found - wanted).abs() <= NEAR * (1 + wanted.abs())).all())


# adding and removing


def attach(predictor: "Predictor", file: TaskFile, place: str) -> None:
    """Give a model one more task; it answers as before where the file does not fit it."""
    task, model = file.task, predictor.model
    if task.name in predictor.tasks:
        raise UserError(
            f"{place}: the model already has a task '{task.name}'. Remove that one first, or give another name."
        )
    if file.foundation != foundation(model):
        raise UserError(
            f"{place}: task '{task.name}' was trained on another encoder than this model's (the checksum differs)."
            " Train it on this one with: teabert add-task"
        )
    tasks = predictor.tasks | {task.name: task}
    made = _rebuilt(model, predictor.run.recipe.injection, tasks)
    wanted = made.owned(task.name)
    if wanted.keys() != file.weights.keys() or any(wanted[name].shape != file.weights[name].shape for name in wanted):
        raise UserError(f"{place}: the weights of task '{task.name}' do not fit this model's injection and its own head.")
    made.load_state_dict(file.weights, strict=False)
    check_probe(made, tasks, file)
    predictor.model, predictor.tasks = made, tasks


def detach(predictor: "Predictor", name: str) -> None:
    """Take an added task away."""
    if name not in predictor.tasks:
        raise unknown("task", name, predictor.tasks)
    if name in predictor.run.recipe.tasks:
        raise UserError(f"'{name}' is a task that the run was trained on; only added tasks can be removed.")
    tasks = {each: task for each, task in predictor.tasks.items() if each != name}
    predictor.model, predictor.tasks = _rebuilt(predictor.model, predictor.run.recipe.injection, tasks), tasks


def _rebuilt(model: Model, injection: Injections, tasks: Mapping[str, Task]) -> Model:
    """The same model for other tasks: encoder and heads are the very same, the injection a copy with their parts."""
    uses = {name: model.uses.get(name) or Use.of(task) for name, task in tasks.items()}
    heads = {
        use.head: model.heads[use.head] if use.head in model.heads else build_head(tasks[name], model.encoder)
        for name, use in uses.items()
    }
    made = Model(model.encoder, make_injection(injection, model.encoder.shape, tuple(tasks)), heads, uses)  # type: ignore[arg-type]
    made.injection.load_state_dict(model.injection.state_dict(), strict=False)
    return made.to(model.device).eval().requires_grad_(False)
