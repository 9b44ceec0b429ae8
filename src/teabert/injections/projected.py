"""One vector per task, projected anew for the queries, keys and values of every layer: Q + W_Q E_task (TEA-BERT).

The projections are shared by all tasks and have no bias.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from teabert.injections.base import Injection, Site
from teabert.injections.folding import biases
from teabert.injections.options import LayerOptions
from teabert.injections.pertask import PAPER, PerTask

if TYPE_CHECKING:
    from teabert.encoder import Encoder, EncoderShape


class Projected(Injection):
    """Q + W_Q E_task, K + W_K E_task, V + W_V E_task."""

    class Config(LayerOptions):
        """Options of projected."""

    def __init__(self, config: Config, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__(config, shape, tasks)
        self.vectors = PerTask(tasks, (1, shape.width), PAPER if config.init == "paper" else 0.0)
        self.projections = projections(self.span.rows, shape.width)

    def shift(self, at: Site) -> Tensor | None:
        """The vectors as the layer projects them"""
        if at.layer not in self.span:
            return None
        table: Tensor = self.projections[self.span.row(at.layer)](self.vectors.table(0, at))
        return table

    @torch.no_grad()
    def fold_into(self, encoder: "Encoder", task: str) -> None:
        """The projected vectors join the biases"""
        for layer in self.span.layers:
            shift = self.projections[self.span.row(layer)](self.vectors[task][0])
            for bias, vector in zip(biases(encoder, layer), shift.chunk(3), strict=True):
                bias += vector


def projections(rows: int, width: int) -> nn.ModuleList:
    """For each row, queries, keys and values in one multiplication, without bias: N(0, 0.02)"""
    made = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(rows))
    for linear in made:
        nn.init.normal_(cast(nn.Linear, linear).weight, std=PAPER)
    return made
