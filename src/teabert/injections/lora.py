"""Low-rank updates of the query and value projections, one pair per task: Q + (alpha / rank) B A x (Hu et al. 2021)."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.injections.base import Injection, Site
from teabert.injections.folding import block
from teabert.injections.options import LayerOptions
from teabert.injections.pertask import PAPER, PerTask, by_task
from teabert.settings import WIDEST

if TYPE_CHECKING:
    from teabert.encoder import Encoder, EncoderShape


class LoRA(Injection):
    """(W + alpha / rank B A) x for queries and values."""

    class Config(LayerOptions):
        """Options of lora; B starts at zero either way, A as in peft (safe) or normal (paper)."""

        rank: int = Field(8, ge=1, le=WIDEST)
        """Rank of the update."""
        alpha: float = Field(16.0, gt=0)
        """The update is multiplied by alpha / rank."""

    def __init__(self, config: Config, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__(config, shape, tasks)
        self.rank, self.scale = config.rank, config.alpha / config.rank
        self.down = PerTask(tasks, (self.span.rows, 2 * config.rank, shape.width), PAPER)  # queries first, then values
        self.up = PerTask(tasks, (self.span.rows, 2, shape.width, config.rank))
        if config.init == "safe":
            for parameter in self.down.each():
                nn.init.uniform_(parameter, -1 / math.sqrt(shape.width), 1 / math.sqrt(shape.width))

    def projected(self, q: Tensor, k: Tensor, v: Tensor, at: Site) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v: (tokens, width) each"""
        if at.layer not in self.span:
            return q, k, v
        row = self.span.row(at.layer)

        def update(task: str, x: Tensor) -> Tensor:
            low_q, low_v = (self.scale * F.linear(x, self.down.of(task, row, at))).chunk(2, dim=-1)
            up_q, up_v = self.up.of(task, row, at)
            return torch.cat([F.linear(low_q, up_q), F.linear(low_v, up_v)], dim=-1)

        dq, dv = by_task(at.input, at, self.tasks, update).chunk(2, dim=-1)
        return q + dq, k, v + dv

    @torch.no_grad()
    def fold_into(self, encoder: "Encoder", task: str) -> None:
        """W + alpha / rank B A"""
        for layer in self.span.layers:
            row = self.span.row(layer)
            weights = block(encoder, layer).projection.weight.chunk(3)
            for weight, down, up in zip(weights[::2], self.down[task][row].chunk(2), self.up[task][row], strict=True):
                weight += self.scale * up @ down
