"""A linear layer over its bf16 copy: nothing is cast on the way, and the weights' gradients come out in fp32."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from teabert.kernels.sums import sum_rows


class _Linear(torch.autograd.Function):
    """F.linear with copies for reading and masters for learning"""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, weight_copy: Tensor, bias_copy: Tensor | None
    ) -> Tensor:
        """x: (tokens, inputs) in bf16 -> (tokens, outputs)"""
        ctx.save_for_backward(x, weight_copy)
        return F.linear(x, weight_copy, bias_copy)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """(tokens, outputs) in bf16 -> the gradients of x and of the masters"""
        x, weight = ctx.saved_tensors
        to_x = grad @ weight if ctx.needs_input_grad[0] else None
        to_weight = _product(grad.t(), x) if ctx.needs_input_grad[1] else None
        to_bias = sum_rows(grad.contiguous()) if ctx.needs_input_grad[2] else None
        return to_x, to_weight, to_bias, None, None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b in fp32"""
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, weight_copy: Tensor, bias_copy: Tensor | None) -> Tensor:
    """x W^T + b, or without b, read from the copies and learned by the masters"""
    out: Tensor = _Linear.apply(x.to(weight_copy.dtype), weight, bias, weight_copy, bias_copy)
    return out
