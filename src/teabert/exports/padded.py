"""The same model on padded input, as ONNX wants it: (batch, tokens) ids and a mask in, every task's outputs out.

A padded grid is a pack whose sequences are all equally long, some of their tokens masked; so encoder, injection and answers
run as they are. Only what needs to know each sequence's true length is said again here.
"""

import copy
from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor, nn

from teabert.batches import Batch, Group, Layout, Part
from teabert.encoder import Encoder
from teabert.errors import UserError
from teabert.heads import READERS, Reader, Reading
from teabert.heads.attending import Grid, TaskAttention
from teabert.injections import Injection, Site
from teabert.injections.pertask import PerTask
from teabert.model import Model
from teabert.tasks import Task


class PaddedModel(nn.Module):
    """Every row of a batch is a sequence and has its task; rows of other tasks are not-a-number in a task's output."""

    def __init__(self, model: Model, tasks: Mapping[str, Task]) -> None:
        super().__init__()
        self.model = model
        self.sequences = {name: tasks[name].sequences for name in model.tasks}
        self.injection = with_constants(model.injection)
        for name in model.tasks:
            check_reader(model.head(name).reader, name)

    @property
    def segmented(self) -> bool:
        """Whether the encoder tells the two texts of a pair apart by their segments"""
        return self.model.encoder.shape.segments > 1

    @property
    def paired(self) -> bool:
        """Whether a task encodes the texts of a pair apart"""
        return 2 in self.sequences.values()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        task_ids: Tensor,
        token_type_ids: Tensor | None = None,
        second_row: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """(batch, tokens) ids, mask and segments; (batch,) tasks and rows of the second text -> (batch, outputs) each"""
        batch = grid(input_ids, attention_mask, task_ids, token_type_ids, self._parts(task_ids, second_row))
        states = self.model.encoder(batch, self.injection)
        reading = PaddedReading(states, batch.layout, self.model.encoder, attention_mask.bool())
        found = []
        for place, part in enumerate(batch.parts):
            head = self.model.head(part.task)
            outputs = self.model.finish(part.task, head.answers(*read(head.reader, reading, part)))
            mine = (task_ids == place).unsqueeze(1)
            found.append(torch.where(mine, outputs, torch.full_like(outputs, float("nan"))))
        return tuple(found)

    def _parts(self, task_ids: Tensor, second_row: Tensor | None) -> tuple[Part, ...]:
        rows = torch.arange(task_ids.shape[0], device=task_ids.device)
        return tuple(
            Part(name, rows, second_row if sequences == 2 else None, rows, ()) for name, sequences in self.sequences.items()
        )


def grid(ids: Tensor, mask: Tensor, tasks: Tensor, segments: Tensor | None, parts: tuple[Part, ...]) -> Batch:
    """A padded grid as a batch: one group of equally long sequences, in which the mask says what is real"""
    count, longest = ids.shape
    rows, places = torch.arange(count, device=ids.device), torch.arange(longest, device=ids.device)
    whole = Group(slice(None), count, longest, None, mask.bool()[:, None, None, :])
    layout = Layout(
        (),
        rows * 0 + longest,
        longest,
        rows * longest,
        torch.arange(count + 1, device=ids.device) * longest,
        rows[:, None].expand(count, longest).reshape(-1),
        places[None, :].expand(count, longest).reshape(-1),
        (whole,),
        fixed=True,
    )
    kinds = torch.zeros_like(ids) if segments is None else segments
    return Batch(ids.reshape(-1), kinds.reshape(-1), layout, tasks, parts)


class PaddedReading(Reading):
    """What the encoder made of a padded grid."""

    def __init__(self, states: Tensor, layout: Layout, encoder: Encoder, real: Tensor) -> None:
        super().__init__(states, layout, encoder)
        self.real = real
        self.grid = states.view(*real.shape, -1)  # (sequences, longest, width)

    @cached_property
    def mean(self) -> Tensor:
        """(sequences, width): the mean over all real tokens"""
        weights = self.real.to(self.grid.dtype).unsqueeze(-1)
        return (self.grid * weights).sum(1) / weights.sum(1)


class Constants(dict[str, Tensor]):
    """PerTask's numbers, looked up anew each time.

    PerTask keeps what it looked up by its own identity, but a tracer shows it a new one at every access.
    """

    def of(self, task: str, row: int, at: Site) -> Tensor:
        """One task's row"""
        return self[task][row]

    def table(self, row: int, at: Site) -> Tensor:
        """That row of all tasks, (tasks, ...)"""
        return torch.stack([numbers[row] for numbers in self.values()])


def with_constants(injection: Injection) -> Injection:
    """A copy of an injection that has Constants wherever it had PerTask"""
    copied = copy.deepcopy(injection)
    for module in list(copied.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, PerTask):
                delattr(module, name)
                setattr(module, name, Constants((task, child[task].detach()) for task in child))
    return copied


def read(reader: Reader, reading: PaddedReading, part: Part) -> tuple[Tensor, Tensor | None]:
    """The vectors of each example's first (or only) and second sequence, as the reader itself gives them on packs"""
    if not isinstance(reader, TaskAttention):
        vectors: tuple[Tensor, Tensor | None] = reader(reading, part)
        return vectors
    one = Grid.at(part.first, reading.real[part.first], reading.layout)
    two = None if part.second is None else Grid.at(part.second, reading.real[part.second], reading.layout)
    return reader.over(reading.states, one, two)


def check_reader(reader: Reader, task: str) -> None:
    """Refuse a reader that reads packs in a way of its own which is not said here"""
    if not _has_padded_form(type(reader)):
        known = ", ".join(name for name, each in READERS.items() if _has_padded_form(each))
        raise UserError(
            f"Task '{task}': the reader {type(reader).__name__} cannot be exported to ONNX: it has no padded form. Add one"
            f" to read() in teabert/exports/padded.py, or train with one of {known}."
        )


def _has_padded_form(reader: type[Reader]) -> bool:
    return reader.forward is Reader.forward or issubclass(reader, TaskAttention)
