"""The BERT family written out once, on packed tokens: token ids in, one state per token out.

BERT, RoBERTa, DistilBERT and MPNet differ in a few facts, all of them in EncoderShape. The injection is called at
named sites (see injections/base.py). Devlin et al. 2019; Liu et al. 2019; Sanh et al. 2019; Song et al. 2020.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.batches import Batch, Group, Layout
from teabert.cpu import Answer, Answering
from teabert.injections import Injection, Site
from teabert.injections.pertask import with_rows
from teabert.kernels import HEAD_WIDTHS, Draws, usable
from teabert.linear import Linear, answering

ACTIVATIONS = {
    "gelu": nn.GELU(),
    "gelu_new": nn.GELU(approximate="tanh"),
    "gelu_pytorch_tanh": nn.GELU(approximate="tanh"),
    "relu": nn.ReLU(),
    "silu": nn.SiLU(),
}


@dataclass(frozen=True)
class EncoderShape:
    """The facts in which encoders of the family differ."""

    family: str
    vocabulary: int
    width: int
    layers: int
    attention_heads: int
    inner_width: int
    positions: int
    """rows of the position table"""
    segments: int
    """token types; 0 where the family has none"""
    epsilon: float
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    first_position: int = 0
    """RoBERTa and MPNet count positions from 2"""
    relative_buckets: int = 0
    """MPNet adds a learned bias per distance to the attention scores"""
    pooler: bool = True
    padding_id: int = 0

    @property
    def longest(self) -> int:
        """The most tokens a sequence may have."""
        return self.positions - self.first_position

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.attention_heads


class Embeddings(nn.Module):
    """Word + position (+ segment), before their LayerNorm."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.first_position = shape.first_position
        self.word = nn.Embedding(shape.vocabulary, shape.width, padding_idx=shape.padding_id)
        self.position = nn.Embedding(shape.positions, shape.width)
        self.segment = nn.Embedding(shape.segments, shape.width) if shape.segments else None

    def forward(self, ids: Tensor, segments: Tensor, layout: Layout) -> Tensor:
        """(tokens,) ids -> (tokens, width)"""
        place = layout.place_of_token
        x = self.word(ids) + self.position(place + self.first_position if self.first_position else place)
        segment = self.segment
        if segment is None:
            return x
        # RoBERTa has one segment only: both texts of a pair are in it
        return x + segment(segments if segment.num_embeddings > 1 else torch.zeros_like(segments))


class DistanceBias(nn.Module):
    """MPNet's relative position bias: one number per attention head and bucket of distance, shared by all layers."""

    def __init__(self, buckets: int, attention_heads: int, furthest: int = 128) -> None:
        super().__init__()
        self.buckets, self.furthest = buckets, furthest
        self.table = nn.Embedding(buckets, attention_heads)

    def forward(self, longest: int) -> Tensor:
        """(attention_heads, longest, longest): what to add to the score of every (query, key)"""
        place = torch.arange(longest, device=self.table.weight.device)
        bucket = self.bucket(place[None, :] - place[:, None])
        return self.table(bucket).permute(2, 0, 1)

    def bucket(self, distance: Tensor) -> Tensor:
        """Half of the buckets for each direction; near distances have their own, far ones share on a log scale."""
        half = self.buckets // 2
        near = half // 2
        size = distance.abs()
        scale = (half - near) / math.log(self.furthest / near)
        far = near + (torch.log(size.float().clamp(min=1) / near) * scale).long()
        return torch.where(distance > 0, half, 0) + torch.where(size < near, size, far.clamp(max=half - 1))


Hook = Callable[[Tensor, Site], Tensor]
"""What an injection does to (tokens, width)"""


class Stream(NamedTuple):
    """What goes from layer to layer, (tokens, width): as sums are made of it, and as matrices read it."""

    exact: Tensor
    working: Tensor


class SumNorm(nn.LayerNorm):
    """LayerNorm of what goes through a layer and what the layer adds."""

    def forward(  # type: ignore[override]
        self, x: Stream, added: Tensor, dropout: nn.Dropout | None, draws: Draws | None, shift: Tensor | None = None
    ) -> Stream:
        """added: (tokens, width), still to be shifted where there is a shift, and dropped out where there is a dropout"""
        if usable(added):
            from teabert.kernels.norm import sum_norm

            rate = dropout.p if dropout is not None and self.training else 0.0
            facts = (self.weight, self.bias, self.eps, rate, draws or Draws(added))
            return Stream(*sum_norm(x.exact, added, shift, *facts))
        added = added if shift is None else added + shift
        if dropout is not None and self.training:  # asked here, as every call costs a text that is read alone
            added = dropout(added)
        total = F.layer_norm(x.exact + added, self.normalized_shape, self.weight, self.bias, self.eps)
        return Stream(total, total)


