"""A linear layer over its bf16 copy: nothing is cast on the way, and the weights' gradients come out in fp32.

Its bias may be shifted by a row of a table for each token, which is how task vectors enter queries, keys and values.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from teabert.kernels.rows import add_rows, sum_by_row
from teabert.kernels.sums import sum_rows


class _Linear(torch.autograd.Function):
    """F.linear with copies for reading and masters for learning"""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        weight_copy: Tensor,
        bias_copy: Tensor | None,
        rows: Tensor | None,
        of_token: Tensor | None,
    ) -> Tensor:
        """x: (tokens, inputs) in bf16 -> (tokens, outputs)"""
        ctx.save_for_backward(x, weight_copy, of_token)
        ctx.rows = 0 if rows is None else len(rows)
        out = F.linear(x, weight_copy, bias_copy)
        if rows is not None and of_token is not None:
            add_rows(out, rows, of_token)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """(tokens, outputs) in bf16 -> the gradients of x, of the masters and of the rows"""
        x, weight, of_token = ctx.saved_tensors
        to_x = grad @ weight if ctx.needs_input_grad[0] else None
        to_weight = _product(grad.t(), x) if ctx.needs_input_grad[1] else None
        to_bias = to_rows = None
        if ctx.needs_input_grad[5] and ctx.rows > 1:
            to_rows = sum_by_row(grad.contiguous(), of_token, ctx.rows)
            to_bias = to_rows.sum(0) if ctx.needs_input_grad[2] else None
        elif ctx.needs_input_grad[2] or ctx.needs_input_grad[5]:
            to_bias = sum_rows(grad.contiguous())
            to_rows = to_bias[None] if ctx.rows == 1 else None
        return to_x, to_weight, to_bias, None, None, to_rows, None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b in fp32"""
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    weight_copy: Tensor,
    bias_copy: Tensor | None,
    rows: Tensor | None = None,
    of_token: Tensor | None = None,
) -> Tensor:
    """x W^T + b + rows[of_token], or without b or rows, read from the copies and learned by the masters; a lone row is
    everybody's"""
    out: Tensor = _Linear.apply(x.to(weight_copy.dtype), weight, bias, weight_copy, bias_copy, rows, of_token)
    return out
