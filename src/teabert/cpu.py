"""How a CPU answers: the encoder's blocks in as few calls as can be, since a text that is read alone waits for every one.

The numbers are those of `Block` in encoder.py, up to rounding. Nothing here learns.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.injections import Injection, Site
from teabert.injections.pertask import with_rows
from teabert.linear import Linear

if TYPE_CHECKING:
    from teabert.encoder import Block


class Answering:
    """The blocks of an encoder, as long as their weights stay what they are."""

    def __init__(self, blocks: Sequence["Block"], precision: torch.dtype) -> None:
        self.precision = precision
        self.blocks = [Answer(block, precision) for block in blocks]
        parts = [part for block in blocks for part in block.children() if isinstance(part, Linear | nn.LayerNorm)]
        self.made_of = [_facts(part) for part in parts]

    @property
    def holds(self) -> bool:
        """Whether nobody has changed a weight"""
        for parameters, weight, bias, place, version in self.made_of:
            if parameters["weight"] is not weight or parameters["bias"] is not bias or weight.data_ptr() != place:
                return False
            if version is not None and weight._version != version:
                return False
        return True


def _facts(part: nn.Module) -> tuple[dict[str, Any], Any, Any, int, int | None]:
    """By which a change of its weights is seen"""
    kept: dict[str, Any] = part._parameters
    weight = kept["weight"]
    return kept, weight, kept["bias"], weight.data_ptr(), None if weight.is_inference() else weight._version


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
        self.attention_norm, self.final_norm = (
            (norm.normalized_shape, norm.weight, norm.bias, norm.eps) for norm in (block.attention_norm, block.final_norm)
        )
        self.linear = torch.ops.mkldnn._linear_pointwise.default

    def given(self, linear: Linear, activation: str = "none", how: str = "") -> tuple[Any, ...]:
        """What oneDNN is given beside x"""
        return (*linear.laid_out(self.precision), activation, [], how)

    def __call__(self, at: Site, x: Tensor, bias: Tensor | None, injection: Injection) -> Tensor:
        """(tokens, width) -> (tokens, width)"""
        hooks = injection.hooks
        asked = self.product(x, self.projection)
        if "shift" in hooks and (shift := injection.shift(at)) is not None:
            asked = with_rows(asked, shift, at)
        q, k, v = asked.view(-1, 3, self.shape.width).unbind(1)
        if "projected" in hooks:
            q, k, v = injection.projected(q, k, v, at)
        prefix = injection.prefixes(at) if "prefixes" in hooks else None
        context = self.read(q, k, v, at, bias, prefix)
        if "context" in hooks:
            heads = (-1, self.shape.attention_heads, self.shape.head_width)
            context = injection.context(context.view(heads), at).reshape(x.shape)
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

    def read(
        self, q: Tensor, k: Tensor, v: Tensor, at: Site, bias: Tensor | None, prefix: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Attention inside each sequence, (tokens, width); where all are equally long, without detours"""
        groups, heads = at.layout.groups, (self.shape.attention_heads, self.shape.head_width)
        if len(groups) > 1 or groups[0].places is not None or bias is not None or prefix is not None:
            q, k, v = (x.reshape(-1, *heads) for x in (q, k, v))
            return self.block.attend(q, k, v, at.layout, bias, prefix).reshape(q.shape[0], -1)
        grid = (groups[0].sequences, groups[0].longest, *heads)
        q, k, v = q.view(grid).transpose(1, 2), k.view(grid).transpose(1, 2), v.view(grid).transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, self.shape.width)
