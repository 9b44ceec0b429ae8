"""Packed batches: tokenised examples in, one row of real tokens out, with where every sequence lies.

No padding anywhere: all sequences stand end to end, shortest first, so that sequences of (nearly) equal length are
neighbours and attention runs over a few dense groups. Tasks mix freely; every sequence carries its task.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
import torch
from torch import Tensor

SLACK = 1.15
"""A group of neighbours may be padded inside attention up to this many times its real tokens."""


@dataclass(frozen=True)
class Group:
    """Neighbouring sequences that attention treats as one dense block."""

    tokens: slice
    sequences: int
    longest: int
    places: Tensor | None
    """(tokens,) where each token lies in the padded (sequences * longest) grid; None where all are equally long."""
    real: Tensor | None
    """(sequences, 1, 1, longest) true for real tokens; None where all are equally long."""


@dataclass(frozen=True)
class Layout:
    """Where the sequences of a pack lie."""

    lengths: tuple[int, ...]
    """of each sequence; empty where the layout is fixed"""
    sizes: Tensor
    """(sequences,) the same"""
    longest: int
    """no sequence is longer"""
    starts: Tensor
    """(sequences,) the first token of each sequence"""
    bounds: Tensor
    """(sequences + 1,) where each sequence begins and the last one ends"""
    sequence_of_token: Tensor
    """(tokens,)"""
    place_of_token: Tensor
    """(tokens,) 0 at the start of each sequence"""
    groups: tuple[Group, ...]
    fixed: bool = False
    """Shapes do not depend on the sequences: only the tensors know where they lie, and nobody may ask them in between."""

    @classmethod
    def of(cls, lengths: Sequence[int], slack: float = SLACK) -> "Layout":
        """The layout of sequences with these lengths, in this order."""
        return _alone(lengths[0]) if len(lengths) == 1 else cls.made(lengths, slack)

    @classmethod
    def made(cls, lengths: Sequence[int], slack: float = SLACK) -> Self:
        """The same, made anew"""
        sizes = np.asarray(lengths, dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        sequence_of_token = np.repeat(np.arange(len(sizes)), sizes)
        place_of_token = np.arange(int(sizes.sum())) - starts[sequence_of_token]
        groups = tuple(_group(sizes[a:b], int(starts[a])) for a, b in _neighbours(sizes, slack))
        return cls(
            tuple(int(size) for size in sizes),
            torch.from_numpy(sizes),
            int(sizes.max(initial=0)),
            torch.from_numpy(starts),
            torch.from_numpy(np.append(starts, sizes.sum())),
            torch.from_numpy(sequence_of_token),
            torch.from_numpy(place_of_token),
            groups,
        )

    def to(self, device: torch.device) -> "Layout":
        """The same layout on another device."""
        groups = tuple(
            replace(
                group,
                places=None if group.places is None else group.places.to(device),
                real=None if group.real is None else group.real.to(device),
            )
            for group in self.groups
        )
        return replace(
            self,
            sizes=self.sizes.to(device),
            starts=self.starts.to(device),
            bounds=self.bounds.to(device),
            sequence_of_token=self.sequence_of_token.to(device),
            place_of_token=self.place_of_token.to(device),
            groups=groups,
        )


@lru_cache(maxsize=1024)
def _alone(length: int) -> Layout:
    """The layout of one sequence, made once"""
    with torch.inference_mode(False):  # what comes next may learn
        return Layout.made([length])


def _neighbours(sizes: np.ndarray, slack: float) -> Iterator[tuple[int, int]]:
    """Cut the sequences into runs whose padded size stays within the slack."""
    start, real, longest = 0, 0, 0
    for index, size in enumerate(sizes.tolist()):
        wider = max(longest, size)
        if index > start and wider * (index - start + 1) > slack * (real + size):
            yield start, index
            start, real, wider = index, 0, size
        real, longest = real + size, wider
    if len(sizes):
        yield start, len(sizes)


def _group(sizes: np.ndarray, first: int) -> Group:
    total, longest, count = int(sizes.sum()), int(sizes.max()), len(sizes)
    tokens = slice(first, first + total)
    if total == longest * count:
        return Group(tokens, count, longest, None, None)
    real = np.arange(longest)[None, :] < sizes[:, None]  # (sequences, longest)
    places = np.flatnonzero(real.reshape(-1))
    return Group(tokens, count, longest, torch.from_numpy(places), torch.from_numpy(real[:, None, None, :]))


@dataclass(frozen=True)
class Rows:
    """The tokenised rows of one task and split."""

    task: str
    sequences: tuple[list[np.ndarray], ...]
    """one list of token ids per sequence of an example: one list for single texts and joined pairs, two for pairs apart"""
    second_text: list[int] | None
    """for joined pairs: the token where the second text begins"""
    labels: np.ndarray
    """(rows,) or (rows, labels); not-a-number where the split has no labels"""
    names: tuple[str, ...]
    """the rows' ids, or their line numbers"""

    def __len__(self) -> int:
        return len(self.names)

    def lengths(self) -> np.ndarray:
        """Tokens of each example, all its sequences together."""
        return np.array([[len(ids) for ids in part] for part in self.sequences], dtype=np.int64).sum(axis=0)


