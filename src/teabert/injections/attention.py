"""Vectors per task and layer added to queries, keys and values: Q + q_t, K + k_t, V + v_t.

EmBERT (Maziarka & Danel 2021); TEA-BERT's direct variant. The key's vector adds the same number to all scores of a
query, so the softmax cancels it; the value's adds a constant to what every token reads.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from teabert.injections.base import Injection, Site
from teabert.injections.folding import biases
from teabert.injections.options import LayerOptions
from teabert.injections.pertask import PAPER, PerTask

if TYPE_CHECKING:
    from teabert.encoder import Encoder, EncoderShape


class Attention(Injection):
    """Q + q_t, K + k_t, V + v_t."""

    class Config(LayerOptions):
        """Options of attention."""

        vectors: Literal["qkv", "qv"] = "qkv"
        """qv leaves out the key's vector, which has no effect."""

    def __init__(self, config: Config, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__(config, shape, tasks)
        self.kinds = len(config.vectors)
        size = (self.span.rows, self.kinds * shape.width)
        self.vectors = PerTask(tasks, size, PAPER if config.init == "paper" else 0.0)

    def shift(self, at: Site) -> Tensor | None:
        """The layer's vectors"""
        if at.layer not in self.span:
            return None
        table = self.vectors.table(self.span.row(at.layer), at)
        if self.kinds == 3:
            return table
        q, v = table.chunk(2, dim=-1)
        return torch.cat([q, torch.zeros_like(q), v], dim=-1)

    @torch.no_grad()
    def fold_into(self, encoder: "Encoder", task: str) -> None:
        """The vectors join the biases of the projections"""
        for layer in self.span.layers:
            vectors = self.vectors[task][self.span.row(layer)].chunk(self.kinds)
            for bias, vector in zip(biases(encoder, layer)[:: 4 - self.kinds], vectors, strict=True):
                bias += vector
