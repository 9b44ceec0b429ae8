"""How a CPU answers: the encoder's blocks in as few calls as can be, since a text that is read alone waits for every one.

The numbers are those of `Block` in encoder.py, up to rounding. Nothing here learns.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.batches import Group, Layout
from teabert.injections import Injection, Site
from teabert.injections.pertask import with_rows
from teabert.linear import Linear

if TYPE_CHECKING:
    from teabert.encoder import Block, Encoder

SHIFTED = frozenset(["shift"])
"""The one hook that attention does not see"""


class Answering:
    """An encoder below its pooler, as long as its weights stay what they are."""

    def __init__(self, encoder: "Encoder", precision: torch.dtype) -> None:
        self.precision = precision
        blocks = cast(Sequence["Block"], encoder.blocks)
        self.blocks = [Answer(block, precision) for block in blocks]
        self.norm = _given(encoder.embedding_norm)
        tables = encoder.embeddings
        self.first_position, self.word, self.position = tables.first_position, tables.word.weight, tables.position.weight
        self.segment = None if tables.segment is None else tables.segment.weight
        self.parts = [dict(each._modules) for each in (encoder, tables, encoder.blocks, *blocks)]
        inner = [part for block in blocks for part in block.children() if isinstance(part, Linear | nn.LayerNorm)]
        self.made_of = [(part._parameters, part.weight, part.bias) for part in (*inner, encoder.embedding_norm)]
        self.tables = [(table._parameters, table.weight) for table in tables.children()]
        self.laid_out = [each for part in inner if isinstance(part, Linear) for each in (part.weight, part.bias)]
        self.counted = [each for each in self.laid_out if not each.is_inference()]
        self.marked = self.marks()

    def marks(self) -> tuple[list[int], list[int]]:
        """By which a change is seen of what lies elsewhere in oneDNN's order"""
        return [each.data_ptr() for each in self.laid_out], [each._version for each in self.counted]

    def holds(self, encoder: "Encoder") -> bool:
        """Whether the encoder's weights are still those that this was made of; changes through `.data` stay unseen"""
        if [each._modules for each in (encoder, encoder.embeddings, encoder.blocks, *encoder.blocks)] != self.parts:
            return False
        for parameters, weight, bias in self.made_of:
            if parameters["weight"] is not weight or parameters["bias"] is not bias:
                return False
        return all(table["weight"] is weight for table, weight in self.tables) and self.marks() == self.marked

    def embedded(self, ids: Tensor, segments: Tensor, layout: Layout) -> Tensor:
        """(tokens,) ids -> (tokens, width), before the layer norm"""
        place = layout.place_of_token
        x = torch.embedding(self.word, ids)
        x += torch.embedding(self.position, place + self.first_position if self.first_position else place)
        if self.segment is not None:
            x += torch.embedding(self.segment, segments) if len(self.segment) > 1 else self.segment
        return x


def _given(norm: nn.LayerNorm) -> tuple[Any, ...]:
    """What a layer norm is given beside x"""
    return norm.normalized_shape, norm.weight, norm.bias, norm.eps


class Answer:
    """One block; what it calls is at hand, as every name that is looked up on the way costs time too."""

    def __init__(self, block: "Block", precision: torch.dtype) -> None:
        self.block, self.precision, self.shape = block, precision, block.shape
        self.projection, self.output, self.outer = (
            self.given(linear) for linear in (block.projection, block.output, block.outer)
        )
        self.activation: nn.Module | None = block.activation
        self.inner = self.given(block.inner)
        if isinstance(block.activation, nn.GELU):  # oneDNN applies it before it writes anything down
            self.activation, self.inner = None, self.given(block.inner, "gelu", block.activation.approximate)
        self.attention_norm, self.final_norm = _given(block.attention_norm), _given(block.final_norm)
        self.linear = torch.ops.mkldnn._linear_pointwise.default

    def given(self, linear: Linear, activation: str = "none", how: str = "") -> tuple[Any, ...]:
        """What oneDNN is given beside x"""
        return (*linear.laid_out(self.precision), activation, [], how)

    def __call__(self, at: Site, x: Tensor, bias: Tensor | None, injection: Injection) -> Tensor:
        """(tokens, width) -> (tokens, width)"""
        hooks, groups = injection.hooks, at.layout.groups
        read = self.product(x, self.projection)
        if "shift" in hooks and (shift := injection.shift(at)) is not None:
            read = with_rows(read, shift, at)
        if hooks <= SHIFTED and bias is None and len(groups) == 1 and groups[0].real is None:
            context = self.plain(read, groups[0])
        else:
            context = self.attend(read, at, bias, injection)
        added = self.product(context, self.output)
        if "attended" in hooks:
            added = injection.attended(added, at)
        x = torch.layer_norm(x + added, *self.attention_norm)
        inner = self.product(x, self.inner)
        added = self.product(inner if self.activation is None else self.activation(inner), self.outer)
        if "fed_forward" in hooks:
            added = injection.fed_forward(added, at)
        return torch.layer_norm(x + added, *self.final_norm)

    def product(self, x: Tensor, layer: tuple[Any, ...]) -> Tensor:
        """(tokens, inputs) -> (tokens, outputs)"""
        out: Tensor = self.linear(x if x.dtype is self.precision else x.to(self.precision), *layer)
        return out

    def plain(self, read: Tensor, group: Group) -> Tensor:
        """Attention of sequences that are equally long, (tokens, 3 * width) -> (tokens, width)"""
        grid = (group.sequences, group.longest, 3, self.shape.attention_heads, self.shape.head_width)
        q, k, v = read.view(grid).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, self.shape.width)

    def attend(self, read: Tensor, at: Site, bias: Tensor | None, injection: Injection) -> Tensor:
        """Attention of all others, and with whatever the injection does"""
        heads = (-1, self.shape.attention_heads, self.shape.head_width)
        q, k, v = read.chunk(3, dim=-1)
        q, k, v = injection.projected(q, k, v, at)
        q, k, v = q.reshape(heads), k.reshape(heads), v.reshape(heads)
        context = injection.context(self.block.attend(q, k, v, at.layout, bias, injection.prefixes(at)), at)
        return context.reshape(-1, self.shape.width)
