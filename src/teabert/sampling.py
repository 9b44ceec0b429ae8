"""Which examples come next: how many of each task an epoch takes, and in which batches.

In: the number of rows of each task. Out: batches of (task index, row). Every task is an endless stream of passes over
its rows, each pass a permutation drawn from (seed, task, pass), so a place in the data is a few numbers.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from teabert.errors import UserError
from teabert.settings import Settings

Pairs = NDArray[np.int64]  # (examples, 2): task index, row
Strategy = Literal["blocks", "round_robin", "proportional", "square_root", "annealed", "temperature"]


class SamplingSettings(Settings):
    """Which examples come next."""

    strategy: Strategy = "proportional"
    """Each task's share of an epoch. blocks, proportional: its number of rows N; round_robin: equal; square_root:
    N**0.5; annealed: N**a, a falling from 1 to 0.2 over the epochs; temperature: N**(1 / temperature).
    blocks takes the tasks one after another, round_robin in turn, the others shuffle them."""
    temperature: float = Field(default=2.0, ge=0.1)
    """1 is proportional; the higher, the nearer to equal shares."""
    mixed: bool = True
    """Whether a batch mixes tasks, or holds one task."""
    batch: int = Field(default=16, ge=1)
    """Examples in a batch; the last may be shorter."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens in a batch at most, in place of `batch`; an example longer than this is a batch of its own."""
    epoch_examples: int | None = Field(default=None, ge=1)
    """Examples in an epoch; left out, as many as there are rows."""

    @model_validator(mode="after")
    def _blocks_are_not_mixed(self) -> "SamplingSettings":
        if self.strategy == "blocks" and self.mixed:
            raise ValueError(
                "strategy 'blocks' takes one task after another, so no batch can mix tasks. "
                "Set mixed: false, or choose another strategy."
            )
        return self


def planned(sizes: Mapping[str, int], settings: SamplingSettings, epoch: int, epochs: int) -> dict[str, float]:
    """Each task's exact share of an epoch's examples, fractions and all."""
    match settings.strategy:
        case "blocks" | "proportional":
            power = 1.0
        case "round_robin":
            power = 0.0
        case "square_root":
            power = 0.5
        case "temperature":
            power = 1 / settings.temperature
        case "annealed":
            power = 1 - 0.8 * epoch / max(1, epochs - 1)
    weights = {task: float(size) ** power for task, size in sizes.items()}
    total, whole = settings.epoch_examples or sum(sizes.values()), sum(weights.values())
    return {task: total * weight / whole for task, weight in weights.items()}