class Block(nn.Module):
    """One post-norm transformer layer."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.projection = Linear(shape.width, 3 * shape.width)  # queries, keys, values in one multiplication
        self.output = Linear(shape.width, shape.width)
        self.attention_norm = SumNorm(shape.width, shape.epsilon)
        self.inner = Linear(shape.width, shape.inner_width)
        self.outer = Linear(shape.inner_width, shape.width)
        self.final_norm = SumNorm(shape.width, shape.epsilon)
        self.activation = ACTIVATIONS[shape.activation]
        self.dropout = nn.Dropout(shape.dropout)

    def forward(
        self, at: Site, x: Stream, bias: Tensor | None, injection: Injection, answer: Answer | None = None
    ) -> Stream:
        """(tokens, width) -> (tokens, width); answer: how it is done where a CPU only answers"""
        if answer is not None:
            states = answer(at, x.exact, bias, injection)
            return Stream(states, states)
        q, k, v = self.project(x.working, injection.shift(at), at).chunk(3, dim=-1)
        q, k, v = injection.projected(q, k, v, at)
        heads = (-1, self.shape.attention_heads, self.shape.head_width)
        q, k, v = q.reshape(heads), k.reshape(heads), v.reshape(heads)
        context = self.attend(q, k, v, at.layout, bias, injection.prefixes(at), at.draws)
        context = injection.context(context, at).reshape(-1, self.shape.width)
        hook = injection.attended if injection.changes("attended") else None
        x = self.add(self.attention_norm, x, self.output, context, hook, at)
        hook = injection.fed_forward if injection.changes("fed_forward") else None
        return self.add(self.final_norm, x, self.outer, self.inner.activated(x.working, self.activation), hook, at)

    def project(self, x: Tensor, shift: Tensor | None, at: Site) -> Tensor:
        """(tokens, width) -> queries, keys and values, (tokens, 3 * width); shift: what each task's are shifted by"""
        if shift is None:
            projected: Tensor = self.projection(x)
            return projected
        if usable(x):
            return self.projection.shifted(x, shift, at.task_of_token)
        return with_rows(self.projection(x), shift, at)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        layout: Layout,
        bias: Tensor | None,
        prefix: "Prefix | None",
        draws: Draws | None = None,
    ) -> Tensor:
        """Attention inside each sequence, in training with dropout. (tokens, attention_heads, head_width) each"""
        return attend(q, k, v, layout, bias, self.shape.attention_dropout if self.training else 0.0, prefix, draws)

    def add(self, norm: SumNorm, x: Stream, linear: Linear, read: Tensor, hook: Hook | None, at: Site) -> Stream:
        """LayerNorm of x and what a matrix makes of `read`, dropped out and then changed by the injection's hook"""
        summed: Stream
        if hook is not None:
            summed = norm(x, hook(self.dropout(linear(read)), at), None, at.draws)
        elif usable(read):
            summed = norm(x, linear.product(read), self.dropout, at.draws, linear.bias)
        else:
            summed = norm(x, linear(read), self.dropout, at.draws)
        return summed


class Encoder(nn.Module):
    """Embeddings, blocks and (where the family has one) the pooler."""

    _answering: Answering | None = None

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.embeddings = Embeddings(shape)
        self.embedding_norm = nn.LayerNorm(shape.width, shape.epsilon)
        self.distance = DistanceBias(shape.relative_buckets, shape.attention_heads) if shape.relative_buckets else None
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.pooler = Linear(shape.width, shape.width) if shape.pooler else None
        self.dropout = nn.Dropout(shape.dropout)
        self.apply(_initialise)

    def forward(self, batch: Batch, injection: Injection) -> Tensor:
        """A packed batch -> the last layer's states, (tokens, width)"""
        shared = batch.shared if 0 < injection.first < self.shape.layers else None
        ids, segments, layout = batch.ids, batch.segments, batch.layout
        if shared is not None:  # until tasks are told apart, each of the different texts is read once
            ids, segments, layout = shared.ids, shared.segments, shared.layout
        answers = self.answers(self.embeddings.word.weight)
        x = self.embeddings(ids, segments, layout) if answers is None else answers.embedded(ids, segments, layout)
        draws = self.draws(batch, x)
        at = _site(x, batch.task_of_sequence if shared is None else torch.zeros_like(layout.starts), layout, batch, draws)
        x = injection.embedded(x, at)
        x = self.embedding_norm(x) if answers is None else torch.layer_norm(x, *answers.norm)
        x = injection.normalised(x, at)
        stream = self.stream(self.dropout(x) if self.training else x)
        bias = None if self.distance is None else self.distance(layout.longest)
        for layer, block in enumerate(self.blocks):
            if shared is not None and layer == injection.first:
                stream = self.stream(stream.exact.index_select(0, shared.token))
                at = _site(stream.exact, batch.task_of_sequence, batch.layout, batch, draws)
            answer = None if answers is None else answers.blocks[layer]
            here = at.inside(layer, stream.working) if answer is None or injection.hooks else at
            stream = block(here, stream, bias, injection, answer)
        return stream.exact

    def answers(self, x: Tensor) -> Answering | None:
        """The blocks as a CPU calls them where nothing learns"""
        precision, known = None if self.training else answering(x), self._answering
        if precision is None:
            known = None  # what learns will change, and fused optimisers do not count up the weights' version
        elif known is None or known.precision != precision or not known.holds(self):
            known = Answering(self, precision)
        if known is not self._answering:
            self._answering = known
        return known

    def __getstate__(self) -> dict[str, Any]:
        """Copies of the encoder make their own"""
        return self.__dict__ | {"_answering": None}

    def draws(self, batch: Batch, x: Tensor) -> Draws | None:
        """Where dropout begins, if kernels do it"""
        if not (self.training and usable(x)):
            return None
        return Draws(torch.randint(2**62, (1,), device=x.device) if batch.seed is None else batch.seed)

    def stream(self, x: Tensor) -> Stream:
        """(tokens, width), as it is and as matrices read it"""
        return Stream(x, x.bfloat16()) if usable(x) else Stream(x, x)

    def pool(self, x: Tensor, layout: Layout) -> Tensor:
        """BERT's pooled first token, (sequences, width); the bare first token where the family has no pooler"""
        first = F.embedding(layout.starts, x)
        return first if self.pooler is None else torch.tanh(self.pooler(first))


