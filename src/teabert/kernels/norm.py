"""LayerNorm of a residual sum, what is added being dropped out before: one kernel there, one and a sum back.

Out comes the sum in two precisions: exact, for the next residual, and bf16, for the next matrices. In the backward pass
their two gradients meet in the kernel, where torch would add them up in one of their own.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from teabert.kernels import Draws
from teabert.kernels.random import kept
from teabert.kernels.sums import sum_rows

PROGRAMS = 528
"""So many share the rows of a backward pass: four for each multiprocessor of a large GPU."""


@triton.jit(do_not_specialize=["place"])
def _sum_norm(
    residual, added, shift, weight, bias, seed, exact, working, normal, deviation, width, place, epsilon, rate,
    BLOCK: tl.constexpr, DROPS: tl.constexpr, SHIFTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    real = columns < width
    at = row * width + columns
    x = tl.load(added + at, mask=real, other=0.0).to(tl.float32)
    if SHIFTS:
        x += tl.load(shift + columns, mask=real, other=0.0)
    if DROPS:
        x = tl.where(kept(seed, place, at.to(tl.int32), rate), x / (1.0 - rate), 0.0)
    x += tl.load(residual + at, mask=real, other=0.0).to(tl.float32)
    centred = tl.where(real, x - tl.sum(x, 0) / width, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / width + epsilon)
    unit = centred * scale
    y = unit * tl.load(weight + columns, mask=real, other=0.0) + tl.load(bias + columns, mask=real, other=0.0)
    tl.store(exact + at, y, mask=real)
    tl.store(working + at, y, mask=real)
    tl.store(normal + at, unit, mask=real)
    tl.store(deviation + row, scale)


@triton.jit(do_not_specialize=["place", "rows"])
def _sum_norm_back(
    to_exact, to_working, normal, deviation, weight, seed, to_residual, to_added, partial, rows, width, place, rate,
    BLOCK: tl.constexpr, DROPS: tl.constexpr, EXACT: tl.constexpr, WORKING: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(0), tl.num_programs(0)
    columns = tl.arange(0, BLOCK)
    real = columns < width
    by = tl.load(weight + columns, mask=real, other=0.0)
    to_weight = tl.zeros([BLOCK], tl.float32)
    to_bias = tl.zeros([BLOCK], tl.float32)
    to_shift = tl.zeros([BLOCK], tl.float32)
    for row in range(program, rows, programs):
        at = tl.cast(row, tl.int64) * width + columns
        g = tl.zeros([BLOCK], tl.float32)
        if EXACT:
            g += tl.load(to_exact + at, mask=real, other=0.0).to(tl.float32)
        if WORKING:
            g += tl.load(to_working + at, mask=real, other=0.0).to(tl.float32)
        unit = tl.load(normal + at, mask=real, other=0.0).to(tl.float32)
        to_weight += g * unit
        to_bias += g
        g *= by
        dx = (g - tl.sum(g, 0) / width - unit * (tl.sum(g * unit, 0) / width)) * tl.load(deviation + row)
        tl.store(to_residual + at, dx, mask=real)
        if DROPS:
            dx = tl.where(kept(seed, place, at.to(tl.int32), rate), dx / (1.0 - rate), 0.0)
        tl.store(to_added + at, dx, mask=real)
        to_shift += dx
    tl.store(partial + program * 3 * width + columns, to_weight, mask=real)
    tl.store(partial + (program * 3 + 1) * width + columns, to_bias, mask=real)
    tl.store(partial + (program * 3 + 2) * width + columns, to_shift, mask=real)


class _SumNorm(torch.autograd.Function):
    """The two kernels as one operation of torch's"""

    @staticmethod
    def forward(
        ctx: Any, residual: Tensor, added: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, seed: Tensor,
        place: int, epsilon: float, rate: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """(tokens, width) each -> the normalised sum, exact and in bf16"""
        rows, width = residual.shape
        exact = torch.empty(rows, width, dtype=torch.float32, device=residual.device)
        working, normal = torch.empty(2, rows, width, dtype=torch.bfloat16, device=residual.device).unbind(0)
        deviation = torch.empty(rows, dtype=torch.float32, device=residual.device)
        block = triton.next_power_of_2(width)
        _sum_norm[(rows,)](
            residual, added, weight if shift is None else shift, weight, bias, seed, exact, working, normal, deviation,
            width, place, epsilon, rate, BLOCK=block, DROPS=rate > 0, SHIFTS=shift is not None, num_warps=4,
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(normal, deviation, weight, seed)
        ctx.facts = place, rate, block, residual.dtype, added.dtype, shift is not None
        return exact, working

    @staticmethod
    def backward(ctx: Any, to_exact: Tensor | None, to_working: Tensor | None) -> Any:
        """The gradients of the sum's two forms -> those of what went in"""
        normal, deviation, weight, seed = ctx.saved_tensors
        place, rate, block, residual_dtype, added_dtype, shifts = ctx.facts
        rows, width = normal.shape
        to_residual = torch.empty(rows, width, dtype=residual_dtype, device=normal.device)
        to_added = torch.empty(rows, width, dtype=added_dtype, device=normal.device)
        programs = min(rows, PROGRAMS)
        partial = torch.empty(programs, 3, width, dtype=torch.float32, device=normal.device)
        _sum_norm_back[(programs,)](
            normal if to_exact is None else to_exact.contiguous(),
            normal if to_working is None else to_working.contiguous(),
            normal, deviation, weight, seed, to_residual, to_added, partial, rows, width, place, rate,
            BLOCK=block, DROPS=rate > 0, EXACT=to_exact is not None, WORKING=to_working is not None, num_warps=4,
        )  # fmt: skip
        to_weight, to_bias, to_shift = sum_rows(partial.view(programs, 3 * width)).view(3, width).unbind(0)
        return to_residual, to_added, to_shift if shifts else None, to_weight, to_bias, None, None, None, None


def sum_norm(
    residual: Tensor,
    added: Tensor,
    shift: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    epsilon: float,
    rate: float,
    draws: Draws,
) -> tuple[Tensor, Tensor]:
    """LayerNorm(residual + dropout(added + shift)), exact and in bf16; shift: (width,), the others (tokens, width)"""
    place = draws.place()
    found: tuple[Tensor, Tensor] = _SumNorm.apply(
        residual.contiguous(), added.contiguous(), shift, weight, bias, draws.seed, place, epsilon, rate
    )
    return found
