"""One task out of many: encoder + injection + task's name in, a plain encoder with the same answers out.

A vector added to the embeddings is one added to every position; one added to queries, keys or values is one added to
their bias; a gate scales columns, a low-rank update is added to its matrix.
"""

import copy
from typing import TYPE_CHECKING, cast

from torch import Tensor

from teabert.errors import UserError, unknown
from teabert.injections.base import Injection

if TYPE_CHECKING:
    from teabert.encoder import Block, Encoder


def fold(encoder: "Encoder", injection: Injection, task: str) -> "Encoder":
    """A copy of the encoder that, without injection, answers as the injected one does for the task."""
    if not injection.foldable:
        raise UserError(
            f"The injection {type(injection).__name__} cannot be folded into a plain encoder: it does more than change"
            " weights. Keep the model as it is, or train with one of input, attention, projected, gate, lora."
        )
    if task not in injection.tasks:
        raise unknown("task", task, injection.tasks)
    plain = copy.deepcopy(encoder)
    injection.fold_into(plain, task)
    return plain


def block(encoder: "Encoder", layer: int) -> "Block":
    """A layer of the encoder"""
    return cast("Block", encoder.blocks[layer])


def biases(encoder: "Encoder", layer: int) -> tuple[Tensor, ...]:
    """A layer's biases of queries, keys and values: views, to be edited in place"""
    return block(encoder, layer).projection.bias.chunk(3)
