"""How tasks are weighed against each other: a task's summed loss in, its share of the joint loss out.

WEIGHTINGS is the one list; the base class is the plain way, the recipe's fixed weights.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor, nn

from teabert.methods import Choice, resolve
from teabert.settings import Settings

if TYPE_CHECKING:
    from teabert.tasks import Task


class Weighting(nn.Module):
    """Each task's loss times its weight in the recipe."""

    lr: float | None = None
    """Learning rate of what it learns itself"""

    class Config(Settings):
        """No options."""

    def __init__(self, config: Settings, tasks: "Mapping[str, Task]") -> None:
        super().__init__()
        self.given = {name: task.weight for name, task in tasks.items()}

    def forward(self, task: str, summed: Tensor, count: int | Tensor) -> Tensor:
        """The summed loss of so many examples -> what is minimised"""
        return self.given[task] * summed

    def current(self) -> dict[str, float]:
        """For the log: the weights as they are now, where they change"""
        return {}

    def users(self) -> dict[Tensor, list[str]]:
        """The tasks that a learned weight serves"""
        return {}


class Uncertainty(Weighting):
    """Learned: exp(-s) L + s / 2 with s the log-variance of a task, half of the first term for scores.

    Kendall, Gal and Cipolla 2018. A task that is hard to fit gets a large variance and so a small weight.
    """

    class Config(Settings):
        """Options of uncertainty."""

        lr: float = Field(1e-2, gt=0)
        """Learning rate of the log-variances; the encoder's would hardly move them."""

    def __init__(self, config: Config, tasks: "Mapping[str, Task]") -> None:
        super().__init__(config, tasks)
        self.lr = config.lr
        self.halves = {name: 0.5 if task.kind == "score" else 1.0 for name, task in tasks.items()}
        self.log_variances = nn.ParameterDict({name: nn.Parameter(torch.zeros(())) for name in tasks})

    def forward(self, task: str, summed: Tensor, count: int | Tensor) -> Tensor:
        """The summed loss of so many examples -> what is minimised"""
        s = self.log_variances[task]
        return self.given[task] * (self.halves[task] * torch.exp(-s) * summed + count * s / 2)

    def current(self) -> dict[str, float]:
        """What each task's loss is multiplied by"""
        return {
            name: self.given[name] * self.halves[name] * torch.exp(-s.detach()).item()
            for name, s in self.log_variances.items()
        }

    def users(self) -> dict[Tensor, list[str]]:
        """The tasks that a learned weight serves"""
        return {weight: [task] for task, weight in self.log_variances.items()}


WEIGHTINGS: dict[str, type[Weighting]] = {"fixed": Weighting, "uncertainty": Uncertainty}


def make_weighting(choice: Choice, tasks: "Mapping[str, Task]") -> Weighting:
    """The weighting that a recipe names, newly initialised."""
    weighting, config = resolve(WEIGHTINGS, choice, "train.weighting")
    made: Weighting = weighting(config, tasks)
    return made
