"""A row of a small table for every token: added to what the token has, and the sums over each row's tokens on the way back.

Every sum has one order, so the same bits come out every time.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from teabert.kernels.sums import PART, sum_rows

TOKENS, COLUMNS = 64, 64
"""What one program adds up at a time"""
WIDE = 1024
"""Columns that one program adds to"""


@triton.jit
def _add_rows(x, rows, of_token, columns, WIDE: tl.constexpr, LONE: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    across = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    real = across < columns
    own = rows if LONE else rows + tl.load(of_token + token) * columns
    row = tl.load(own + across, mask=real, other=0.0).to(tl.float32)
    at = x + token * columns + across
    tl.store(at, tl.load(at, mask=real, other=0.0).to(tl.float32) + row, mask=real)


@triton.jit(do_not_specialize=["tokens"])
def _sum_by_row(
    x, of_token, out, tokens, columns, count,
    ROWS: tl.constexpr, PART: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    across = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    rows = tl.arange(0, ROWS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    last = tl.minimum(tokens, (part + 1) * PART)
    for first in range(part * PART, last, TOKENS):
        down = first + tl.arange(0, TOKENS)
        own = tl.load(of_token + down, mask=down < last, other=-1)
        at = down[:, None].to(tl.int64) * columns + across[None, :]
        here = tl.load(x + at, mask=(down[:, None] < last) & (across[None, :] < columns), other=0.0)
        total += tl.dot((rows[:, None] == own[None, :]).to(tl.float32), here.to(tl.float32))  # bf16 is exact in tf32
    at = (part * count + rows[:, None]) * columns + across[None, :]
    tl.store(out + at, total, mask=(rows[:, None] < count) & (across[None, :] < columns))


def add_rows(x: Tensor, rows: Tensor, of_token: Tensor) -> None:
    """x += rows[of_token]; x: (tokens, columns), rows: (count, columns), a lone one everybody's, of_token: (tokens,)"""
    tokens, columns = x.shape
    grid = tokens, -(-columns // WIDE)
    _add_rows[grid](x, rows.contiguous(), of_token, columns, WIDE=WIDE, LONE=len(rows) == 1, num_warps=4)


def sum_by_row(x: Tensor, of_token: Tensor, count: int) -> Tensor:
    """(tokens, columns) -> (count, columns) in fp32: for each row the sum over its tokens"""
    tokens, columns = x.shape
    parts = -(-tokens // PART)
    out = torch.empty(parts, count, columns, dtype=torch.float32, device=x.device)
    _sum_by_row[(-(-columns // COLUMNS), parts)](
        x, of_token, out, tokens, columns, count,
        ROWS=max(16, triton.next_power_of_2(count)), PART=PART, TOKENS=TOKENS, COLUMNS=COLUMNS, num_warps=4,
    )  # fmt: skip
    return out[0] if parts == 1 else sum_rows(out.view(parts, -1)).view(count, columns)
