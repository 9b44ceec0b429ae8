"""A gate per task, layer and attention head, multiplied onto what the attention head read. Ours.

Multi-task models differ most in which attention heads matter to a task; a task vector can shift what a head reads but
cannot silence the head. It is kept as the difference from 1, so that weight decay pulls towards plain BERT.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from teabert.injections.base import Injection, Site
from teabert.injections.folding import block
from teabert.injections.options import LayerOptions
from teabert.injections.pertask import PerTask, spread

if TYPE_CHECKING:
    from teabert.encoder import Encoder, EncoderShape


class Gate(Injection):
    """(1 + g_t) times the context of each attention head."""

    class Config(LayerOptions):
        """Options of gate."""

        init: Literal["safe"] = "safe"
        """All gates start at 1: exactly BERT. There is no paper."""

    def __init__(self, config: Config, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__(config, shape, tasks)
        self.gates = PerTask(tasks, (self.span.rows, shape.attention_heads))

    def context(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, attention_heads, head_width)"""
        if at.layer not in self.span:
            return x
        return x * (1 + spread(self.gates.table(self.span.row(at.layer), at), at.task_of_token, x))[..., None]

    @torch.no_grad()
    def fold_into(self, encoder: "Encoder", task: str) -> None:
        """The gates scale the columns of the output projection"""
        for layer in self.span.layers:
            gates = 1 + self.gates[task][self.span.row(layer)]
            block(encoder, layer).output.weight *= gates.repeat_interleave(encoder.shape.head_width)
