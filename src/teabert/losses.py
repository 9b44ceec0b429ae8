"""Per-example losses: a task's outputs and labels in, one loss per example out. LOSSES is the one list."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from teabert.methods import Choice, resolve
from teabert.settings import Settings


def cross_entropy(outputs: Tensor, labels: Tensor, smooth: float = 0.0) -> Tensor:
    """outputs: (examples, labels) logits; labels: (examples,)"""
    return F.cross_entropy(outputs, labels.long(), reduction="none", label_smoothing=smooth)


class Smoothing(Settings):
    """Options of cross_entropy."""

    smooth: float = Field(0.0, ge=0, lt=1)
    """This part of every label is spread evenly over all labels."""


def near_cross_entropy(outputs: Tensor, labels: Tensor, sharpness: float = 1.0) -> Tensor:
    """For labels in order: a label stands for its neighbours too, by exp(-sharpness * distance ** 2).

    outputs: (examples, labels) logits; labels: (examples,). Diaz and Marathe 2019.
    """
    steps = torch.arange(outputs.shape[-1], device=outputs.device) - labels.unsqueeze(-1)
    return soft_cross_entropy(outputs, (-sharpness * steps.to(outputs.dtype).square()).softmax(-1))


class Nearness(Settings):
    """Options of near_cross_entropy."""

    sharpness: float = Field(1.0, gt=0)
    """The higher, the less the neighbours get: at 1 the next label stands for 0.37 of the given one, at 3 for 0.05."""


def soft_cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """outputs: (examples, labels) logits; labels: (examples, labels), how likely each is"""
    return F.cross_entropy(outputs, labels.to(outputs.dtype), reduction="none")


def cross_entropy_twice(outputs: Tensor, labels: Tensor) -> Tensor:
    """Task-specific attention's published code took the softmax twice; here to measure what that costs."""
    return F.cross_entropy(outputs.softmax(-1), labels.long(), reduction="none")


def squared_earth_mover(outputs: Tensor, labels: Tensor) -> Tensor:
    """For labels in order: squared distance of the cumulative distributions, so that a near miss costs little.

    outputs: (examples, labels) logits; labels: (examples,), or (examples, labels). Hou, Yu and Samaras 2016.
    """
    wanted = labels if labels.ndim == 2 else F.one_hot(labels.long(), outputs.shape[-1])
    return (outputs.softmax(-1) - wanted.to(outputs.dtype)).cumsum(-1).square().sum(-1)


def cumulative(outputs: Tensor, labels: Tensor) -> Tensor:
    """For labels in order: one yes-or-no question for each threshold, is the label above it.

    outputs: (examples, labels - 1) logits; labels: (examples,). Frank and Hall 2001; with coral, Cao et al. 2020.
    """
    thresholds = torch.arange(outputs.shape[-1], device=outputs.device)
    above = (labels.unsqueeze(-1) > thresholds).to(outputs.dtype)
    return F.binary_cross_entropy_with_logits(outputs, above, reduction="none").sum(-1)


def binary_cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """outputs: (examples, labels) logits; labels: (examples,) or (examples, labels), 0 or 1"""
    return F.binary_cross_entropy_with_logits(outputs, labels.view_as(outputs), reduction="none").mean(-1)


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """outputs: (examples, 1); labels: (examples,)"""
    return (outputs.squeeze(-1) - labels).square()


def negative_pearson(outputs: Tensor, labels: Tensor) -> Tensor:
    """Minus the correlation over the examples at hand, the same for each; needs two examples that differ in label."""
    x = outputs.squeeze(-1) - outputs.mean()
    y = labels - labels.mean()
    # the small number keeps constant predictions, and lone examples, at zero instead of not-a-number; norm(), unlike
    # a square root, also has a gradient there
    correlation = (x * y).sum() / (x.norm() * y.norm()).clamp(min=1e-7)
    return -correlation.expand(len(labels))


@dataclass(frozen=True)
class Loss:
    """A loss, the kinds of task it fits and its options."""

    function: Callable[..., Tensor]
    kinds: tuple[str, ...]
    Config: type[Settings] = Settings
    """whose fields the function takes by name"""
    compares: bool = False
    """It compares a batch's examples with each other, so that there may be no others among them."""


LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(cross_entropy, ("classes",), Smoothing),
    "cross_entropy_twice": Loss(cross_entropy_twice, ("classes",)),
    "near_cross_entropy": Loss(near_cross_entropy, ("classes",), Nearness),
    "squared_earth_mover": Loss(squared_earth_mover, ("classes", "soft")),
    "soft_cross_entropy": Loss(soft_cross_entropy, ("soft",)),
    "cumulative": Loss(cumulative, ("ordinal",)),
    "binary_cross_entropy": Loss(binary_cross_entropy, ("binary", "multilabel")),
    "squared_error": Loss(squared_error, ("score",)),
    "negative_pearson": Loss(negative_pearson, ("score",), compares=True),
}


def find_loss(choice: Choice) -> Loss:
    """The loss that a recipe names"""
    return resolve(LOSSES, choice, "loss")[0]


def make_loss(choice: Choice) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss that a recipe names, with its options"""
    loss, options = resolve(LOSSES, choice, "loss")
    return partial(loss.function, **options.model_dump())


def label_weights(labels: Tensor, weights: Tensor | None, soft: bool = False) -> Tensor:
    """The weight of each example: that of its class (soft: of its classes, as likely as they are), for multi-label the
    mean over its labels, else 1."""
    if weights is None:
        return torch.ones(len(labels), device=labels.device)
    if soft:
        return (labels * weights).sum(-1)
    if labels.ndim == 2:
        return torch.where(labels > 0.5, weights, 1.0).mean(-1)
    return weights[labels.long()]
