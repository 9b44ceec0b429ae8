"""What each injection adds and costs: parameters by counting, the time of a mixed-task batch by measuring, side by side."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from teabert.batches import Batch, Rows, collate
from teabert.device import autocast, pick_device, pick_precision
from teabert.encoder import Encoder, EncoderShape
from teabert.injections import INJECTIONS, Injection, make_injection
from teabert.progress import Progress

SEQUENCES = 32
LENGTHS = (5, 40)
"""Sequences of the measured batch and their lengths, drawn by seed: short texts, as the papers' are."""
ROUNDS = 9
ALIKE = 1e-3
"""States that differ by less are the same: they are about 1, and a GPU may round products to ten bits."""


@dataclass(frozen=True)
class Cost:
    """One line of `teabert methods`."""

    method: str
    parameters: int
    """of all tasks together"""
    per_task: int
    """what one more task adds"""
    percent: float
    """of the encoder's parameters, all tasks together"""
    foldable: bool
    exact_at_start: bool
    mixed_batch: bool
    """one batch may mix tasks: each is answered as if it were alone, here tried with random numbers in place of zeros"""
    time: float
    """of a mixed-task batch, forward, relative to `none`; median over rounds"""
    lowest: float
    highest: float

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def costs(shape: EncoderShape, tasks: int, progress: Progress) -> list[Cost]:
    """The costs of every method with its default options, on an encoder of this shape with random weights."""
    names = tuple(f"task{number}" for number in range(tasks))
    device = pick_device()
    torch.manual_seed(0)
    encoder = Encoder(shape).to(device).eval().requires_grad_(False)
    methods = {name: make_injection(name, shape, names).to(device).eval() for name in INJECTIONS}
    sizes = {name: (_count(made), _count(make_injection(name, shape, (*names, "more")))) for name, made in methods.items()}
    texts = random_texts(shape, names)
    seconds = measure(encoder, methods, collate(texts, names).to(device), progress)
    whole = sum(parameter.numel() for parameter in encoder.parameters())
    lines = []
    for name, made in methods.items():
        ratios = [mine / plain for mine, plain in zip(seconds[name], seconds["none"], strict=True)]
        count, more = sizes[name]
        median = statistics.median(ratios)
        ends = (min(ratios), max(ratios))
        facts = made.foldable, made.exact_at_start, difference(encoder, made, texts) <= ALIKE
        lines.append(Cost(name, count, more - count, 100 * count / whole, *facts, median, *ends))
    return lines


def measure(encoder: Encoder, methods: dict[str, Injection], batch: Batch, progress: Progress) -> dict[str, list[float]]:
    """Seconds of every round of every method; the methods take turns, so that a slow moment hits all alike."""
    precision = pick_precision("auto", next(encoder.parameters()).device)
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    with torch.inference_mode(), autocast(precision, batch.ids.device), progress.bar("measuring", ROUNDS) as advance:
        for turn in range(-1, ROUNDS):  # turn -1 warms up
            for name, injection in methods.items():
                begun = time.perf_counter()
                encoder(batch, injection)
                if batch.ids.is_cuda:
                    torch.cuda.synchronize()
                if turn >= 0:
                    seconds[name].append(time.perf_counter() - begun)
            advance(1)
    return seconds


@torch.inference_mode()
def difference(encoder: Encoder, injection: Injection, texts: Sequence[tuple[Rows, int]]) -> float:
    """How far states of a mixed batch lie from those of each task's own batch, the injection filled with random numbers."""
    device, tasks = next(encoder.parameters()).device, injection.tasks
    for parameter in injection.parameters():
        parameter.normal_(std=0.02)
    whole = collate(texts, tasks).to(device)
    mixed, task_of_token = encoder(whole, injection), whole.task_of_sequence[whole.layout.sequence_of_token]
    apart = []
    for place, task in enumerate(tasks):
        if mine := [pair for pair in texts if pair[0].task == task]:
            alone = encoder(collate(mine, tasks).to(device), injection)
            apart.append((mixed[task_of_token == place] - alone).abs().max().item())
    return max(apart)


def _count(injection: Injection) -> int:
    return sum(parameter.numel() for parameter in injection.parameters())


def random_texts(shape: EncoderShape, tasks: Sequence[str]) -> list[tuple[Rows, int]]:
    """Random texts, the tasks in turn."""
    draw = np.random.default_rng(0)
    rows = []
    for task in tasks:
        sizes = draw.integers(LENGTHS[0], min(LENGTHS[1], shape.longest), SEQUENCES)
        ids = [draw.integers(shape.padding_id + 1, shape.vocabulary, size) for size in sizes]
        rows.append(Rows(task, (ids,), None, np.zeros(SEQUENCES, np.float32), ("",) * SEQUENCES))
    return [(rows[number % len(tasks)], number) for number in range(SEQUENCES)]