def largest_remainder(shares: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers with the same sum, each within 1 of its share: the largest fractions are rounded up."""
    counts = {task: int(share) for task, share in shares.items()}
    missing = round(sum(shares.values())) - sum(counts.values())
    for task in sorted(shares, key=lambda task: counts[task] - shares[task])[:missing]:
        counts[task] += 1
    return counts


class Sampler:
    """Batches of (task index, row), epoch after epoch; iterate over it for the rest of the current epoch.

    `epochs` is the length of the whole run, on which annealing depends. `lengths` gives the tokens of each task's rows
    and is needed for a token budget.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        settings: SamplingSettings,
        *,
        seed: int,
        epochs: int,
        lengths: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        if not sizes:
            raise UserError("There is nothing to sample from: no task is given.")
        for task, size in sizes.items():
            if size < 1:
                raise UserError(f"Task '{task}' has no rows to train on. Give it some, or leave the task out.")
        assert settings.tokens is None or lengths is not None, "a token budget needs the lengths of the rows"
        self.sizes, self.settings, self.seed, self.epochs = dict(sizes), settings, seed, epochs
        self.lengths = [np.asarray(lengths[task]) for task in sizes] if lengths else []
        self.current, self.batch = 0, 0  # the place: epoch, and batches of it already given out
        self._kept: tuple[int, list[Pairs]] = (-1, [])  # the epoch last made, and its batches

    def __iter__(self) -> Iterator[Pairs]:
        """The rest of the current epoch. A batch counts as given out from the moment it is yielded."""
        if self.current == self.epochs:
            return
        batches = self.epoch(self.current)
        while self.batch < len(batches):
            self.batch += 1
            yield batches[self.batch - 1]
        self.current, self.batch = self.current + 1, 0

    def counts(self, epoch: int) -> dict[str, int]:
        """How many examples of each task an epoch takes."""
        return largest_remainder(planned(self.sizes, self.settings, epoch, self.epochs))

    def log(self, epoch: int) -> dict[str, dict[str, float]]:
        """For the run's log: each task's planned and actual examples in an epoch."""
        shares, counts = planned(self.sizes, self.settings, epoch, self.epochs), self.counts(epoch)
        return {task: {"planned": shares[task], "actual": counts[task]} for task in self.sizes}

    def total_batches(self) -> int:
        """Batches in the whole run; with a token budget every epoch has to be made once."""
        if self.settings.tokens is not None:
            return sum(len(self.epoch(epoch)) for epoch in range(self.epochs))
        every = [self.counts(epoch).values() for epoch in range(self.epochs)]
        parts = [sum(counts) for counts in every] if self.settings.mixed else [n for counts in every for n in counts]
        return sum(-(-examples // self.settings.batch) for examples in parts)

    def epoch(self, epoch: int) -> list[Pairs]:
        """All batches of an epoch; always the same ones for the same epoch."""
        assert 0 <= epoch < self.epochs, f"epoch {epoch} is outside a run of {self.epochs}"
        if self._kept[0] != epoch:
            self._kept = (epoch, self._arranged(epoch))
        return self._kept[1]

    def state(self) -> dict[str, Any]:
        """The place in the data, ready for JSON: epoch, batches of it given out, examples consumed of each task."""
        consumed = np.array(list(self._consumed_before(self.current).values()))
        if self.batch:
            given = np.concatenate(self.epoch(self.current)[: self.batch])
            consumed += np.bincount(given[:, 0], minlength=len(self.sizes))
        counted = {task: int(count) for task, count in zip(self.sizes, consumed, strict=True)}
        return {"epoch": self.current, "batch": self.batch, "consumed": counted}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue at a saved place; refused where tasks, rows or settings no longer lead there."""
        before = self.current, self.batch
        epoch, batch = state.get("epoch"), state.get("batch")
        if isinstance(epoch, int) and isinstance(batch, int) and self._exists(epoch, batch):
            self.current, self.batch = epoch, batch
            if self.state() == dict(state):
                return
        self.current, self.batch = before
        raise UserError(
            f"The place saved in the data, {dict(state)}, cannot be reached with these tasks, rows and sampling "
            "settings. Resume with those the run was started with, or start a new run."
        )

    def _exists(self, epoch: int, batch: int) -> bool:
        if not 0 <= epoch < self.epochs:
            return epoch == self.epochs and batch == 0
        return 0 <= batch <= len(self.epoch(epoch))

    def _consumed_before(self, epoch: int) -> dict[str, int]:
        earlier = [self.counts(each) for each in range(epoch)]
        return {task: sum(counts[task] for counts in earlier) for task in self.sizes}

    def _arranged(self, epoch: int) -> list[Pairs]:
        """Take each task's rows, then cut and arrange: cut last if mixed, else first."""
        consumed, counts = self._consumed_before(epoch), self.counts(epoch)
        rows = [self._rows(task, consumed[task], counts[task]) for task in self.sizes]
        tasks = [np.stack((np.full(len(each), index), each), axis=1) for index, each in enumerate(rows)]
        shuffle = generator(self.seed, "order", epoch).permutation
        in_turn = self.settings.strategy == "round_robin"
        if self.settings.mixed:
            pairs = np.concatenate(tasks)
            turn = np.concatenate([np.arange(len(each)) for each in rows])
            return self._cut(pairs[np.lexsort((pairs[:, 0], turn)) if in_turn else shuffle(len(pairs))])
        batches = [(turn, batch) for each in tasks for turn, batch in enumerate(self._cut(each))]
        if in_turn:
            batches.sort(key=lambda item: item[0])  # the sort keeps the order of tasks within a turn
        elif self.settings.strategy != "blocks":
            batches = [batches[place] for place in shuffle(len(batches))]
        return [batch for _, batch in batches]

    def _rows(self, task: str, start: int, count: int) -> NDArray[np.int64]:
        """The next rows of a task's endless stream of permutations."""
        size = self.sizes[task]
        first, last = start // size, -(-(start + count) // size)  # the passes touched: first to last - 1
        passes = [generator(self.seed, "rows", task, each).permutation(size) for each in range(first, last)]
        stream = np.concatenate([np.empty(0, dtype=np.int64), *passes])
        return stream[start - first * size :][:count]

    def _cut(self, pairs: Pairs) -> list[Pairs]:
        """Cut into batches, in order: by number of examples, or as many as the token budget holds."""
        if self.settings.tokens is None:
            return [pairs[start : start + self.settings.batch] for start in range(0, len(pairs), self.settings.batch)]
        tokens = np.empty(len(pairs), dtype=np.int64)
        for index, lengths in enumerate(self.lengths):
            mine = pairs[:, 0] == index
            tokens[mine] = lengths[pairs[mine, 1]]
        ends = np.cumsum(tokens)
        batches, start, used = [], 0, 0
        while start < len(pairs):
            end = max(start + 1, int(np.searchsorted(ends, used + self.settings.tokens, side="right")))
            batches.append(pairs[start:end])
            start, used = end, int(ends[end - 1])
        return batches


def generator(*what: object) -> np.random.Generator:
    """A random generator that depends on nothing but its name."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16]))
