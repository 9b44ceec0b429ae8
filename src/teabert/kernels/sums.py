"""The sum over all rows, for the gradients of biases: torch's own spends most of its time on starting."""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 128, 32
PART = 1024
"""Rows that one program adds up; more are added up in two rounds."""


@triton.jit(do_not_specialize=["rows"])
def _sum_rows(x, out, rows, columns, PART: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    across = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    last = tl.minimum(rows, (part + 1) * PART)
    for first in range(part * PART, last, ROWS):
        down = first + tl.arange(0, ROWS)
        at = down[:, None].to(tl.int64) * columns + across[None, :]
        total += tl.load(x + at, mask=(down[:, None] < last) & (across[None, :] < columns), other=0.0).to(tl.float32)
    tl.store(out + part * columns + across, tl.sum(total, 0), mask=across < columns)


def sum_rows(x: Tensor) -> Tensor:
    """(rows, columns) in any precision -> (columns,) in fp32, added up in the same order every time"""
    rows, columns = x.shape
    parts = -(-rows // PART)
    out = torch.empty(parts, columns, dtype=torch.float32, device=x.device)
    _sum_rows[(-(-columns // COLUMNS), parts)](x, out, rows, columns, PART=PART, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4)
    return out[0] if parts == 1 else sum_rows(out)
