"""Keys and values per task and layer that every token reads beside those of its own sequence.

Prefix tuning (Li & Liang 2021), the vectors learned directly as in P-tuning v2 (Liu et al. 2022). Whatever its start,
a prefix draws some attention to itself, so no start is exactly BERT.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from teabert.injections.base import Injection, Site
from teabert.injections.options import LayerOptions
from teabert.injections.pertask import PAPER, PerTask
from teabert.settings import WIDEST

if TYPE_CHECKING:
    from teabert.encoder import EncoderShape


class Prefix(Injection):
    """Keys and values of each task's own before those of every sequence."""

    foldable = False
    exact_at_start = False

    class Config(LayerOptions):
        """Options of prefix; safe starts the values at zero, which is near BERT, paper starts everything normal."""

        length: int = Field(8, ge=1, le=WIDEST)
        """Keys and values per task and layer."""

    def __init__(self, config: Config, shape: "EncoderShape", tasks: Sequence[str]) -> None:
        super().__init__(config, shape, tasks)
        self.size = (2, config.length, shape.attention_heads, shape.head_width)
        self.vectors = PerTask(tasks, (self.span.rows, 2, config.length * shape.width), PAPER)
        if config.init == "safe":
            with torch.no_grad():
                for parameter in self.vectors.each():
                    parameter[:, 1].zero_()

    def prefixes(self, at: Site) -> tuple[Tensor, Tensor] | None:
        """(sequences, length, attention_heads, head_width) each"""
        if at.layer not in self.span:
            return None
        table = self.vectors.table(self.span.row(at.layer), at)
        sequences = at.task_of_sequence if len(table) > 1 else torch.zeros_like(at.task_of_sequence)
        keys, values = F.embedding(sequences, table.flatten(1)).view(-1, *self.size).to(at.input.dtype).unbind(1)
        return keys, values
