"""Answers: from the vector of a text (or the two vectors of a pair encoded apart) to the task's outputs."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.settings import Settings


class Answer(nn.Module):
    """Base of all answers."""

    apart = False
    """It needs the two texts of a pair encoded apart."""
    kinds: tuple[str, ...] = ("classes", "ordinal", "binary", "multilabel", "score")
    """The kinds of task it fits."""

    class Config(Settings):
        """No options."""

    def __init__(self, config: Settings, width: int, outputs: int, span: tuple[float, float]) -> None:
        super().__init__()

    def forward(self, first: Tensor, second: Tensor | None) -> Tensor:
        """(examples, width) -> (examples, outputs)"""
        raise NotImplementedError


class Linear(Answer):
    """One linear layer on the text's vector; a score comes out as it is, or squashed into the task's range."""

    class Config(Settings):
        """Options of linear."""

        squash: bool = False
        """For scores: a sigmoid, stretched over the task's range."""

    joins = 1
    join: Callable[[Tensor, Tensor | None], Tensor] = staticmethod(lambda first, second: first)

    def __init__(self, config: Config, width: int, outputs: int, span: tuple[float, float]) -> None:
        super().__init__(config, width, outputs, span)
        self.linear = nn.Linear(self.joins * width, outputs)
        self.squash, self.span = config.squash, span

    def forward(self, first: Tensor, second: Tensor | None) -> Tensor:
        """(examples, width) -> (examples, outputs)"""
        outputs = self.linear(self.join(first, second))
        if not self.squash:
            return outputs
        low, high = self.span
        return low + (high - low) * torch.sigmoid(outputs)


class Coral(Answer):
    """For labels in order: one direction shared by all thresholds, which differ in their bias only (Cao et al. 2020)."""

    kinds = ("ordinal",)

    def __init__(self, config: Settings, width: int, outputs: int, span: tuple[float, float]) -> None:
        super().__init__(config, width, outputs, span)
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

        width: int = 768
        """Width of the projection; the paper takes 768 for Quora and 3072 for STS."""

    def __init__(self, config: Config, width: int, outputs: int, span: tuple[float, float]) -> None:
        super().__init__(config, width, outputs, span)
        self.projection = nn.Linear(width, config.width)

    def forward(self, first: Tensor, second: Tensor | None) -> Tensor:
        """(examples, width) -> (examples, 1)"""
        assert second is not None, "a dot product needs two vectors"
        return (self.projection(first) * self.projection(second)).sum(-1, keepdim=True)


class Cosine(Answer):
    """ReLU of the cosine, stretched over the task's range: 5 ReLU(cos) for STS (TEA-BERT)."""

    apart = True
    kinds = ("score",)  # never below zero, so as a yes or no it would hardly ever say no

    def __init__(self, config: Settings, width: int, outputs: int, span: tuple[float, float]) -> None:
        super().__init__(config, width, outputs, span)
        self.span = span

    def forward(self, first: Tensor, second: Tensor | None) -> Tensor:
        """(examples, width) -> (examples, 1)"""
        assert second is not None, "a cosine needs two vectors"
        low, high = self.span
        return (low + (high - low) * F.relu(F.cosine_similarity(first, second, dim=-1))).unsqueeze(-1)
