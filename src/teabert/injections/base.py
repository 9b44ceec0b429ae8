"""What an injection is: five hooks at named sites of the encoder, each returning its input unless a method says otherwise.

The base class is therefore the baseline, plain shared BERT; a method states only its difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from teabert.batches import Layout
from teabert.settings import Settings

if TYPE_CHECKING:
    from teabert.encoder import EncoderShape


@dataclass(frozen=True)
class Site:
    """Where in the encoder we are."""

    layer: int
    """0 for the first block; -1 in the embeddings"""
    input: Tensor
    """(tokens, width) what entered the layer"""
    task_of_sequence: Tensor
    """(sequences,)"""
    task_of_token: Tensor
    """(tokens,)"""
    layout: Layout


class Injection(nn.Module):
    """Plain shared BERT: every hook returns its input."""

    class Config(Settings):
        """No options."""

    def __init__(self, config: Settings, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__()
        self.tasks = tuple(tasks)

    def embedded(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width), the summed embeddings before their LayerNorm"""
        return x

    def projected(self, q: Tensor, k: Tensor, v: Tensor, at: Site) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v: (tokens, width) each, before the attention heads are split"""
        return q, k, v

    def context(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, attention_heads, head_width), what each attention head read"""
        return x

    def attended(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width), the attention's output before the residual sum"""
        return x

    def fed_forward(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width), the feed-forward output before the residual sum"""
        return x
