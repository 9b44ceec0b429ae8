"""A vector per task added to every token's embedding, as BERT adds one per segment: E + E_task (TEA-BERT)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from teabert.injections.base import Injection, Site
from teabert.injections.options import Options
from teabert.injections.pertask import PAPER, PerTask, spread

if TYPE_CHECKING:
    from teabert.encoder import Encoder, EncoderShape


class Input(Injection):
    """E + E_task."""

    class Config(Options):
        """Options of input."""

        place: Literal["before", "after"] = "before"
        """Added before the embeddings' LayerNorm, as a segment is, or after it."""

    def __init__(self, config: Config, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__(config, shape, tasks)
        self.place = config.place
        self.vectors = PerTask(tasks, (1, shape.width), PAPER if config.init == "paper" else 0.0)

    @property
    def first(self) -> int:
        """In the embeddings"""
        return -1

    def embedded(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width)"""
        return self._add(x, at) if self.place == "before" else x

    def normalised(self, x: Tensor, at: Site) -> Tensor:
        """x: (tokens, width)"""
        return self._add(x, at) if self.place == "after" else x

    def _add(self, x: Tensor, at: Site) -> Tensor:
        return x + spread(self.vectors.table(0, at), at.task_of_token, x)

    @torch.no_grad()
    def fold_into(self, encoder: "Encoder", task: str) -> None:
        """Every token has one position: the vector goes into that table, or into the LayerNorm's bias"""
        before = self.place == "before"
        table = encoder.embeddings.position.weight if before else encoder.embedding_norm.bias
        table += self.vectors[task][0]
