"""The optimisers and the learning-rate schedule.

In: named parameters and settings. Out: a torch optimiser, and the factor on its learning rate at each step.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.optim import AdamW, Optimizer

from teabert.errors import UserError
from teabert.kernels import why_no_kernels
from teabert.settings import Settings

ScheduleName = Literal["constant", "linear", "cosine"]

FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")
LEAST_DECAY = 2.0**-26
"""A step that shrinks fp32 numbers by a smaller part leaves them as they are: the next lies at least four times as far."""


class OptimSettings(Settings):
    """How parameters move."""

    optimizer: Literal["adamw", "course"] = "adamw"
    """adamw: torch's. course: the update of the CS224N course, which both papers used."""
    lr: float | None = Field(default=None, gt=0)
    """Learning rate at its highest; left out, the training option chooses it."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Each step also shrinks a parameter by lr * weight_decay of itself."""
    decay: Literal["all", "weights"] = "all"
    """What weight decay shrinks: all parameters, or all but biases and layer norms (those of one dimension)."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Share of the past kept at each step in the mean of the gradients, and of their squares."""
    eps: float = Field(default=1e-6, gt=0)
    """Added to the root of the mean square, so that a step stays finite."""

    @model_validator(mode="after")
    def _betas_below_one(self) -> "OptimSettings":
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {list(self.betas)} must both be at least 0 and below 1.")
        return self


class Schedule(Settings):
    """How the learning rate changes over a run."""

    schedule: ScheduleName = "constant"
    """After warm-up: constant, or falling to 0 at the last step as a line or a half cosine."""
    warmup: float = Field(default=0.0, ge=0)
    """Rise from 0 over this fraction of all steps if below 1, else over this number of steps."""

    @model_validator(mode="after")
    def _whole_steps(self) -> "Schedule":
        if self.warmup >= 1 and self.warmup % 1:
            raise ValueError(f"warmup {self.warmup} is neither a fraction below 1 nor a whole number of steps.")
        return self


def felt_decay(lr: float, decay: float) -> float:
    """The weight decay, or 0 where it is so small that it changes no number"""
    return decay if lr * decay >= LEAST_DECAY else 0.0


def lr_factor(step: int, total_steps: int, schedule: ScheduleName, warmup: float) -> float:
    """The factor on the learning rate after `step` steps; with warm-up the first step (0) moves nothing."""
    rise = round(warmup * total_steps) if warmup < 1 else int(warmup)
    if step < rise:
        return step / rise
    done = min(1.0, (step - rise) / max(1, total_steps - rise))  # of the way from the end of warm-up to the end
    match schedule:
        case "constant":
            return 1.0
        case "linear":
            return 1.0 - done
        case "cosine":
            return (1.0 + math.cos(math.pi * done)) / 2


class CourseAdamW(AdamW):
    """AdamW as in the CS224N course: eps is not bias-corrected, and decay shrinks the parameter after its update.

    p -= lr * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + eps), then p -= lr * weight_decay * p.
    Torch's own update, with its fused kernel, becomes this once its settings are changed for the step (see _parts).
    t counts the steps in which the parameter had a gradient; the state is that of torch's AdamW.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Called whenever state is loaded: the counts are then read anew."""
        super().__setstate__(state)
        self._counts: dict[Tensor, int] = {}

    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, **settings)
        self._counts = {}  # steps taken, also kept in self.state, but there reading one waits for the GPU
        self._step_supports_amp_scaling = False  # the kernel would skip overflowing steps without our counting

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = self.param_groups
        try:
            self.param_groups = [part for group in groups for part in self._parts(group)]
            super().step()
        finally:
            self.param_groups = groups
        return loss

    def _parts(self, group: dict[str, Any]) -> list[dict[str, Any]]:
        """The group cut by step count: one part, unless some gradients were missing.

        Torch divides by sqrt(v / (1 - beta2**t)) + eps, so its eps is enlarged to cancel that root. It shrinks before
        its update, so the update is made smaller by the same factor, as if it had been there already.
        """
        by_count: dict[int, list[Tensor]] = defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is not None:
                count = self._counts[parameter] = self._taken(parameter) + 1
                by_count[count].append(parameter)
        lr, decay, beta2 = group["lr"], group["weight_decay"], group["betas"][1]
        decay = felt_decay(lr, decay)  # one that changes no number must not change how the learning rate is rounded either
        kept = 1 - lr * decay
        changed = {**group, "lr": lr * kept, "weight_decay": decay / kept}  # their product is lr * decay still
        return [
            {**changed, "params": parameters, "eps": group["eps"] / math.sqrt(1 - beta2**count)}
            for count, parameters in by_count.items()
        ]

    def _taken(self, parameter: Tensor) -> int:
        if parameter not in self._counts and self.state[parameter]:
            return int(self.state[parameter]["step"])
        return self._counts.get(parameter, 0)


def build_optimizer(
    named_parameters: Iterable[tuple[str, Tensor]],
    settings: OptimSettings,
    lr: float,
    weighting: Iterable[tuple[str, Tensor]] = (),
    factor: float = 1.0,
) -> Optimizer:
    """The optimiser over the parameters that are not frozen, its state carrying their names.

    weighting: learned weights of the tasks, whose learning rate is `factor` times the others' and which never decay.
    """
    named = [(name, parameter) for name, parameter in named_parameters if parameter.requires_grad]
    if not named:
        raise UserError("There is nothing to train: every parameter is frozen.")
    if lr * settings.weight_decay >= 1:
        raise UserError(
            f"weight_decay {settings.weight_decay} at lr {lr} would wipe out the parameters in one step. "
            "Their product must be below 1; usual values of weight_decay are 0 to 0.1."
        )
    spared = [pair for pair in named if settings.decay == "weights" and pair[1].ndim < 2]
    decayed = [pair for pair in named if settings.decay == "all" or pair[1].ndim >= 2]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": spared, "weight_decay": 0.0},
        {"params": list(weighting), "weight_decay": 0.0, "factor": factor},
    ]
    groups = [group for group in groups if group["params"]]
    if why_no_kernels(named[0][1].device) is None:
        from teabert.kernels.adamw import RecordedAdamW

        return RecordedAdamW(groups, lr, settings.betas, settings.eps, course=settings.optimizer == "course")
    return (CourseAdamW if settings.optimizer == "course" else AdamW)(
        groups,
        lr=lr,
        betas=settings.betas,
        eps=settings.eps,
        fused=all(parameter.device.type in FUSED_DEVICES for _, parameter in named),
    )
