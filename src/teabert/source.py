"""Tokenised rows as batches; and, for a frozen encoder, its answers kept so that every text is encoded only once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from teabert.batches import Batch, Layout, Part, Rows, by_length, collate
from teabert.device import autocast
from teabert.model import Model

ENCODE_TOKENS = 4096
"""Tokens in a batch where nothing is learned: enough to keep the processor busy, little memory."""
GPU_TOKENS = 65536
"""The same on a GPU."""
KEPT_TOKENS = 8 * 2**20
"""Tokens of batches that a GPU keeps for the next time they are judged: a third of a gigabyte."""


def tokens_at_once(device: torch.device) -> int:
    """Tokens in a batch where nothing is learned"""
    return GPU_TOKENS if device.type == "cuda" else ENCODE_TOKENS


class Source:
    """The rows of several tasks, handed out as packed batches."""

    def __init__(self, rows: Mapping[str, Rows], tasks: Sequence[str] | None = None) -> None:
        self.rows = dict(rows)
        self.tasks = tuple(tasks or rows)
        """the model's tasks, in its order; not all of them need to have rows here"""
        self.laid_out: tuple[torch.device, list[Batch]] | None = None
        """every row once, on the device where they were swept before"""

    def batch(self, pairs: Iterable[Sequence[int]]) -> Batch:
        """A batch of (task index, row)"""
        return collate(((self.rows[self.tasks[task]], int(row)) for task, row in pairs), self.tasks)

    def sweep(
        self, device: torch.device, advance: Callable[[int], None] | None = None
    ) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Every row once, a task's texts of like length together: the task, and the (task index, row) of a batch"""
        for task, rows in self.rows.items():
            index = self.tasks.index(task)
            for picked in by_length(rows, tokens_at_once(device)):
                yield task, [(index, row) for row in picked]
                if advance:
                    advance(len(picked))

    def all(self, device: torch.device, advance: Callable[[int], None] | None = None) -> Iterator[Batch]:
        """Every row once, as batches of one task; a GPU has room to keep them for the next time"""
        if self.laid_out is not None and self.laid_out[0] == device:
            for batch in self.laid_out[1]:
                yield batch
                if advance:
                    advance(batch.examples)
            return
        fits = sum(int(rows.lengths().sum()) for rows in self.rows.values()) <= KEPT_TOKENS
        keeps = device.type == "cuda" and fits and type(self) is Source  # what an encoder answered is large
        kept: list[Batch] = []
        for _, pairs in self.sweep(device, advance):
            batch = self.batch(pairs).to(device)
            kept += [batch] if keeps else []
            yield batch
        self.laid_out = (device, kept) if kept else None


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


class EncodedStates(Source):
    """The same rows, with the frozen encoder's state of every token: for readers that learn."""

    def __init__(self, source: Source, width: int) -> None:
        super().__init__(source.rows, source.tasks)
        self.numbers = Source({task: self._number(rows) for task, rows in source.rows.items()}, source.tasks)
        self.table = torch.empty(self.count, width)
        """(tokens of all rows, width)"""

    count = 0

    def _number(self, rows: Rows) -> Rows:
        """The same rows, each token replaced by its place in the table"""
        sequences: list[list[np.ndarray]] = []
        for part in rows.sequences:
            ends = self.count + np.cumsum([len(ids) for ids in part])
            sequences.append([np.arange(end - len(ids), end) for ids, end in zip(part, ends.tolist(), strict=True)])
            self.count = int(ends[-1])
        return replace(rows, sequences=tuple(sequences))

    def batch(self, pairs: Iterable[Sequence[int]]) -> Batch:
        """A batch whose token states are known"""
        batch = self.numbers.batch(pairs)
        return replace(batch, states=self.table.index_select(0, batch.ids))


def encode_states(
    model: Model, source: Source, precision: str, advance: Callable[[int], None] | None = None
) -> EncodedStates:
    """Read every row once with the frozen encoder and keep all token states."""
    model.eval()
    encoded = EncodedStates(source, model.encoder.shape.width)
    with torch.no_grad(), autocast(precision, model.device):
        for _, pairs in source.sweep(model.device, advance):
            states = model.read(source.batch(pairs).to(model.device)).states
            encoded.table[encoded.numbers.batch(pairs).ids] = states.float().cpu()
    return encoded


def encode(model: Model, source: Source, precision: str, advance: Callable[[int], None] | None = None) -> Encoded:
    """Read every row once with the frozen encoder; `advance` hears how many rows are done."""
    model.eval()
    width = model.encoder.shape.width
    vectors = {task: tuple(torch.empty(len(rows), width) for _ in rows.sequences) for task, rows in source.rows.items()}
    with torch.no_grad(), autocast(precision, model.device):  # no_grad: inference tensors enter no backward pass
        for task, pairs in source.sweep(model.device, advance):
            batch = source.batch(pairs).to(model.device)
            part = batch.parts[0]
            for into, read in zip(vectors[task], model.head(task).reader(model.read(batch), part), strict=False):
                assert read is not None, "a sequence without a vector"
                into[list(part.rows)] = read.float().cpu()
    return Encoded(source, vectors)
