"""Per-example losses: a task's outputs and labels in, one loss per example out. LOSSES is the one list."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """outputs: (examples, labels) logits; labels: (examples,)"""
    return F.cross_entropy(outputs, labels.long(), reduction="none")


def cross_entropy_twice(outputs: Tensor, labels: Tensor) -> Tensor:
    """Task-specific attention's published code took the softmax twice; here to measure what that costs."""
    return F.cross_entropy(outputs.softmax(-1), labels.long(), reduction="none")


def squared_earth_mover(outputs: Tensor, labels: Tensor) -> Tensor:
    """For labels in order: squared distance of the cumulative distributions, so that a near miss costs little.

    outputs: (examples, labels) logits; labels: (examples,). Hou, Yu and Samaras 2016.
    """
    wanted = F.one_hot(labels.long(), outputs.shape[-1]).to(outputs.dtype)
    return (outputs.softmax(-1) - wanted).cumsum(-1).square().sum(-1)


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
    """A loss and the kinds of task it fits."""

    function: Callable[[Tensor, Tensor], Tensor]
    kinds: tuple[str, ...]


LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(cross_entropy, ("classes",)),
    "cross_entropy_twice": Loss(cross_entropy_twice, ("classes",)),
    "squared_earth_mover": Loss(squared_earth_mover, ("classes",)),
    "cumulative": Loss(cumulative, ("ordinal",)),
    "binary_cross_entropy": Loss(binary_cross_entropy, ("binary", "multilabel")),
    "squared_error": Loss(squared_error, ("score",)),
    "negative_pearson": Loss(negative_pearson, ("score",)),
}


def label_weights(labels: Tensor, weights: Tensor | None) -> Tensor:
    """The weight of each example: that of its class, for multi-label the mean over its labels, else 1."""
    if weights is None:
        return torch.ones(len(labels), device=labels.device)
    if labels.ndim == 2:
        return torch.where(labels > 0.5, weights, 1.0).mean(-1)
    return weights[labels.long()]