def _site(x: Tensor, task_of_sequence: Tensor, layout: Layout, batch: Batch, draws: Draws | None) -> Site:
    """The place below all layers"""
    names = tuple(part.task for part in batch.parts)
    return Site(-1, x, task_of_sequence, task_of_sequence.index_select(0, layout.sequence_of_token), layout, names, draws)


Prefix = tuple[Tensor, Tensor]
"""Keys and values read beside a sequence's own: (sequences, length, attention_heads, head_width) each."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: Layout,
    bias: Tensor | None,
    dropout: float,
    prefix: Prefix | None = None,
    draws: Draws | None = None,
) -> Tensor:
    """Attention inside each sequence. q, k, v: (tokens, attention_heads, head_width) -> the same shape."""
    if prefix is None and q.shape[2] in HEAD_WIDTHS and usable(q) and (draws is not None or not dropout):
        from teabert.kernels.attention import attend_packed

        q, k, v = q.bfloat16(), k.bfloat16(), v.bfloat16()
        return attend_packed(q, k, v, layout, bias, dropout, draws or Draws(layout.bounds))
    if len(layout.groups) == 1:
        return _attend_group(q, k, v, layout.groups[0], bias, dropout, prefix)
    prefixes: Sequence[Prefix | None] = [None] * len(layout.groups)
    if prefix is not None:
        sizes = [group.sequences for group in layout.groups]
        prefixes = list(zip(prefix[0].split(sizes), prefix[1].split(sizes), strict=True))
    groups = zip(layout.groups, prefixes, strict=True)
    contexts = [
        _attend_group(q[group.tokens], k[group.tokens], v[group.tokens], group, bias, dropout, prefix)
        for group, prefix in groups
    ]
    return torch.cat(contexts)


def _attend_group(
    q: Tensor, k: Tensor, v: Tensor, group: Group, bias: Tensor | None, dropout: float, prefix: Prefix | None
) -> Tensor:
    """Attention over a dense block of equally long (or padded) sequences."""
    _, heads, width = q.shape
    grid = (group.sequences, group.longest, heads, width)
    q, k, v = (_lay_out(x, group).view(grid).transpose(1, 2) for x in (q, k, v))
    mask = _mask(group, bias, q.dtype)
    if prefix is not None:
        k, v = (torch.cat([p.transpose(1, 2), x], dim=2) for p, x in zip(prefix, (k, v), strict=True))
        mask = None if mask is None else F.pad(mask, (prefix[0].shape[1], 0), value=mask.dtype == torch.bool)  # all see it
    context = F.scaled_dot_product_attention(q, k, v, mask, dropout)
    context = context.transpose(1, 2).reshape(-1, heads, width)
    return context if group.places is None else context[group.places]


def _lay_out(x: Tensor, group: Group) -> Tensor:
    """(tokens, ...) -> (sequences * longest, ...), zeros where a shorter sequence ends"""
    if group.places is None:
        return x
    grid = x.new_zeros(group.sequences * group.longest, *x.shape[1:])
    return grid.index_copy(0, group.places, x)


def _mask(group: Group, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What to add to the scores: the distance bias, minus infinity where a key is padding."""
    if bias is None:
        return group.real
    near = bias[None, :, : group.longest, : group.longest].to(dtype)
    return near if group.real is None else near.masked_fill(~group.real, float("-inf"))


def _initialise(module: nn.Module) -> None:
    """As BERT was: normal with deviation 0.02, biases zero; pretrained weights then overwrite it."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
        if module.padding_idx is not None:
            with torch.no_grad():
                module.weight[module.padding_idx].zero_()
