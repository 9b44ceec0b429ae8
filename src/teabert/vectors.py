"""Vectors of texts, and every text against every other: the encoder reads each text once, the head compares the pairs."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from teabert.batches import Batch, Layout, Part, collate
from teabert.device import autocast
from teabert.errors import UserError
from teabert.heads import Reading
from teabert.model import Model
from teabert.requests import Prepared, by_tokens, rows_of
from teabert.source import tokens_at_once
from teabert.tasks import Task

PAIRS = 4096
"""Pairs of vectors that a head compares at a time."""
OTHERS = 64
"""Texts that one text is compared with at a time, where the head reads the states of both."""
NOTHING = torch.empty(0, dtype=torch.long)


def one_text(task: Task) -> Task:
    """The task as it reads one text of a pair encoded apart; other tasks as they are."""
    return task.model_copy(update={"texts": task.texts[:1]}) if task.sequences == 2 else task


def check_vectors(model: Model, task: Task) -> None:
    """Refuse a task whose texts have no vector of their own."""
    if task.sequences == 2 and _by_pairs(model, task):
        raise UserError(
            f"Task '{task.name}' reads each text of a pair in the light of the other, so that a text alone has no vector."
            " Compare texts with similar(), or embed with a task whose head reads first_token or mean."
        )


def check_comparing(task: Task) -> None:
    """Refuse a task that does not compare two texts by one number."""
    if task.sequences != 2 or task.kind not in ("binary", "score"):
        raise UserError(
            f"Task '{task.name}' does not compare two texts, encoded apart, by one number: it would need two texts,"
            f" pair: apart and kind binary or score, and has {len(task.texts)}, {task.pair} and {task.kind}. Use predict()."
        )


@torch.inference_mode()
def vectors(model: Model, precision: str, task: Task, prepared: Sequence[Prepared]) -> np.ndarray:
    """(texts, width): what the task's reader makes of texts of one sequence each"""
    found = np.empty((len(prepared), model.encoder.shape.width), dtype=np.float32)
    for places, reading, part in _readings(model, precision, task, prepared):
        found[places] = model.head(task.name).reader(reading, part)[0].cpu().numpy()
    return found


@torch.inference_mode()
def compare(model: Model, precision: str, task: Task, texts: Sequence[Prepared], others: Sequence[Prepared]) -> np.ndarray:
    """(texts, others): the head's number for every text with every other; texts with the same array are one text"""
    if not texts or not others:
        return np.empty((len(texts), len(others)), dtype=np.float32)
    known = {id(each.sequences[0]): each for each in (*texts, *others)}
    place = {key: number for number, key in enumerate(known)}
    first, second = (torch.tensor([place[id(each.sequences[0])] for each in mine]) for mine in (texts, others))
    batches = _state_batches if _by_pairs(model, task) else _vector_batches
    found = [
        model(batch.to(model.device))[task.name].float().cpu()
        for batch in batches(model, precision, task, list(known.values()), first, second)
    ]
    return torch.cat(found).view(len(texts), len(others)).numpy()


def _by_pairs(model: Model, task: Task) -> bool:
    """Whether the reader itself looks at both texts"""
    return model.head(task.name).reader.keeps == "states"


def _readings(
    model: Model, precision: str, task: Task, prepared: Sequence[Prepared]
) -> Iterator[tuple[list[int], Reading, Part]]:
    """Which texts, what the encoder made of them, and where each is"""
    for places in by_tokens(prepared, tokens_at_once(model.device), once=False):
        rows = rows_of(task, [prepared[place] for place in places])
        batch = collate(((rows, row) for row in range(len(rows))), model.tasks).to(model.device)
        with autocast(precision, model.device):
            reading = model.read(batch)
        yield places, reading, batch.parts[0]


def _vector_batches(
    model: Model, precision: str, task: Task, known: Sequence[Prepared], first: Tensor, second: Tensor
) -> Iterator[Batch]:
    """All pairs, their texts' vectors known"""
    table = torch.from_numpy(vectors(model, precision, one_text(task), known)).to(model.device)
    total = len(first) * len(second)
    for start in range(0, total, PAIRS):
        pairs = torch.arange(start, min(start + PAIRS, total))
        part = _part(task, first[pairs // len(second)], second[pairs % len(second)])
        yield Batch(NOTHING, NOTHING, Layout.of([]), NOTHING, (part,), pooled=table)


def _state_batches(
    model: Model, precision: str, task: Task, known: Sequence[Prepared], first: Tensor, second: Tensor
) -> Iterator[Batch]:
    """All pairs, their texts' token states known"""
    states: dict[int, Tensor] = {}
    for places, reading, part in _readings(model, precision, one_text(task), known):
        pieces = reading.states.split(reading.layout.lengths)
        states |= {place: pieces[sequence] for place, sequence in zip(places, part.first.tolist(), strict=True)}
    for one in first.tolist():
        for some in second.split(OTHERS):
            texts = [states[one], *(states[other] for other in some.tolist())]
            part = _part(task, torch.zeros_like(some), torch.arange(1, len(texts)))
            layout = Layout.of([len(text) for text in texts])
            yield Batch(NOTHING, NOTHING, layout, NOTHING, (part,), states=torch.cat(texts))


def _part(task: Task, first: Tensor, second: Tensor) -> Part:
    return Part(task.name, first, second, torch.full((len(first),), torch.nan), tuple(range(len(first))))
