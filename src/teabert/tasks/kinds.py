"""The kinds of task, and what each implies: usual loss and metrics, and how outputs become predictions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


def softmax(outputs: Array) -> Array:
    """(examples, labels) logits -> probabilities"""
    shifted = np.exp(outputs - outputs.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def sigmoid(outputs: Array) -> Array:
    """Logits -> probabilities"""
    return 1 / (1 + np.exp(-np.clip(outputs, -60, 60)))


def levels(outputs: Array) -> Array:
    """(examples, labels - 1) logits of lying above each threshold -> (examples, labels) probabilities"""
    above = np.minimum.accumulate(sigmoid(outputs), axis=-1)  # who is not above 1 is not above 2
    ends = np.ones((len(outputs), 1))
    return np.concatenate([ends, above], axis=-1) - np.concatenate([above, 0 * ends], axis=-1)


@dataclass(frozen=True)
class Kind:
    """What a kind of task implies."""

    loss: str
    metrics: tuple[str, ...]
    accepts: tuple[str, ...]
    """Metrics that fit."""
    probabilities: Callable[[Array], Array]
    """(examples, outputs) -> a probability for each label; for scores the values as they are"""
    decide: Callable[[Array], Array]
    """(examples, outputs) -> predictions"""
    truth: Callable[[Array], Array] = lambda labels: labels.astype(np.int64)
    """labels as the rows have them -> as predictions are"""


KINDS: dict[str, Kind] = {
    "classes": Kind(
        loss="cross_entropy",
        metrics=("accuracy", "macro_f1"),
        accepts=("accuracy", "macro_f1", "matthews"),
        probabilities=softmax,
        decide=lambda outputs: outputs.argmax(-1),
    ),
    "soft": Kind(
        loss="soft_cross_entropy",
        metrics=("accuracy", "macro_f1"),
        accepts=("accuracy", "macro_f1", "matthews"),
        probabilities=softmax,
        decide=lambda outputs: outputs.argmax(-1),
        truth=lambda labels: labels.argmax(-1),
    ),
    "ordinal": Kind(
        loss="cumulative",
        metrics=("accuracy", "macro_f1"),
        accepts=("accuracy", "macro_f1", "matthews"),
        probabilities=levels,
        decide=lambda outputs: (outputs > 0).sum(-1),  # the thresholds that are passed
    ),
    "binary": Kind(
        loss="binary_cross_entropy",
        metrics=("accuracy", "macro_f1"),
        accepts=("accuracy", "macro_f1", "matthews"),
        probabilities=sigmoid,
        decide=lambda outputs: (outputs[:, 0] > 0).astype(np.int64),  # exactly one half counts as no
    ),
    "multilabel": Kind(
        loss="binary_cross_entropy",
        metrics=("micro_f1", "accuracy"),
        accepts=("micro_f1", "accuracy"),
        probabilities=sigmoid,
        decide=lambda outputs: (outputs > 0).astype(np.int64),
    ),
    "score": Kind(
        loss="squared_error",
        metrics=("pearson", "spearman"),
        accepts=("pearson", "spearman"),
        probabilities=lambda outputs: outputs,
        decide=lambda outputs: outputs[:, 0],
        truth=lambda labels: labels,
    ),
}
