"""What an injection is: hooks at named sites of the encoder, each returning its input unless a method says otherwise.

The base class is therefore the baseline, plain shared BERT; a method states only its difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from teabert.batches import Layout
from teabert.injections.options import Span
from teabert.kernels import Draws
from teabert.settings import Settings

if TYPE_CHECKING:
    from teabert.encoder import Encoder, EncoderShape


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
    names: tuple[str, ...]
    """the tasks in the batch"""
    draws: Draws | None = None
    """where dropout's randomness comes from, if kernels do the work"""
    kept: dict[Any, Any] = field(default_factory=dict)
    """what an injection keeps from layer to layer, within one pass through the encoder"""

    def inside(self, layer: int, entering: Tensor) -> "Site":
        """The same in a layer"""
        return Site(
            layer, entering, self.task_of_sequence, self.task_of_token, self.layout, self.names, self.draws, self.kept
        )


class Injection(nn.Module):
    """Plain shared BERT: every hook returns its input."""

    foldable = True
    """For one task it is a plain encoder with other weights; see fold_into."""
    exact_at_start = True
    """As it starts by default, it leaves the pretrained encoder's answers exactly as they were."""

    class Config(Settings):
        """No options."""

    def __init__(self, config: Settings, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__()
        self.tasks = tuple(tasks)
        self.span = Span(config, shape.layers)

    @property
    def first(self) -> int:
        """The first layer that tells tasks apart, -1 for the embeddings; below it a text is the same to all tasks"""
        return self.span.layers.start

    def changes(self, hook: str) -> bool:
        """Whether a hook does anything: where it does not, the encoder may do in one go what lies around it"""
        return getattr(type(self), hook) is not getattr(Injection, hook)

    @cached_property
    def hooks(self) -> frozenset[str]:
        """Those inside a layer that do anything"""
        return frozenset(filter(self.changes, ("shift", "projected", "prefixes", "context", "attended", "fed_forward")))

    def embedded(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width), the summed embeddings before their LayerNorm"""
        return x

    def normalised(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width), the embeddings after their LayerNorm, before the dropout"""
        return x

    def shift(self, at: Site) -> Tensor | None:
        """What is added to a layer's queries, keys and values: (tasks, 3 * width), a row for each task, or a lone row where
        the batch has one task only; nothing where nothing is"""
        return None

    def projected(self, q: Tensor, k: Tensor, v: Tensor, at: Site) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v: (tokens, width) each, before the attention heads are split"""
        return q, k, v

    def prefixes(self, at: Site) -> tuple[Tensor, Tensor] | None:
        """Keys and values that every token also reads: (sequences, length, attention_heads, head_width) each"""
        return None

    def context(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, attention_heads, head_width), what each attention head read"""
        return x

    def attended(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width), the attention's output before the residual sum"""
        return x

    def fed_forward(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width), the feed-forward output before the residual sum"""
        return x

    def fold_into(self, encoder: "Encoder", task: str) -> None:
        """Edit a plain encoder's weights so that it answers as this one does for the task; only if foldable"""
