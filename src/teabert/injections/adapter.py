"""Bottlenecks per task after the attention and after the feed-forward: x + up(gelu(down(x))) (Houlsby et al. 2019).

Only the bottlenecks are a task's own, as in AdapterHub's library; the paper's code also gave each task its layer norms.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.injections.base import Injection, Site
from teabert.injections.options import LayerOptions, Span
from teabert.injections.pertask import PerTask, by_task
from teabert.settings import WIDEST

if TYPE_CHECKING:
    from teabert.encoder import EncoderShape

DEVIATION = 0.01
"""The paper's: near zero, but not zero."""


class Adapter(Injection):
    """x + up(gelu(down(x))), before the residual sum."""

    foldable = False

    class Config(LayerOptions):
        """Options of adapter; safe starts the way up at zero, paper near it."""

        size: int = Field(64, ge=1, le=WIDEST)
        """Width of the bottleneck."""

    def __init__(self, config: Config, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__(config, shape, tasks)
        self.after_attention = Bottleneck(config, shape.width, self.span, tasks)
        self.after_feed_forward = Bottleneck(config, shape.width, self.span, tasks)

    def attended(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width)"""
        return self.after_attention(x, at) if at.layer in self.span else x

    def fed_forward(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width)"""
        return self.after_feed_forward(x, at) if at.layer in self.span else x


class Bottleneck(nn.Module):
    """Down, activation, up and the way past them, for every task and layer."""

    def __init__(self, config: Adapter.Config, width: int, span: Span, tasks: Sequence[str]) -> None:
        super().__init__()
        self.tasks, self.span = tuple(tasks), span
        self.down = PerTask(tasks, (span.rows, config.size, width), DEVIATION)
        self.down_bias = PerTask(tasks, (span.rows, config.size))
        self.up = PerTask(tasks, (span.rows, width, config.size), DEVIATION if config.init == "paper" else 0.0)
        self.up_bias = PerTask(tasks, (span.rows, width))

    def forward(self, x: Tensor, at: Site) -> Tensor:
        """(tokens, width) -> the same"""
        row = self.span.row(at.layer)

        def change(task: str, x: Tensor) -> Tensor:
            low = F.gelu(F.linear(x, self.down.of(task, row, at), self.down_bias.of(task, row, at)))
            return F.linear(low, self.up.of(task, row, at), self.up_bias.of(task, row, at))

        return x + by_task(x, at, self.tasks, change)
