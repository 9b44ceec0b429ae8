"""Task-specific attention: layers of the task's own on the encoder's token states, read at the first token (Jia 2024).

Single texts attend to themselves; the two texts of a pair attend to each other, both ways with the same weights. A bare
layer is attention and its output projection alone, without residual, LayerNorm and feed-forward.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.batches import Layout, Part
from teabert.encoder import EncoderShape
from teabert.heads.reading import Reader, Reading
from teabert.settings import DEEPEST, Settings

RATE = 0.1
"""Dropout inside the layers, as in the paper's code."""


@dataclass(frozen=True)
class Pack:
    """Some of a batch's sequences, one an example, end to end in the order of the examples."""

    tokens: Tensor
    """(tokens,) where each token stands in the batch"""
    starts: Tensor
    """(examples,) the first token of each example, counted inside the pack"""
    places: Tensor
    """(tokens,) where each token lies in a padded (examples * longest) grid"""
    real: Tensor
    """(examples, longest) true for real tokens"""

    @classmethod
    def of(cls, sequences: Tensor, layout: Layout) -> "Pack":
        """The pack of these sequences of a batch; where shapes are fixed, padded as the grid is."""
        device = sequences.device
        sizes = layout.sizes[sequences]
        if layout.fixed:
            places = torch.arange(layout.longest, device=device)
            return Grid.at(sequences, places[None, :] < sizes[:, None], layout)
        ends = sizes.cumsum(0)
        real = torch.arange(int(sizes.max()), device=device)[None, :] < sizes[:, None]
        example, place = real.nonzero(as_tuple=True)
        return cls(layout.starts[sequences][example] + place, ends - sizes, real.view(-1).nonzero().squeeze(1), real)

    def grid(self, x: Tensor) -> Tensor:
        """(tokens, ...) -> (examples, longest, ...), zeros where a shorter example ends"""
        flat = x.new_zeros(self.real.numel(), *x.shape[1:]).index_copy(0, self.places, x)
        return flat.view(*self.real.shape, *x.shape[1:])

    def ungrid(self, x: Tensor) -> Tensor:
        """(examples, longest, ...) -> (tokens, ...)"""
        return x.reshape(-1, *x.shape[2:]).index_select(0, self.places)

    def firsts(self) -> "Pack":
        """The first token of each example alone"""
        own = torch.arange(self.starts.shape[0], device=self.starts.device)
        return replace(self, tokens=self.tokens[self.starts], starts=own, places=own, real=self.real[:, :1])

    def beside(self, x: Tensor, other: "Pack") -> Tensor:
        """(tokens of `other`, width) -> (tokens, width): what the other has at each token's place, zeros past its end"""
        grid = other.grid(x).masked_fill(~other.real.unsqueeze(-1), 0.0)
        return self.ungrid(F.pad(grid, (0, 0, 0, self.real.shape[1] - other.real.shape[1])))


class Grid(Pack):
    """The same with every example as long as the longest can be: what follows it counts as its tokens, but is not real."""

    @classmethod
    def at(cls, sequences: Tensor, real: Tensor, layout: Layout) -> Self:
        """The grid of these sequences of a batch, of which so much is real: (examples, longest)"""
        places = torch.arange(real.shape[1], device=real.device)
        tokens = (layout.starts[sequences].unsqueeze(1) + places).clamp(max=layout.sequence_of_token.shape[0] - 1)
        own = torch.arange(sequences.shape[0], device=real.device)
        return cls(tokens.reshape(-1), own * real.shape[1], tokens, real)

    def grid(self, x: Tensor) -> Tensor:
        """(tokens, ...) -> (examples, longest, ...)"""
        return x.reshape(*self.real.shape, *x.shape[1:])

    def ungrid(self, x: Tensor) -> Tensor:
        """(examples, longest, ...) -> (tokens, ...)"""
        return x.reshape(-1, *x.shape[2:])


