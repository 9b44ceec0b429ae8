"""Encoder + injection + heads: a packed batch of any mix of tasks in, each task's outputs out. Read this first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from teabert.batches import Batch
from teabert.encoder import Encoder, EncoderShape
from teabert.heads import ANSWERS, READERS, Head, Reading, Stretch, stretched
from teabert.injections import Injection, Injections, make_injection
from teabert.injections.pertask import PerTask
from teabert.methods import resolve
from teabert.tasks import Task

if TYPE_CHECKING:
    from teabert.config import Recipe


@dataclass(frozen=True)
class Use:
    """How a task uses a head, which may be that of several tasks."""

    head: str
    stretch: Stretch = "none"
    span: tuple[float, float] = (0.0, 1.0)

    @classmethod
    def of(cls, task: Task) -> "Use":
        """As the recipe says"""
        return cls(task.head_name, task.stretch, task.span)


class Model(nn.Module):
    """One encoder for all tasks."""

    def __init__(self, encoder: Encoder, injection: Injection, heads: Mapping[str, Head], uses: Mapping[str, Use]) -> None:
        super().__init__()
        self.encoder = encoder
        self.injection = injection
        self.heads = nn.ModuleDict(heads)
        self.uses = dict(uses)
        self.tasks = tuple(uses)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Each task's outputs, (examples, outputs), for the tasks in the batch"""
        if batch.pooled is not None:
            return self._from_pooled(batch, batch.pooled)
        if self.injection.first == self.encoder.shape.layers:
            batch = batch.merged()
        reading = self.read(batch)
        with torch.autocast(reading.states.device.type, enabled=False):  # bf16 has but 128 numbers from 4 to 8
            return {part.task: self.finish(part.task, self.head(part.task)(reading, part)) for part in batch.parts}

    def read(self, batch: Batch) -> Reading:
        """What the encoder makes of a batch"""
        states = self.encoder(batch, self.injection) if batch.states is None else batch.states
        exact = states.float() if states.dtype == torch.bfloat16 else states
        return Reading(exact, batch.layout, self.encoder)

    def head(self, task: str) -> Head:
        """The head of a task"""
        head = self.heads[self.uses[task].head]
        assert isinstance(head, Head)
        return head

    def finish(self, task: str, outputs: Tensor) -> Tensor:
        """What a head says -> what it means to the task: a score in its range"""
        use = self.uses[task]
        return stretched(outputs, use.stretch, use.span)

    def _from_pooled(self, batch: Batch, pooled: Tensor) -> dict[str, Tensor]:
        outputs = {}
        with torch.autocast(pooled.device.type, enabled=False):
            for part in batch.parts:
                second = None if part.second is None else pooled[part.second]
                answers = self.head(part.task).answers(pooled[part.first], second)
                outputs[part.task] = self.finish(part.task, answers)
        return outputs

    def owned(self, *tasks: str) -> dict[str, Tensor]:
        """The weights that belong to these tasks alone, by name: their parts of the injection, their unshared heads"""
        tables = {name for name, task in self.tables().items() if task in tasks}
        heads = {self.uses[task].head for task in tasks}
        heads -= {use.head for task, use in self.uses.items() if task not in tasks}
        return {
            name: tensor
            for name, tensor in self.state_dict().items()
            if name in tables or (name.startswith("heads.") and name.split(".")[1] in heads)
        }

    def tables(self) -> dict[str, str]:
        """The injection's parameters that belong to one task, and to which"""
        return {f"{path}.{task}": task for path, each in self.named_modules() if isinstance(each, PerTask) for task in each}

    def users(self) -> dict[str, list[str]]:
        """The tasks that a parameter serves, by its name; parameters that serve every task are not there"""
        found: dict[str, list[str]] = {}
        tables = self.tables()
        for name, _ in self.named_parameters():
            if name in tables:
                found[name] = [tables[name]]
            elif name.startswith("heads."):
                found[name] = [task for task, use in self.uses.items() if use.head == name.split(".")[1]]
            elif name.startswith("encoder.pooler."):
                found[name] = [task for task in self.tasks if self.head(task).reader.pools]
        return found

    def shared_parameters(self) -> list[nn.Parameter]:
        """What more than one task learns: not the parameters that belong to one, nor the heads of one"""
        own = {name for task in self.tasks for name in self.owned(task)}
        return [each for name, each in self.named_parameters() if name not in own and each.requires_grad]

    @property
    def device(self) -> torch.device:
        """Where the weights are"""
        return next(self.parameters()).device


def build_head(task: Task, encoder: Encoder) -> Head:
    """A task's head, newly initialised."""
    reader, reader_config = resolve(READERS, task.head.read, "head.read")
    answer, answer_config = resolve(ANSWERS, task.head.answer, "head.answer")
    shape = encoder.shape
    return Head(
        reader(reader_config, shape, task.sequences),
        answer(answer_config, shape.width, task.outputs),
        task.head.dropout,
    )


def build_heads(tasks: Mapping[str, Task], encoder: Encoder) -> tuple[dict[str, Head], dict[str, Use]]:
    """The heads by name, each once, and how every task uses its own or shared one."""
    uses = {name: Use.of(task) for name, task in tasks.items()}
    heads: dict[str, Head] = {}
    for name, task in tasks.items():
        if uses[name].head not in heads:
            heads[uses[name].head] = build_head(task, encoder)
    return heads, uses


def build_injection(choice: Injections, encoder: Encoder, tasks: Sequence[str]) -> Injection:
    """The injection (or several) that a recipe names, newly initialised."""
    return make_injection(choice, encoder.shape, tasks)


def assemble(recipe: "Recipe", encoder: Encoder) -> Model:
    """The recipe's model around an encoder; new weights come from torch's current seed."""
    injection = build_injection(recipe.injection, encoder, tuple(recipe.tasks))
    return Model(encoder, injection, *build_heads(recipe.tasks, encoder))


def check_fits(recipe: "Recipe", shape: EncoderShape) -> None:
    """Refuse what the encoder's shape cannot take, such as a layer it does not have, before any weights are loaded."""
    with torch.device("meta"):
        assemble(recipe, Encoder(shape))
