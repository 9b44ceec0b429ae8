"""Projected attention layers: a narrow attention per task beside every block, h + block(h) + gelu(U attention(D h)).

Stickland & Murray 2019. D (width to 204) and U (back) are shared by the layers of a task; queries, keys and values are
its layers' own; no biases.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from teabert.injections.base import Injection, Site
from teabert.injections.options import LayerOptions
from teabert.injections.pertask import PAPER, PerTask, by_task
from teabert.settings import WIDEST

if TYPE_CHECKING:
    from teabert.encoder import EncoderShape


class ProjectedAttentionLayers(Injection):
    """gelu(U attention(D h)) added to the feed-forward's output."""

    foldable = False

    class Config(LayerOptions):
        """Options of pal; safe starts U at zero, paper starts everything normal."""

        width: int = Field(204, ge=1, le=WIDEST)
        """Width of the attention."""
        attention_heads: int = Field(12, ge=1, le=WIDEST)
        """They share the width equally."""

        @model_validator(mode="after")
        def _divisible(self) -> Self:
            if self.width % self.attention_heads:
                raise ValueError(f"width {self.width} cannot be shared equally by {self.attention_heads} attention heads")
            return self

    def __init__(self, config: Config, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__(config, shape, tasks)
        self.dropout = shape.attention_dropout
        self.heads = (-1, config.attention_heads, config.width // config.attention_heads)
        self.down = PerTask(tasks, (1, config.width, shape.width), PAPER)
        self.projection = PerTask(tasks, (self.span.rows, 3 * config.width, config.width), PAPER)
        self.up = PerTask(tasks, (1, shape.width, config.width), PAPER if config.init == "paper" else 0.0)

    def fed_forward(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width)"""
        from teabert.encoder import attend  # here, because the encoder imports the injections

        if at.layer not in self.span:
            return x
        row = self.span.row(at.layer)

        def project(task: str, x: Tensor) -> Tensor:
            return F.linear(F.linear(x, self.down.of(task, 0, at)), self.projection.of(task, row, at))

        q, k, v = (y.reshape(self.heads) for y in by_task(at.input, at, self.tasks, project).chunk(3, dim=-1))
        context = attend(q, k, v, at.layout, None, self.dropout if self.training else 0.0).flatten(1)
        return x + F.gelu(by_task(context, at, self.tasks, lambda task, y: F.linear(y, self.up.of(task, 0, at))))
