"""How alike the tasks are inside the model: cosines between their own parts of the injection, whole and layer by layer."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from teabert.injections import Injection
from teabert.injections.several import Several
from teabert.model import Model


@dataclass(frozen=True)
class Similarity:
    """Cosines; not-a-number where one of the two is zero throughout."""

    tasks: tuple[str, ...]
    whole: list[list[float]]
    """of each task's numbers, taken as one vector, with each other's"""
    sizes: list[float]
    """lengths of these vectors"""
    layers: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """of each pair: (layer, cosine), where the layers have numbers of their own"""


def similarity(model: Model) -> Similarity | None:
    """Of all tasks of a model; nothing where there is one task, or no numbers of the tasks' own."""
    parts = {task: own_parts(model, task) for task in model.tasks}
    if len(parts) < 2 or not all(parts.values()):
        return None
    vectors = {task: torch.cat([part.flatten() for part in mine.values()]) for task, mine in parts.items()}
    whole = [[cosine(mine, other) for other in vectors.values()] for mine in vectors.values()]
    by_layer = {task: dict(layers_of(model.injection, mine)) for task, mine in parts.items()}
    layers: dict[str, list[tuple[float, float]]] = {
        f"{one}/{other}": [(layer, cosine(vector, by_layer[other][layer])) for layer, vector in by_layer[one].items()]
        for one, other in combinations(parts, 2)
    }
    sizes = [float(vector.norm()) for vector in vectors.values()]
    return Similarity(tuple(parts), whole, sizes, {pair: points for pair, points in layers.items() if len(points) > 1})


def own_parts(model: Model, task: str) -> dict[str, Tensor]:
    """A task's own numbers in the injection, by what they are"""
    owned = {name: tensor for name, tensor in model.owned(task).items() if name.startswith("injection.")}
    return {name.removesuffix(f".{task}"): tensor.detach().double().cpu() for name, tensor in owned.items()}


def layers_of(injection: Injection, parts: dict[str, Tensor]) -> Iterator[tuple[int, Tensor]]:
    """Each conditioned layer, and a task's numbers there as one vector; several methods' side by side"""
    methods = {"injection": injection}
    if isinstance(injection, Several):
        methods = {
            f"injection.methods.{name}": each for name, each in zip(injection.methods, injection.each(), strict=True)
        }
    found: dict[int, list[Tensor]] = {}
    for name, part in parts.items():
        span = next(method.span for prefix, method in methods.items() if name.startswith(f"{prefix}."))
        apart = not span.shared and len(part) == span.rows  # a method may also have one vector for all layers
        for layer in span.layers if apart else ():
            found.setdefault(layer, []).append(part[span.row(layer)].flatten())
    for layer in sorted(found):
        yield layer, torch.cat(found[layer])


def cosine(one: Tensor, other: Tensor) -> float:
    """Of two vectors; not-a-number where one has no direction"""
    return float(one @ other / (one.norm() * other.norm()))
