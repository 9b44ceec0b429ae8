"""How many numbers a recipe's model has, by part: counted on the parameters themselves, and as a paper counted them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from teabert.config import Recipe
from teabert.encoder import Encoder, EncoderShape
from teabert.heads import Head
from teabert.heads.attending import TaskAttention
from teabert.injections.pertask import PerTask
from teabert.model import Model, assemble


@dataclass(frozen=True)
class TaskCount:
    """What belongs to one task."""

    task: str
    injection: int
    """of the injection, this task's alone"""
    head: int
    """of its head; a shared one is counted for each task"""
    table: int
    """of its head as Table 2 of Task-specific attention counts: weights without biases, layer norms and feed-forward, four
    square matrices for a self-attention layer and five for a cross-attention layer, bare or not"""

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


@dataclass(frozen=True)
class Counts:
    """A model's numbers."""

    encoder: int
    injection: int
    """of all tasks, and what they share"""
    heads: int
    """each once"""
    tasks: list[TaskCount]

    @property
    def total(self) -> int:
        """All of them"""
        return self.encoder + self.injection + self.heads

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        parts = {"encoder": self.encoder, "injection": self.injection, "heads": self.heads, "total": self.total}
        return parts | {"tasks": [task.as_json() for task in self.tasks]}


def count(recipe: Recipe, shape: EncoderShape) -> Counts:
    """The numbers of a recipe's model on an encoder of this shape; nothing is allocated."""
    with torch.device("meta"):
        model = assemble(recipe, Encoder(shape))
    owned = _owned(model)
    tasks = [
        TaskCount(name, owned[name], _sum(model.head(name).parameters()), by_table(model.head(name), shape, task.sequences))
        for name, task in recipe.tasks.items()
    ]
    encoder, injection, heads = (_sum(part.parameters()) for part in (model.encoder, model.injection, model.heads))
    return Counts(encoder, injection, heads, tasks)


def by_table(head: Head, shape: EncoderShape, sequences: int) -> int:
    """A head's numbers as Table 2 of Task-specific attention counts them."""
    layers = len(head.reader.layers) if isinstance(head.reader, TaskAttention) else 0
    matrices = 5 if sequences == 2 else 4
    answer = _sum(parameter for parameter in head.answer.parameters() if parameter.ndim == 2)
    return layers * matrices * shape.width**2 + answer


def _owned(model: Model) -> dict[str, int]:
    """What of the injection is each task's own"""
    tables = [module for module in model.injection.modules() if isinstance(module, PerTask)]
    return {task: sum(table[task].numel() for table in tables) for task in model.tasks}


def _sum(parameters: Iterable[Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters)