class Attention(nn.Module):
    """Multi-head attention of one text's tokens over another's (or its own), and its output projection."""

    def __init__(self, width: int, attention_heads: int) -> None:
        super().__init__()
        self.attention_heads = attention_heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def weights(self, asking: Tensor, asked: Tensor, of: Pack, over: Pack) -> Tensor:
        """Which tokens each token reads, (examples, attention_heads, longest of `of`, longest of `over`)"""
        split = (-1, self.attention_heads, asking.shape[1] // self.attention_heads)
        q = of.grid(self.query(asking).view(split)).transpose(1, 2)
        k = over.grid(self.key(asked).view(split)).transpose(1, 2)
        scores = q @ k.transpose(2, 3) / math.sqrt(split[2])
        return scores.masked_fill(~over.real[:, None, None, :], float("-inf")).softmax(-1)

    def forward(self, asking: Tensor, asked: Tensor, of: Pack, over: Pack) -> Tensor:
        """asking: (tokens of `of`, width); asked: (tokens of `over`, width) -> (tokens of `of`, width)"""
        split = (-1, self.attention_heads, asking.shape[1] // self.attention_heads)
        q = of.grid(self.query(asking).view(split)).transpose(1, 2)
        k, v = (over.grid(part(asked).view(split)).transpose(1, 2) for part in (self.key, self.value))
        rate = RATE if self.training else 0.0
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=over.real[:, None, None, :], dropout_p=rate)
        return self.output(of.ungrid(context.transpose(1, 2)).flatten(1))


class Layer(nn.Module):
    """A full layer (residual, LayerNorm, with or without feed-forward) or a bare one."""

    def __init__(self, shape: EncoderShape, cross: bool, bare: bool, feed_forward: bool) -> None:
        super().__init__()
        width = shape.width
        self.attention = Attention(width, shape.attention_heads)
        self.bare = bare
        self.dropout = nn.Dropout(RATE)
        if bare:
            return
        self.dense = nn.Linear(width, width) if cross else None  # the paper's cross layers have a second projection
        self.attention_norm = nn.LayerNorm(width, shape.epsilon)
        self.feed_forward = feed_forward
        if feed_forward:
            self.inner = nn.Linear(width, shape.inner_width)
            self.outer = nn.Linear(shape.inner_width, width)
            self.final_norm = nn.LayerNorm(width, shape.epsilon)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """x: what entered; attended: what attention read, both (tokens, width)"""
        if self.bare:
            return attended
        if self.dense is not None:
            attended = self.dense(self.dropout(attended))
        x = self.attention_norm(x + self.dropout(attended))
        return self.final_norm(x + self.dropout(self.outer(F.gelu(self.inner(x))))) if self.feed_forward else x


class TaskAttention(Reader):
    """Attention layers of the task's own, read at the first token."""

    keeps = "states"

    class Config(Settings):
        """Options of task_attention."""

        layers: int = Field(1, ge=1, le=DEEPEST)
        """How many; the paper has 2 for SST, 1 for Quora and 3 for STS."""
        bare_last: bool | None = None
        """Whether the last layer is bare; left out: for pairs, as in the paper's code."""
        feed_forward: bool = True
        """Feed-forward parts in the full layers: on as in the paper's code, off as in its table of parameters."""
        exchange: bool = False
        """Full layers over a pair add to each token what the other text's token at its place heard, as in the paper's
        code, instead of what it heard itself. Where the other text has ended they add nothing."""
        start: Literal["default", "uniform", "mean"] = "default"
        """New weights: torch's default; queries, keys and values uniform in a range (the paper's experiment 2); or such
        that one bare layer starts exactly as mean pooling."""
        low: float = 0.9
        """The range of `uniform`, its lower end."""
        high: float = 1.0
        """And its upper end."""

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.low >= self.high:
                raise ValueError(f"low {self.low:g} must be below high {self.high:g}")
            if self.start == "mean" and (self.layers != 1 or self.bare_last is False):
                raise ValueError("start: mean is exact for one bare layer only; set layers: 1 and bare_last: true")
            return self

    def __init__(self, config: Config, shape: EncoderShape, sequences: int) -> None:
        super().__init__(config, shape, sequences)
        cross = sequences == 2
        self.exchange = config.exchange
        bare_last = (cross or config.start == "mean") if config.bare_last is None else config.bare_last
        bare = [bare_last and layer == config.layers - 1 for layer in range(config.layers)]
        self.layers = nn.ModuleList(Layer(shape, cross, last, config.feed_forward) for last in bare)
        for module in self.modules():
            if isinstance(module, Attention):
                _start(module, config)

    @property
    def stack(self) -> list[Layer]:
        """The layers, from the first"""
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def forward(self, reading: Reading, part: Part) -> tuple[Tensor, Tensor | None]:
        """(examples, width) for the first (or only) and the second text"""
        two = None if part.second is None else Pack.of(part.second, reading.layout)
        return self.over(reading.states, Pack.of(part.first, reading.layout), two)

    def over(self, states: Tensor, one: Pack, two: Pack | None) -> tuple[Tensor, Tensor | None]:
        """The same, for states of which it is known where the texts lie"""
        packs = [one] if two is None else [one, two]
        texts = [F.embedding(pack.tokens, states) for pack in packs]
        *lower, last = self.stack
        for layer in lower:
            texts = self.apply_layer(layer, texts, packs, texts, packs)
        firsts = [F.embedding(pack.starts, x) for pack, x in zip(packs, texts, strict=True)]
        # nothing else is read, so nothing else need ask in the last layer
        found = self.apply_layer(last, firsts, [pack.firsts() for pack in packs], texts, packs)
        if two is None:
            return found[0], None
        # after a bare layer the first vector is, as in the paper, what was heard of text 1
        return (found[1], found[0]) if last.bare else (found[0], found[1])

    def apply_layer(
        self, layer: Layer, asking: list[Tensor], of: list[Pack], asked: list[Tensor], over: list[Pack]
    ) -> list[Tensor]:
        """What a layer makes of each text's tokens, or of some of them: a text alone asks itself, two ask each other"""
        heard = [layer.attention(*each) for each in zip(asking, asked[::-1], of, over[::-1], strict=True)]
        if self.exchange and len(of) == 2 and not layer.bare:
            heard = [of[0].beside(heard[1], of[1]), of[1].beside(heard[0], of[0])]
        return [layer.finish(x, each) for x, each in zip(asking, heard, strict=True)]


def _start(attention: Attention, config: TaskAttention.Config) -> None:
    """New weights as the recipe wants them; torch's default is there already."""
    if config.start == "uniform":
        for part in (attention.query, attention.key, attention.value):
            nn.init.uniform_(part.weight, config.low, config.high)
    if config.start == "mean":
        for part in (attention.query, attention.key):
            nn.init.zeros_(part.weight)
        for part in (attention.value, attention.output):
            nn.init.eye_(part.weight)
        for part in (attention.query, attention.key, attention.value, attention.output):
            nn.init.zeros_(part.bias)