@dataclass(frozen=True)
class Part:
    """The examples of one task inside a batch."""

    task: str
    first: Tensor
    """(examples,) the sequence that holds the first (or only) text"""
    second: Tensor | None
    """(examples,) the sequence of the second text, for pairs encoded apart"""
    labels: Tensor
    """(examples,) or (examples, labels)"""
    rows: tuple[int, ...]
    """which rows of the task these are"""
    counted: Tensor | None = None
    """(examples,) where the layout is fixed: 1 for an example, 0 for a seat left empty"""


@dataclass(frozen=True)
class Shared:
    """The different sequences of a batch, each once: what all tasks read alike is computed on these."""

    ids: Tensor
    """(tokens of the different sequences,)"""
    segments: Tensor
    """(tokens of the different sequences,)"""
    layout: Layout
    sequence: Tensor
    """(sequences of the batch,) which of the different sequences each is"""
    token: Tensor
    """(tokens of the batch,) which of their tokens each is"""

    def to(self, device: torch.device) -> "Shared":
        """The same on another device."""
        moved = {name: getattr(self, name).to(device) for name in ("ids", "segments", "layout", "sequence", "token")}
        return Shared(**moved)


@dataclass(frozen=True)
class Batch:
    """Real tokens end to end, and what they belong to."""

    ids: Tensor
    """(tokens,)"""
    segments: Tensor
    """(tokens,) 1 in the second text of a joined pair, else 0"""
    layout: Layout
    task_of_sequence: Tensor
    """(sequences,) index into the model's tasks"""
    parts: tuple[Part, ...]
    pooled: Tensor | None = None
    """(sequences, width) where the frozen encoder's answer is already known"""
    states: Tensor | None = None
    """(tokens, width) where its token states are; ids then mean nothing"""
    shared: Shared | None = None
    """where some sequences are the same, which"""
    seed: Tensor | None = None
    """(1,) where the dropout of kernels begins; without one they draw their own"""

    def merged(self) -> "Batch":
        """The batch with each of its different sequences once, for an encoder that reads every task's texts alike."""
        if self.shared is None:
            return self
        once = self.shared.sequence
        parts = (replace(part, first=once[part.first], second=_at(once, part.second)) for part in self.parts)
        of = torch.zeros(len(self.shared.layout.starts), dtype=torch.long, device=once.device)
        return replace(
            self,
            ids=self.shared.ids,
            segments=self.shared.segments,
            layout=self.shared.layout,
            task_of_sequence=of,
            parts=tuple(parts),
            shared=None,
        )

    @property
    def examples(self) -> int:
        """How many examples, all tasks together."""
        return sum(len(part.rows) for part in self.parts)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        parts = tuple(
            replace(
                part,
                first=part.first.to(device),
                second=None if part.second is None else part.second.to(device),
                labels=part.labels.to(device),
            )
            for part in self.parts
        )
        return replace(
            self,
            ids=self.ids.to(device),
            segments=self.segments.to(device),
            layout=self.layout.to(device),
            task_of_sequence=self.task_of_sequence.to(device),
            parts=parts,
            pooled=None if self.pooled is None else self.pooled.to(device),
            states=None if self.states is None else self.states.to(device),
            shared=None if self.shared is None else self.shared.to(device),
            seed=None if self.seed is None else self.seed.to(device),
        )


