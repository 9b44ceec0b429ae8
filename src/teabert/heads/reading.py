"""Readers: from the encoder's token states to one vector per sequence."""

from functools import cached_property
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.batches import Layout, Part
from teabert.encoder import Encoder, EncoderShape
from teabert.settings import DEEPEST, Settings


class Reading:
    """What the encoder made of one batch; poolings that several tasks want are computed once."""

    def __init__(self, states: Tensor, layout: Layout, encoder: Encoder) -> None:
        self.states = states  # (tokens, width)
        self.layout = layout
        self.encoder = encoder

    @cached_property
    def pooled(self) -> Tensor:
        """(sequences, width): BERT's pooler on the first token"""
        return self.encoder.pool(self.states, self.layout)

    @cached_property
    def first(self) -> Tensor:
        """(sequences, width): the bare first token"""
        return F.embedding(self.layout.starts, self.states)  # whose gradient is made in one pass, unlike an index's

    @cached_property
    def mean(self) -> Tensor:
        """(sequences, width): the mean over all real tokens, [CLS] and [SEP] included"""
        states = self.states.float() if self.states.dtype == torch.bfloat16 else self.states  # bf16 sums too coarsely
        if states.is_cuda:  # in one order, so that the same bits come out every time
            summed = torch.segment_reduce(states, "sum", offsets=self.layout.bounds, axis=0, unsafe=True)
            return summed / self.layout.sizes.unsqueeze(1)
        if self.layout.lengths == (len(states),):  # one text, read alone: in few calls
            return states.mean(0, keepdim=True)
        total = states.new_zeros(len(self.layout.sizes), states.shape[1])
        return total.index_add(0, self.layout.sequence_of_token, states) / self.layout.sizes.unsqueeze(1)


class Reader(nn.Module):
    """Base of all readers."""

    keeps: Literal["vectors", "states"] = "vectors"
    """What of a frozen encoder's answer can be kept: the vectors, where nothing in the reader learns, else the states."""
    pools = False
    """Whether BERT's pooler is read."""

    class Config(Settings):
        """No options."""

    def __init__(self, config: Settings, shape: EncoderShape, sequences: int) -> None:
        super().__init__()

    def forward(self, reading: Reading, part: Part) -> tuple[Tensor, Tensor | None]:
        """The vectors of each example's first (or only) and second sequence, (examples, width) each"""
        vectors = self.vectors(reading)
        return F.embedding(part.first, vectors), None if part.second is None else F.embedding(part.second, vectors)

    def vectors(self, reading: Reading) -> Tensor:
        """One vector for every sequence of the batch, (sequences, width)"""
        raise NotImplementedError


class FirstToken(Reader):
    """The first token, through BERT's pooler (as published) or bare."""

    class Config(Settings):
        """Options of first_token."""

        pooler: bool = True
        """Apply BERT's pooler (a tanh layer), where the encoder has one."""

    def __init__(self, config: Config, shape: EncoderShape, sequences: int) -> None:
        super().__init__(config, shape, sequences)
        self.pools = config.pooler

    def vectors(self, reading: Reading) -> Tensor:
        """(sequences, width)"""
        return reading.pooled if self.pools else reading.first


class Perceptron(Reader):
    """The mean of all token states, then inner layers of the task's own: what attention is to be compared with."""

    keeps = "states"

    class Config(Settings):
        """Options of mlp."""

        times: int = Field(2, ge=1, le=64)
        """The inner layer is so many times as wide as the encoder; at 2 a pair is as large as a bare attention layer."""
        layers: int = Field(1, ge=1, le=DEEPEST)
        """How many such pairs of layers, one after another."""

    def __init__(self, config: Config, shape: EncoderShape, sequences: int) -> None:
        super().__init__(config, shape, sequences)
        inner = config.times * shape.width
        pairs = [(nn.Linear(shape.width, inner), nn.GELU(), nn.Linear(inner, shape.width)) for _ in range(config.layers)]
        self.layers = nn.Sequential(*(layer for pair in pairs for layer in pair))

    def vectors(self, reading: Reading) -> Tensor:
        """(sequences, width)"""
        found: Tensor = self.layers(reading.mean)
        return found


class Mean(Reader):
    """The mean of all token states."""

    def vectors(self, reading: Reading) -> Tensor:
        """(sequences, width)"""
        return reading.mean
