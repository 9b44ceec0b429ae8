"""AdamW over all parameters at once: torch's update or the CS224N course's, and the matrices' bf16 copies made on the way.

Learning rate and counts of steps lie in the GPU's memory, so that a step can be recorded once and played back.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.optim import Optimizer

CHUNK = 4096
"""Numbers that one program moves."""
FIELDS = 8
"""Of a chunk: where its parameter, gradient, mean, mean square and copy (or 0) lie; its size; which parameter it is."""


@triton.jit
def _count(counts, moved, scales, number, log1, log2, BLOCK: tl.constexpr):
    """One more step for the parameters that are moved, and what its number means for the update"""
    of = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = of < number
    t = tl.load(counts + of, mask=real, other=1.0) + tl.load(moved + of, mask=real, other=0.0)
    tl.store(counts + of, t, mask=real)
    t = tl.maximum(t, 1.0).to(tl.float64)
    tl.store(scales + 2 * of, 1.0 / (1.0 - tl.exp(t * log1)), mask=real)
    tl.store(scales + 2 * of + 1, tl.sqrt(1.0 - tl.exp(t * log2)), mask=real)


@triton.jit
def _move(
    chunk, inside, real, lr, lift, root, decay, beta1, beta2, eps, COURSE: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """The numbers of a chunk; without a mask, which keeps the compiler from moving several at once, where it is full"""
    parameter = tl.multiple_of(tl.load(chunk), 16).to(tl.pointer_type(tl.float32)) + inside
    gradient = tl.multiple_of(tl.load(chunk + 1), 16).to(tl.pointer_type(tl.float32)) + inside
    mean = tl.multiple_of(tl.load(chunk + 2), 16).to(tl.pointer_type(tl.float32)) + inside
    square = tl.multiple_of(tl.load(chunk + 3), 16).to(tl.pointer_type(tl.float32)) + inside
    mask = real if MASKED else None
    p, g = tl.load(parameter, mask=mask), tl.load(gradient, mask=mask)
    m = beta1 * tl.load(mean, mask=mask) + (1.0 - beta1) * g
    v = beta2 * tl.load(square, mask=mask) + (1.0 - beta2) * g * g
    if COURSE:
        p -= lr * root * lift * m / (tl.sqrt(v) + eps)
        p -= lr * decay * p
    else:
        p -= lr * decay * p
        p -= lr * lift * m / (tl.sqrt(v) / root + eps)
    tl.store(parameter, p, mask=mask)
    tl.store(mean, m, mask=mask)
    tl.store(square, v, mask=mask)
    copy = tl.load(chunk + 4)
    if copy != 0:
        tl.store(tl.multiple_of(copy, 16).to(tl.pointer_type(tl.bfloat16)) + inside, p, mask=mask)


@triton.jit
def _adamw(
    chunks, scales, moved, rate, factor, decay, beta1, beta2, eps,
    COURSE: tl.constexpr, CHUNK: tl.constexpr, FIELDS: tl.constexpr,
):  # fmt: skip
    chunk = chunks + tl.program_id(0) * FIELDS
    inside = tl.arange(0, CHUNK)
    size, of = tl.load(chunk + 5), tl.load(chunk + 6)
    lr = tl.load(rate) * factor
    lift, root = tl.load(scales + 2 * of), tl.load(scales + 2 * of + 1)  # 1 / (1 - beta1 ** t), sqrt(1 - beta2 ** t)
    if tl.load(moved + of) != 0.0:
        if size == CHUNK:
            _move(chunk, inside, inside < size, lr, lift, root, decay, beta1, beta2, eps, COURSE, False)
        else:
            _move(chunk, inside, inside < size, lr, lift, root, decay, beta1, beta2, eps, COURSE, True)


class RecordedAdamW(Optimizer):
    """AdamW whose steps can be recorded. Its state is that of torch's AdamW, so that checkpoints fit both."""

    def __init__(
        self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float, course: bool
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self.course = course
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        assert all(each.dtype == torch.float32 and each.is_contiguous() for each in parameters), "fp32 masters"
        device = parameters[0].device
        self.rate = torch.full((1,), lr, device=device)
        """the learning rate; set it here"""
        self.counts = torch.zeros(len(parameters), device=device)
        self.numbers = {parameter: number for number, parameter in enumerate(parameters)}
        self.copies: dict[Tensor, Tensor] = {}
        """the bf16 copy of a parameter, where one is to be kept"""
        for parameter, number in self.numbers.items():
            self.state[parameter] = {
                "step": self.counts[number],
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Into the tensors that are there: recorded steps know where these lie"""
        for number, parameter in enumerate(self.numbers):
            found = state_dict["state"].get(number)
            for name, kept in self.state[parameter].items():
                kept.zero_() if found is None else kept.copy_(found[name])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        assert closure is None, "gradients are there already"
        plan = self.plan()
        self.settle()
        self.write(plan)
        self.launch(plan)

    @torch.no_grad()
    def settle(self) -> None:
        """Gradients as the kernel can read them"""
        for parameter in self.numbers:
            if parameter.grad is not None and not _is_plain(parameter.grad):
                parameter.grad = parameter.grad.clone(memory_format=torch.contiguous_format).float()

    def plan(self) -> "Plan":
        """Room to write down where everything lies; made before a recording begins, as its memory must stay."""
        chunks = [sum(-(-each.numel() // CHUNK) for each in group["params"]) for group in self.param_groups]
        device = self.counts.device
        tables = [torch.empty(count, FIELDS, dtype=torch.int64, device=device) for count in chunks]
        given, moved = torch.empty_like(self.counts), torch.empty_like(self.counts)
        return Plan(tables, [0] * len(tables), given, moved, self.counts.new_empty(len(self.counts), 2))

    @torch.no_grad()
    def launch(self, plan: "Plan", taken: Tensor | None = None) -> None:
        """The update of all parameters that have gradients now; taken: (parameters,) 0 for those that stay all the same.
        While it is recorded nothing runs, so that what the kernels are to read may be written afterwards."""
        plan.moved.copy_(plan.given if taken is None else plan.given * taken)
        (beta1, beta2), eps = self.defaults["betas"], self.defaults["eps"]
        logs = float(np.log(beta1)) if beta1 else -1e30, float(np.log(beta2)) if beta2 else -1e30
        number = len(self.counts)
        _count[(-(-number // 256),)](self.counts, plan.moved, plan.scales, number, *logs, BLOCK=256)
        for index, group in enumerate(self.param_groups):
            sizes = [each.numel() for each in group["params"] if each.grad is not None]
            plan.used[index] = sum(-(-size // CHUNK) for size in sizes)
            if sizes:
                _adamw[(plan.used[index],)](
                    plan.tables[index], plan.scales, plan.moved, self.rate, group.get("factor", 1.0), group["weight_decay"],
                    beta1, beta2, eps, COURSE=self.course, CHUNK=CHUNK, FIELDS=FIELDS, num_warps=8,
                )  # fmt: skip

    def write(self, plan: "Plan") -> None:
        """Where parameters, gradients and state lie now"""
        gradients = np.zeros(len(self.counts), dtype=np.float32)
        for group, table in zip(self.param_groups, plan.tables, strict=True):
            given = [each for each in group["params"] if each.grad is not None]
            rows = [self._chunks(parameter) for parameter in given]
            gradients[[self.numbers[parameter] for parameter in given]] = 1
            if rows:
                written = torch.from_numpy(np.concatenate(rows))
                table[: len(written)].copy_(written)
        plan.given.copy_(torch.from_numpy(gradients))

    def _chunks(self, parameter: Tensor) -> np.ndarray:
        """A parameter's part of the table"""
        begins = np.arange(0, parameter.numel(), CHUNK)
        state, copy = self.state[parameter], self.copies.get(parameter)
        rows = np.zeros((len(begins), FIELDS), dtype=np.int64)
        for field, tensor in enumerate((parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"])):
            rows[:, field] = tensor.data_ptr() + 4 * begins
        if copy is not None:
            rows[:, 4] = copy.data_ptr() + 2 * begins
        rows[:, 5] = np.minimum(CHUNK, parameter.numel() - begins)
        rows[:, 6] = self.numbers[parameter]
        return rows


@dataclass
class Plan:
    """Where the parts of one kind of step lie, for the kernels to read."""

    tables: list[Tensor]
    """for each group of parameters, (chunks, FIELDS)"""
    used: list[int]
    """chunks of each that have gradients"""
    given: Tensor
    """(parameters,) 1 where one has a gradient"""
    moved: Tensor
    """(parameters,) 1 where it is moved by it"""
    scales: Tensor
    """(parameters, 2) what the number of its steps means for the update"""


def _is_plain(gradient: Tensor) -> bool:
    """Whether the kernel can read it as it lies"""
    return gradient.dtype == torch.float32 and gradient.is_contiguous() and gradient.data_ptr() % 16 == 0