def _at(once: Tensor, sequences: Tensor | None) -> Tensor | None:
    return None if sequences is None else once[sequences]


def collate(chosen: Iterable[tuple[Rows, int]], tasks: Sequence[str], share: bool = False) -> Batch:
    """Pack chosen rows, of any mix of tasks, into one batch; sequences are laid out shortest first.

    share: texts that several tasks (or rows) have in common are read once, as far up as no task is told apart.
    """
    wanted: dict[str, tuple[Rows, list[int]]] = {}
    for rows, row in chosen:
        wanted.setdefault(rows.task, (rows, []))[1].append(row)
    sequences: list[np.ndarray] = []
    seconds: list[int] = []
    task_of: list[int] = []
    for task, (rows, picked) in wanted.items():
        for part in rows.sequences:
            sequences += [part[row] for row in picked]
            task_of += [tasks.index(task)] * len(picked)
            seconds += [rows.second_text[row] if rows.second_text else len(part[row]) for row in picked]
    order = sorted(range(len(sequences)), key=lambda place: len(sequences[place]))
    sequences, seconds = [sequences[place] for place in order], [seconds[place] for place in order]
    ids, segments, layout = _lay_end_to_end(sequences, seconds)
    where = {sequence: place for place, sequence in enumerate(order)}
    shared = _shared(sequences, seconds, layout) if share else None
    parts = tuple(_parts(wanted, where))
    return Batch(ids, segments, layout, _numbers([task_of[place] for place in order]), parts, shared=shared)


def _numbers(numbers: Sequence[int]) -> Tensor:
    return torch.from_numpy(np.array(numbers, np.int64))  # twice as fast as torch.tensor


def _lay_end_to_end(sequences: Sequence[np.ndarray], seconds: Sequence[int]) -> tuple[Tensor, Tensor, Layout]:
    """Ids, segments and layout of sequences in this order; `seconds`: the token where each one's second text begins"""
    layout = Layout.of([len(ids) for ids in sequences])
    ids = torch.from_numpy(np.concatenate(sequences, dtype=np.int64))
    if all(second >= length for second, length in zip(seconds, layout.lengths, strict=True)):
        return ids, torch.zeros_like(ids), layout
    segments = (layout.place_of_token >= torch.tensor(seconds)[layout.sequence_of_token]).long()
    return ids, segments, layout


def _shared(sequences: Sequence[np.ndarray], seconds: Sequence[int], layout: Layout) -> Shared | None:
    """Which sequences are the same; nothing where all differ"""
    known: dict[tuple[bytes, int], int] = {}
    if len(sequences) == 1:
        return None
    keys = ((ids.astype(np.int64).tobytes(), min(second, len(ids))) for ids, second in zip(sequences, seconds, strict=True))
    of = np.array([known.setdefault(key, len(known)) for key in keys])
    if len(known) == len(sequences):
        return None
    first = np.unique(of, return_index=True)[1]  # they stand in order of length, as the sequences do
    ids, segments, once = _lay_end_to_end([sequences[place] for place in first], [seconds[place] for place in first])
    sequence = torch.from_numpy(of)
    token = once.starts[sequence][layout.sequence_of_token] + layout.place_of_token
    return Shared(ids, segments, once, sequence, token)


def _parts(wanted: dict[str, tuple[Rows, list[int]]], where: Mapping[int, int]) -> Iterator[Part]:
    start = 0
    for task, (rows, picked) in wanted.items():
        count, texts = len(picked), len(rows.sequences)
        first = _numbers([where[start + row] for row in range(count)])
        second = _numbers([where[start + count + row] for row in range(count)]) if texts == 2 else None
        yield Part(task, first, second, torch.from_numpy(rows.labels[picked]), tuple(picked))
        start += texts * count


def by_length(rows: Rows, tokens: int) -> Iterator[list[int]]:
    """All rows, shortest first, cut into batches of at most so many tokens: for encoding and evaluation."""
    lengths = rows.lengths()
    batch: list[int] = []
    used = 0
    for row in np.argsort(lengths, kind="stable").tolist():
        if batch and used + lengths[row] > tokens:
            yield batch
            batch, used = [], 0
        batch.append(row)
        used += int(lengths[row])
    if batch:
        yield batch
