"""Batches of few shapes: a mold has room for so many tokens, sequences and examples, and every step that fits fills it.

On a GPU a step of a few sentences is mostly waiting for Python. Where shapes do not change, the whole step is recorded once
and played back (capturing.py). Room that a step does not need is taken by fillers: sequences that no head reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor

from teabert.batches import Batch, Group, Layout, Part, Rows
from teabert.sampling import Pairs

STEP = 128
"""Room for tokens comes in multiples of this, or of an eighth of the power of two below, if that is more."""
SHORTEST = 32
"""The longest sequence is rounded up to a power of two, at least this, but to no more than the encoder reads."""
Wanted = dict[str, list[int]]
"""The rows of each task."""


@dataclass(frozen=True)
class Seats:
    """Room for examples of one task."""

    task: str
    index: int
    """of the task among the model's"""
    examples: int
    sequences: int
    """of each example: 2 for pairs encoded apart"""
    labels: tuple[int, ...]
    """the shape of an example's label: nothing for one number"""


@dataclass(frozen=True)
class Mold:
    """The shape of a batch."""

    tokens: int
    sequences: int
    longest: int
    seats: tuple[Seats, ...]

    @classmethod
    def of(
        cls,
        wanted: Wanted,
        rows: Mapping[str, Rows],
        tasks: Sequence[str],
        room: int,
        exact: Sequence[str] = (),
        readable: int = 512,
        seated: Sequence[str] = (),
    ) -> Self:
        """The mold that these rows fit. Every task that is met has as many seats as the batch has room, so that it does
        not matter how many examples are whose; but one in `exact` no more than it takes, as its loss compares them.
        readable: the most tokens that the encoder reads as one sequence, be it a filler; seated: tasks that have seats even
        where none of their rows are wanted"""
        total = sum(map(len, wanted.values()))
        room = room if total <= room else 1 << (total - 1).bit_length()
        met = [task for task in tasks if task in wanted or task in seated]
        seats = tuple(_seats(task, wanted.get(task, []), rows[task], tasks, room, exact) for task in met)
        sizes = [len(ids) for task in wanted for ids in _sequences(rows[task], wanted[task])]
        longest = min(readable, max(SHORTEST, 1 << (max(sizes) - 1).bit_length()))
        step = _step(sum(sizes))
        tokens = -(-sum(sizes) // step) * step
        own = room * max(each.sequences for each in seats)
        return cls(tokens, own + -(-_step(tokens) // longest), longest, seats)

    def _ints(self) -> Iterator[int]:
        yield from (self.tokens,) * 5
        yield from (self.sequences,) * 3
        yield from (self.sequences + 1, 1)
        for each in self.seats:
            yield from (each.examples,) * each.sequences

    def _floats(self) -> Iterator[int]:
        yield 1
        for each in self.seats:
            yield from (each.examples * int(np.prod(each.labels)), each.examples)


def _seats(task: str, picked: list[int], rows: Rows, tasks: Sequence[str], room: int, exact: Sequence[str]) -> Seats:
    examples = len(picked) if task in exact else room
    return Seats(task, tasks.index(task), examples, len(rows.sequences), rows.labels.shape[1:])


def wanted_rows(pairs: Pairs, tasks: Sequence[str]) -> Wanted:
    """(task index, row) -> the rows of each task, in the order of the tasks"""
    return {tasks[task]: pairs[pairs[:, 0] == task, 1].tolist() for task in sorted(set(pairs[:, 0].tolist()))}


def _sequences(rows: Rows, picked: Sequence[int]) -> Iterator[np.ndarray]:
    """The token ids of all first texts, then of all second ones"""
    return (part[row] for part in rows.sequences for row in picked)


def _step(tokens: int) -> int:
    return max(STEP, (1 << (tokens.bit_length() - 1)) // 8)


class Frame:
    """A mold's tensors, which stay where they are while their contents change."""

    def __init__(self, mold: Mold, device: torch.device, pinned: bool = False) -> None:
        self.mold = mold
        make = partial(torch.zeros, device=device, pin_memory=pinned)
        self.ints = make(sum(mold._ints()), dtype=torch.long)
        self.floats = make(sum(mold._floats()), dtype=torch.float32)
        self.flags = make(mold.sequences * mold.longest, dtype=torch.bool)
        self.examples, self.batch = self._cut()

    def _cut(self) -> tuple[Tensor, Batch]:
        """Views of the three: how many examples there are, and the batch"""
        mold = self.mold
        ints, floats = iter(self.ints.split(list(mold._ints()))), iter(self.floats.split(list(mold._floats())))
        ids, segments, sequence_of_token, place_of_token, places = (next(ints) for _ in range(5))
        sizes, starts, task_of_sequence = (next(ints) for _ in range(3))
        bounds, seed = next(ints), next(ints)
        examples = next(floats)
        real = self.flags.view(mold.sequences, 1, 1, mold.longest)
        group = Group(slice(0, mold.tokens), mold.sequences, mold.longest, places, real)
        layout = Layout((), sizes, mold.longest, starts, bounds, sequence_of_token, place_of_token, (group,), fixed=True)
        parts = []
        for each in mold.seats:
            first, second = next(ints), next(ints) if each.sequences == 2 else None
            labels = next(floats).view(each.examples, *each.labels)
            parts.append(Part(each.task, first, second, labels, (), next(floats)))
        return examples, Batch(ids, segments, layout, task_of_sequence, tuple(parts), seed=seed)

    def take(self, other: "Frame") -> None:
        """The contents of another frame of the same mold"""
        for mine, theirs in ((self.ints, other.ints), (self.floats, other.floats), (self.flags, other.flags)):
            mine.copy_(theirs, non_blocking=True)

    def fill(self, wanted: Wanted, rows: Mapping[str, Rows], seed: int = 0) -> None:
        """Rows into the frame, which lies in the processor's memory; the seed is that of the step's dropout"""
        batch, layout, mold = self.batch, self.batch.layout, self.mold
        found = [ids for task in wanted for ids in _sequences(rows[task], wanted[task])]
        sizes = _with_fillers([len(ids) for ids in found], mold)
        starts = np.cumsum(sizes) - sizes
        sequence = np.repeat(np.arange(mold.sequences), sizes)
        place = np.arange(mold.tokens) - starts[sequence]
        real = int(sizes[: len(found)].sum())
        _write(batch.ids, np.concatenate([*found, np.zeros(mold.tokens - real, dtype=np.int64)]))
        _write(layout.sizes, np.maximum(sizes, 1))  # a mean over nothing would be no number
        _write(layout.starts, np.minimum(starts, mold.tokens - 1))  # of an empty filler at the end
        _write(layout.bounds, np.append(starts, mold.tokens))
        _write(layout.sequence_of_token, sequence)
        _write(layout.place_of_token, place)
        places = layout.groups[0].places
        assert places is not None, "a mold's group is padded"
        _write(places, sequence * mold.longest + place)
        self.flags.view(mold.sequences, mold.longest).numpy()[:] = np.arange(mold.longest) < layout.sizes.numpy()[:, None]
        self._seat(wanted, rows, place, sequence)
        self.examples.fill_(sum(map(len, wanted.values())))
        assert batch.seed is not None, "a frame has a seed"
        batch.seed.fill_(seed)

    def _seat(self, wanted: Wanted, rows: Mapping[str, Rows], place: np.ndarray, sequence: np.ndarray) -> None:
        """Which sequences are whose, where second texts begin, and the labels"""
        batch = self.batch
        task_of, second_begins = (
            np.zeros(self.mold.sequences, dtype=np.int64),
            np.full(self.mold.sequences, self.mold.tokens),
        )
        next_one = 0
        for part, seats in zip(batch.parts, self.mold.seats, strict=True):
            mine, picked = rows[part.task], wanted.get(part.task, [])
            for into in (part.first, part.second):
                if into is not None:
                    _write(into, np.arange(next_one, next_one + len(picked)))
                    task_of[next_one : next_one + len(picked)] = seats.index
                    if mine.second_text:
                        second_begins[next_one : next_one + len(picked)] = [mine.second_text[row] for row in picked]
                    next_one += len(picked)
            _write(part.labels, mine.labels[picked])
            assert part.counted is not None, "a seat that may be empty"
            _write(part.counted, np.ones(len(picked)))
        _write(batch.task_of_sequence, task_of)
        _write(batch.segments, place >= second_begins[sequence])


def _with_fillers(sizes: list[int], mold: Mold) -> np.ndarray:
    """The sequences' lengths, and those of the fillers that take the tokens left"""
    fillers = mold.sequences - len(sizes)
    left = mold.tokens - sum(sizes)
    assert 0 <= left <= fillers * mold.longest, f"{sizes} do not fit {mold}"
    return np.array(sizes + [min(mold.longest, max(0, left - n * mold.longest)) for n in range(fillers)])


def _write(into: Tensor, values: np.ndarray) -> None:
    """Values at the front, zeros behind them"""
    array = into.numpy()
    array[: len(values)] = values
    array[len(values) :] = 0
