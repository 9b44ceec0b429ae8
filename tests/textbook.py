"""The encoder as a textbook has it: padded, every score written out; what the packed one is compared with."""

import math
from dataclasses import replace

import torch
from torch.nn import functional as F

from teabert.batches import Layout
from teabert.injections import Site


def by_the_book(model, batch):
    """The batch with its states as the textbook computes them, for the model's heads to read"""
    return replace(batch, states=read_padded(model.encoder, batch, model.injection))


def read_padded(encoder, batch, injection):
    """A packed batch -> (tokens, width) states, computed on (sequences, longest, width) with masked scores"""
    layout, shape = Layout.of(batch.layout.lengths, slack=math.inf), encoder.shape
    real = torch.arange(max(layout.lengths))[None] < torch.tensor(layout.lengths)[:, None]  # (sequences, longest)
    tasks = batch.task_of_sequence
    names = tuple(part.task for part in batch.parts)

    def pad(tokens, filler):
        grid = tokens.new_full((*real.shape, *tokens.shape[1:]), filler)
        return grid.masked_scatter(real.view(*real.shape, *(1,) * (tokens.ndim - 1)), tokens)

    def at(layer, grid):
        return Site(layer, grid[real], tasks, tasks.repeat_interleave(real.sum(1)), layout, names)

    def through(hook, grid, layer):
        return pad(hook(grid[real], at(layer, grid)), 0.5)  # padding holds what must not count

    places = torch.arange(real.shape[1]) + shape.first_position
    x = encoder.embeddings.word(pad(batch.ids, shape.padding_id)) + encoder.embeddings.position(places)
    if encoder.embeddings.segment is not None:
        x = x + encoder.embeddings.segment(pad(batch.segments, 0))
    x = through(injection.embedded, x, -1)
    x = through(injection.normalised, encoder.embedding_norm(x), -1)
    for layer, block in enumerate(encoder.blocks):
        site = at(layer, x)
        qkv = F.linear(x, block.projection.weight, block.projection.bias)[real]
        if (shift := injection.shift(site)) is not None:
            qkv = qkv + (shift if len(shift) == 1 else shift[site.task_of_token])
        heads = (*real.shape, shape.attention_heads, shape.head_width)
        q, k, v = (pad(each, 0.5).view(heads) for each in injection.projected(*qkv.chunk(3, dim=-1), site))
        scores = torch.einsum("sihd,sjhd->shij", q, k) / math.sqrt(shape.head_width)
        if encoder.distance is not None:
            scores = scores + encoder.distance(real.shape[1])
        scores = scores.masked_fill(~real[:, None, None, :], float("-inf"))
        if (prefix := injection.prefixes(site)) is not None:
            scores = torch.cat([torch.einsum("sihd,sjhd->shij", q, prefix[0]) / math.sqrt(shape.head_width), scores], -1)
            v = torch.cat([prefix[1], v], dim=1)
        read = torch.einsum("shij,sjhd->sihd", scores.softmax(-1), v)
        read = pad(injection.context(read[real], site), 0.5).flatten(2)
        read = F.linear(read, block.output.weight, block.output.bias)
        middle = normalised(x + pad(injection.attended(read[real], site), 0.5), block.attention_norm)
        inner = block.activation(F.linear(middle, block.inner.weight, block.inner.bias))
        fed = F.linear(inner, block.outer.weight, block.outer.bias)
        x = normalised(middle + pad(injection.fed_forward(fed[real], site), 0.5), block.final_norm)
    return x[real]


def normalised(x, norm):
    """Mean 0, variance 1, then the norm's own weight and bias"""
    return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
