"""Answers: from the vector of a text (or the two vectors of a pair encoded apart) to the task's outputs."""

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.settings import WIDEST, Settings

Stretch = Literal["none", "raw", "sigmoid"]
"""How a head's number becomes a score in the range of its task: as it is; stretched over the range, 0 to its lowest and 1
to its highest, so 5x for STS; or the same after a sigmoid."""


def stretched(outputs: Tensor, how: Stretch, span: tuple[float, float]) -> Tensor:
    """Numbers -> scores, of the same shape"""
    if how == "none":
        return outputs
    low, high = span
    return low + (high - low) * (torch.sigmoid(outputs) if how == "sigmoid" else outputs)


class Answer(nn.Module):
    """Base of all answers."""

    apart = False
    """It needs the two texts of a pair encoded apart."""
    kinds: tuple[str, ...] = ("classes", "soft", "ordinal", "binary", "multilabel", "score")
    """The kinds of task it fits."""

    class Config(Settings):
        """No options."""

    stretch: Stretch = "none"
    """How its number usually becomes a score; see Stretch."""

    def __init__(self, config: Settings, width: int, outputs: int) -> None:
        super().__init__()

    def forward(self, first: Tensor, second: Tensor | None) -> Tensor:
        """(examples, width) -> (examples, outputs)"""
        raise NotImplementedError


class Linear(Answer):
    """One linear layer on the text's vector."""

    joins = 1
    join: Callable[[Tensor, Tensor | None], Tensor] = staticmethod(lambda first, second: first)

    def __init__(self, config: Settings, width: int, outputs: int) -> None:
        super().__init__(config, width, outputs)
        self.linear = nn.Linear(self.joins * width, outputs)

    def forward(self, first: Tensor, second: Tensor | None) -> Tensor:
        """(examples, width) -> (examples, outputs)"""
        outputs: Tensor = self.linear(self.join(first, second))
        return outputs


class Coral(Answer):
    """For labels in order: one direction shared by all thresholds, which differ in their bias only (Cao et al. 2020)."""

    kinds = ("ordinal",)

    def __init__(self, config: Settings, width: int, outputs: int) -> None:
        super().__init__(config, width, outputs)
        self.direction = nn.Linear(width, 1, bias=False)
        self.thresholds = nn.Parameter(torch.linspace(1, -1, outputs))  # the higher, the harder to pass

    def forward(self, first: Tensor, second: Tensor | None) -> Tensor:
        """(examples, width) -> (examples, labels - 1)"""
        return self.direction(first) + self.thresholds


class Concatenated(Linear):
    """One linear layer on the two vectors side by side (TEA-BERT)."""

    apart = True
    joins = 2
    join = staticmethod(lambda first, second: torch.cat([first, second], dim=-1))


class Difference(Linear):
    """One linear layer on u, v and |u - v| (Reimers & Gurevych 2019)."""

    apart = True
    joins = 3
    join = staticmethod(lambda first, second: torch.cat([first, second, (first - second).abs()], dim=-1))


class Dot(Answer):
    """Dot product of one shared projection of both vectors (Task-specific attention)."""

    apart = True
    kinds = ("binary", "score")  # it gives one number

    class Config(Settings):
        """Options of dot."""

        width: int = Field(768, ge=1, le=WIDEST)
        """Width of the projection; the paper takes 768 for Quora and 3072 for STS."""

    def __init__(self, config: Config, width: int, outputs: int) -> None:
        super().__init__(config, width, outputs)
        self.projection = nn.Linear(width, config.width)

    def forward(self, first: Tensor, second: Tensor | None) -> Tensor:
        """(examples, width) -> (examples, 1)"""
        assert second is not None, "a dot product needs two vectors"
        return (self.projection(first) * self.projection(second)).sum(-1, keepdim=True)


class Cosine(Answer):
    """ReLU of the cosine, usually stretched over the task's range: 5 ReLU(cos) for STS (TEA-BERT)."""

    apart = True
    kinds = ("score",)  # never below zero, so as a yes or no it would hardly ever say no
    stretch = "raw"

    def forward(self, first: Tensor, second: Tensor | None) -> Tensor:
        """(examples, width) -> (examples, 1)"""
        assert second is not None, "a cosine needs two vectors"
        return F.relu(F.cosine_similarity(first, second, dim=-1)).unsqueeze(-1)
