"""Tokenised rows as batches; and, for a frozen encoder, its answers kept so that every text is encoded only once."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from teabert.batches import Batch, Layout, Part, Rows, by_length, collate
from teabert.device import autocast
from teabert.model import Model

ENCODE_TOKENS = 4096
"""Tokens in a batch where nothing is learned: enough to keep the processor busy, little memory."""


class Source:
    """The rows of several tasks, handed out as packed batches."""

    def __init__(self, rows: Mapping[str, Rows], tasks: Sequence[str] | None = None) -> None:
        self.rows = dict(rows)
        self.tasks = tuple(tasks or rows)
        """the model's tasks, in its order; not all of them need to have rows here"""

    def batch(self, pairs: Iterable[Sequence[int]]) -> Batch:
        """A batch of (task index, row)"""
        return collate(((self.rows[self.tasks[task]], int(row)) for task, row in pairs), self.tasks)


class Encoded(Source):
    """The same rows, with what the frozen encoder made of them."""

    def __init__(self, source: Source, vectors: Mapping[str, tuple[Tensor, ...]]) -> None:
        super().__init__(source.rows, source.tasks)
        self.vectors = dict(vectors)
        """(rows, width) for each of a task's sequences"""

    def batch(self, pairs: Iterable[Sequence[int]]) -> Batch:
        """A batch without tokens: vectors stand for the encoded texts"""
        wanted: dict[int, list[int]] = {}
        for task, row in pairs:
            wanted.setdefault(int(task), []).append(int(row))
        parts: list[Part] = []
        pooled: list[Tensor] = []
        task_of: list[int] = []
        for task, picked in wanted.items():
            rows, vectors = self.rows[self.tasks[task]], self.vectors[self.tasks[task]]
            places = torch.arange(len(picked) * len(vectors)).view(len(vectors), -1) + len(task_of)
            second = places[1] if len(vectors) == 2 else None
            parts.append(Part(rows.task, places[0], second, torch.from_numpy(rows.labels[picked]), tuple(picked)))
            pooled += [each[picked] for each in vectors]
            task_of += [task] * places.numel()
        nothing = torch.empty(0, dtype=torch.long)
        return Batch(nothing, nothing, Layout.of([]), torch.tensor(task_of), tuple(parts), torch.cat(pooled))


def encode(model: Model, source: Source, precision: str, advance: Callable[[int], None] | None = None) -> Encoded:
    """Read every row once with the frozen encoder; `advance` hears how many rows are done."""
    model.eval()
    vectors: dict[str, tuple[Tensor, ...]] = {}
    with torch.inference_mode(), autocast(precision, model.device):
        for task, rows in source.rows.items():
            index = source.tasks.index(task)
            width = model.encoder.shape.width
            kept = tuple(torch.empty(len(rows), width) for _ in rows.sequences)
            for picked in by_length(rows, ENCODE_TOKENS):
                batch = source.batch((index, row) for row in picked).to(model.device)
                for into, read in zip(kept, model.head(task).reader(model.read(batch), batch.parts[0]), strict=False):
                    assert read is not None, "a sequence without a vector"
                    into[picked] = read.float().cpu()
                if advance:
                    advance(len(picked))
            vectors[task] = kept
    # vectors made in inference mode could not enter a backward pass
    return Encoded(source, {task: tuple(each.clone() for each in kept) for task, kept in vectors.items()})
