"""Attention inside each of many short sequences that lie end to end, with dropout and a bias by distance.

A program takes one block of queries of one sequence and head, and goes over the keys with a running softmax (Dao et al.
2022). Scores are made again in the backward pass; every sum has one order, so the same bits come out every time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from teabert.batches import Layout
from teabert.kernels import Draws
from teabert.kernels.random import kept

SHORT = 128
"""Up to this length blocks of 32 tokens waste less than they cost."""


@triton.jit
def _scores(q, k, rows, columns, size, bias, bias_size, head, scale, BIASED: tl.constexpr):
    """(rows, columns): how much each query asks of each key; minus infinity where there is none"""
    s = tl.dot(q, tl.trans(k)) * scale
    real = (rows[:, None] < size) & (columns[None, :] < size)
    if BIASED:
        where = (head * bias_size + rows[:, None]) * bias_size + columns[None, :]
        s += tl.load(bias + where, mask=real, other=0.0).to(tl.float32)
    return tl.where(columns[None, :] < size, s, float("-inf"))


@triton.jit(do_not_specialize=["place"])
def _attend(
    q, k, v, out, sums, bounds, bias, seed, q_row, k_row, v_row, bias_size, place, scale, rate,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    sequence, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(bounds + sequence)
    size = (tl.load(bounds + sequence + 1) - start).to(tl.int32)
    if block * BLOCK < size:
        inside, width = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
        rows = block * BLOCK + inside
        own = head * WIDTH + width[None, :]
        asking = tl.load(q + (start + rows)[:, None] * q_row + own, mask=rows[:, None] < size, other=0.0)
        highest = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        read = tl.zeros([BLOCK, WIDTH], tl.float32)
        for first in range(0, size, BLOCK):
            columns = first + inside
            there = columns[:, None] < size
            keys = tl.load(k + (start + columns)[:, None] * k_row + own, mask=there, other=0.0)
            values = tl.load(v + (start + columns)[:, None] * v_row + own, mask=there, other=0.0)
            s = _scores(asking, keys, rows, columns, size, bias, bias_size, head, scale, BIASED)
            now = tl.maximum(highest, tl.max(s, 1))
            p = tl.exp(s - now[:, None])
            fade = tl.exp(highest - now)
            total = total * fade + tl.sum(p, 1)
            if DROPS:
                index = (((start + rows) * HEADS + head)[:, None] * bias_size + columns[None, :]).to(tl.int32)
                p = tl.where(kept(seed, place, index, rate), p / (1.0 - rate), 0.0)
            read = read * fade[:, None] + tl.dot(p.to(values.dtype), values)
            highest = now
        tl.store(out + (start + rows)[:, None] * (HEADS * WIDTH) + own, read / total[:, None], mask=rows[:, None] < size)
        tl.store(sums + (start + rows) * HEADS + head, highest + tl.log(total), mask=rows < size)


@triton.jit(do_not_specialize=["place"])
def _attend_back(
    q, k, v, out, sums, grad, dq, dk, dv, ds, bounds, bias, seed, q_row, k_row, v_row, bias_size, place, scale, rate,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """The block first as keys, whose gradients come from all queries, then as queries"""
    sequence, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(bounds + sequence)
    size = (tl.load(bounds + sequence + 1) - start).to(tl.int32)
    if block * BLOCK < size:
        inside, width = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
        mine = block * BLOCK + inside
        own = head * WIDTH + width[None, :]
        ours = mine[:, None] < size
        dense = HEADS * WIDTH
        keys = tl.load(k + (start + mine)[:, None] * k_row + own, mask=ours, other=0.0)
        values = tl.load(v + (start + mine)[:, None] * v_row + own, mask=ours, other=0.0)
        to_keys = tl.zeros([BLOCK, WIDTH], tl.float32)
        to_values = tl.zeros([BLOCK, WIDTH], tl.float32)
        to_queries = tl.zeros([BLOCK, WIDTH], tl.float32)
        for first in range(0, size, BLOCK):
            rows = first + inside
            there = rows[:, None] < size
            asking = tl.load(q + (start + rows)[:, None] * q_row + own, mask=there, other=0.0)
            g = tl.load(grad + (start + rows)[:, None] * dense + own, mask=there, other=0.0)
            o = tl.load(out + (start + rows)[:, None] * dense + own, mask=there, other=0.0)
            level = tl.load(sums + (start + rows) * HEADS + head, mask=rows < size, other=float("inf"))
            s = _scores(asking, keys, rows, mine, size, bias, bias_size, head, scale, BIASED)
            p = tl.exp(s - level[:, None])
            dp = tl.dot(g, tl.trans(values))
            seen = p
            if DROPS:
                index = (((start + rows) * HEADS + head)[:, None] * bias_size + mine[None, :]).to(tl.int32)
                keep = kept(seed, place, index, rate)
                seen = tl.where(keep, p / (1.0 - rate), 0.0)
                dp = tl.where(keep, dp / (1.0 - rate), 0.0)
            to_values += tl.dot(tl.trans(seen.to(g.dtype)), g)
            shift = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
            d = p * (dp - shift[:, None])
            if BIASED:
                where = ((sequence * HEADS + head).to(tl.int64) * bias_size + rows[:, None]) * bias_size + mine[None, :]
                tl.store(ds + where, d, mask=(rows[:, None] < size) & (mine[None, :] < size))
            to_keys += tl.dot(tl.trans(d.to(asking.dtype)), asking)
            if size <= BLOCK:  # these are all queries there are
                to_queries += tl.dot(d.to(keys.dtype), keys)
        tl.store(dk + (start + mine)[:, None] * dense + own, to_keys * scale, mask=ours)
        tl.store(dv + (start + mine)[:, None] * dense + own, to_values, mask=ours)

        if size > BLOCK:
            asking = tl.load(q + (start + mine)[:, None] * q_row + own, mask=ours, other=0.0)
            g = tl.load(grad + (start + mine)[:, None] * dense + own, mask=ours, other=0.0)
            o = tl.load(out + (start + mine)[:, None] * dense + own, mask=ours, other=0.0)
            level = tl.load(sums + (start + mine) * HEADS + head, mask=mine < size, other=float("inf"))
            shift = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
            for first in range(0, size, BLOCK):
                columns = first + inside
                there = columns[:, None] < size
                keys = tl.load(k + (start + columns)[:, None] * k_row + own, mask=there, other=0.0)
                values = tl.load(v + (start + columns)[:, None] * v_row + own, mask=there, other=0.0)
                s = _scores(asking, keys, mine, columns, size, bias, bias_size, head, scale, BIASED)
                p = tl.exp(s - level[:, None])
                dp = tl.dot(g, tl.trans(values))
                if DROPS:
                    index = (((start + mine) * HEADS + head)[:, None] * bias_size + columns[None, :]).to(tl.int32)
                    dp = tl.where(kept(seed, place, index, rate), dp / (1.0 - rate), 0.0)
                d = p * (dp - shift[:, None])
                to_queries += tl.dot(d.to(keys.dtype), keys)
        tl.store(dq + (start + mine)[:, None] * dense + own, to_queries * scale, mask=ours)


class _Packed(torch.autograd.Function):
    """The two kernels as one operation of torch's"""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        seed: Tensor,
        place: int,
        layout: Layout,
        rate: float,
    ) -> Tensor:
        """q, k, v: (tokens, attention_heads, head_width) -> (tokens, attention_heads, head_width)"""
        tokens, heads, width = q.shape
        out = q.new_empty(tokens, heads, width)
        sums = torch.empty(tokens, heads, dtype=torch.float32, device=q.device)
        ctx.save_for_backward(q, k, v, bias, out, sums, layout.bounds, seed)
        ctx.facts = place, layout.longest, rate
        grid, options = _launch(layout.longest, layout.bounds, heads, width, bias is not None, rate)
        table = q if bias is None else bias
        rows = q.stride(0), k.stride(0), v.stride(0)
        _attend[grid](
            q, k, v, out, sums, layout.bounds, table, seed, *rows, layout.longest, place, width**-0.5, rate, **options
        )
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """(tokens, attention_heads, head_width) -> the gradients of q, k, v and the bias"""
        q, k, v, bias, out, sums, bounds, seed = ctx.saved_tensors
        place, longest, rate = ctx.facts
        heads, width = q.shape[1:]
        dq, dk, dv = q.new_empty(3, *q.shape).unbind(0)
        grid, options = _launch(longest, bounds, heads, width, bias is not None, rate)
        ds = None if bias is None else q.new_zeros(len(bounds) - 1, heads, longest, longest, dtype=torch.bfloat16)
        table = q if bias is None else bias
        rows = q.stride(0), k.stride(0), v.stride(0)
        _attend_back[grid](
            q, k, v, out, sums, grad.contiguous(), dq, dk, dv, dq if ds is None else ds, bounds, table, seed, *rows,
            longest, place, width**-0.5, rate, **options,
        )  # fmt: skip
        return dq, dk, dv, None if ds is None else ds.sum(0, dtype=torch.float32), None, None, None, None


def _launch(
    longest: int, bounds: Tensor, heads: int, width: int, biased: bool, rate: float
) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """How many programs, and what is fixed when a kernel is compiled"""
    block = 32 if longest <= SHORT else 64
    fixed = {"HEADS": heads, "WIDTH": width, "BLOCK": block, "BIASED": biased, "DROPS": rate > 0}
    return (len(bounds) - 1, heads, -(-longest // block)), {**fixed, "num_warps": 2 if block == 32 else 4}


def attend_packed(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, bias: Tensor | None, rate: float, draws: Draws
) -> Tensor:
    """q, k, v: (tokens, attention_heads, head_width), the heads side by side in each row -> the same shape

    bias: (attention_heads, layout.longest, layout.longest), what to add to the score of every (query, key)
    """
    split = [x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous() for x in (q, k, v)]
    bias = None if bias is None else bias.contiguous()
    out: Tensor = _Packed.apply(*split, bias, draws.seed, draws.place(), layout, rate)
    return out
