"""As `projected`, then an activation and one more projection: W_proj act(Q + W_Q E_task) (TEA-BERT).

As the paper starts it, random projections stand in for the pretrained queries, keys and values, which costs it its
pretraining. `safe` (projection = identity) still bends them through the activation: no exact no-op. `residual` is ours:
Q + W_Q E_task + Z act(Q + W_Q E_task) with Z = 0, exactly BERT at the start.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.injections.base import Injection, Site
from teabert.injections.options import LayerOptions
from teabert.injections.pertask import PAPER, PerTask, spread
from teabert.injections.projected import projections

if TYPE_CHECKING:
    from teabert.encoder import EncoderShape

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "elu": F.elu,
    "tanh": torch.tanh,
    "selu": F.selu,
    "gelu": F.gelu,
    "relu": F.relu,
}


class Activated(Injection):
    """W_proj act(Q + W_Q E_task), and the same for keys and values."""

    foldable = False
    exact_at_start = False

    class Config(LayerOptions):
        """Options of activated."""

        act: Literal["elu", "tanh", "selu", "gelu", "relu"] = "elu"
        """The activation."""
        init: Literal["safe", "paper", "residual"] = "safe"  # type: ignore[assignment]
        """safe: the last projection starts as the identity, near BERT but not exactly BERT; paper: random throughout;
        residual: added to the plain queries, keys and values, with a last projection of zero: exactly BERT."""

    def __init__(self, config: Config, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__(config, shape, tasks)
        self.residual, self.act = config.init == "residual", config.act
        self.vectors = PerTask(tasks, (1, shape.width), PAPER if config.init == "paper" else 0.0)
        self.projections = projections(self.span.rows, shape.width)
        self.last = nn.ParameterList(_last(config.init, shape.width) for _ in range(self.span.rows))

    def projected(self, q: Tensor, k: Tensor, v: Tensor, at: Site) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v: (tokens, width) each"""
        if at.layer not in self.span:
            return q, k, v
        row = self.span.row(at.layer)
        table = self.projections[row](self.vectors.table(0, at))  # (tasks, 3 * width)
        shift = spread(table, at.task_of_token, q).chunk(3, dim=-1)
        shifted = torch.stack([x + add for x, add in zip((q, k, v), shift, strict=True)])  # (3, tokens, width)
        out = torch.bmm(ACTIVATIONS[self.act](shifted), self.last[row].transpose(1, 2))
        q, k, v = (shifted + out if self.residual else out).unbind(0)
        return q, k, v


def _last(init: str, width: int) -> Tensor:
    """The last projections of queries, keys and values, (3, width, width)"""
    if init == "paper":
        return PAPER * torch.randn(3, width, width)
    return torch.eye(width).repeat(3, 1, 1) if init == "safe" else torch.zeros(3, width, width)
