"""A linear layer that keeps its weights as the processor likes best: where a CPU only answers, in the order and precision
of oneDNN; where a GPU learns in bf16, also in bf16.

What it computes is torch's linear layer, up to rounding. Learning, other devices and processors without oneDNN use that.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from teabert.kernels import usable

PRECISIONS = (torch.float32, torch.bfloat16)
"""What oneDNN takes"""


class Linear(nn.Linear):
    """x W^T + b."""

    copies: tuple[Tensor, Tensor] | None = None
    """bf16 copies of weight and bias that are kept up to date while a GPU learns; see optim.py"""
    _laid_out: tuple[tuple[Any, ...], Tensor, Tensor | None] | None = None
    """which weights these are, and they and the bias as oneDNN wants them"""

    def forward(self, x: Tensor) -> Tensor:
        """(tokens, inputs) -> (tokens, outputs)"""
        if self.copies is not None and usable(x):
            from teabert.kernels.linear import linear

            return linear(x, self.weight, self.bias, *self.copies)
        precision = self._precision_of_answers(x)
        return F.linear(x, self.weight, self.bias) if precision is None else self._answer(x, precision)

    def activated(self, x: Tensor, activation: nn.Module) -> Tensor:
        """activation(x W^T + b): oneDNN applies a GELU before anything is written down"""
        if isinstance(activation, nn.GELU):
            precision = self._precision_of_answers(x)
            if precision is not None:
                return self._answer(x, precision, "gelu", activation.approximate)
        out: Tensor = activation(self(x))
        return out

    def _precision_of_answers(self, x: Tensor) -> torch.dtype | None:
        """In which precision oneDNN computes; nothing where torch does"""
        if torch.is_grad_enabled():
            self._laid_out = None  # what learns will change, and fused optimisers do not count up the weights' version
        return answering(x)

    def _answer(self, x: Tensor, precision: torch.dtype, activation: str = "none", how: str = "") -> Tensor:
        weight, bias = self.laid_out(precision)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(precision), weight, bias, activation, [], how)
        return out

    def shifted(self, x: Tensor, rows: Tensor, of_token: Tensor) -> Tensor:
        """x W^T + b + rows[of_token], on a GPU; rows: (count, outputs), a lone one is everybody's"""
        from teabert.kernels.linear import linear

        copies = self.copies or (self.weight.detach().bfloat16(), self.bias.detach().bfloat16())
        return linear(x, self.weight, self.bias, *copies, rows, of_token)

    def product(self, x: Tensor) -> Tensor:
        """x W^T alone, on a GPU: what comes next adds the bias"""
        from teabert.kernels.linear import linear

        copy = self.weight.detach().bfloat16() if self.copies is None else self.copies[0]
        return linear(x, self.weight, None, copy, None)

    def _load_from_state_dict(self, *given: Any) -> None:
        """Other weights: their copies must follow"""
        super()._load_from_state_dict(*given)
        if self.copies is not None:
            for copy, master in zip(self.copies, (self.weight, self.bias), strict=True):
                copy.copy_(master.detach())

    def __getstate__(self) -> dict[str, Any]:
        """Copies of the layer lay out their own"""
        return self.__dict__ | {"_laid_out": None, "copies": None}

    def laid_out(self, precision: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Weights and bias in that precision, made anew where the weights have changed"""
        weight, bias = self.weight, self.bias
        now = (_mark(weight), None if bias is None else _mark(bias), precision)
        if self._laid_out is None or self._laid_out[0] != now:
            given = None if bias is None else bias.detach().to(precision)
            self._laid_out = now, torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(precision)), given
        return self._laid_out[1:]


def _mark(weight: Tensor) -> tuple[int, int]:
    """By which a change is seen"""
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version


def answering(x: Tensor) -> torch.dtype | None:
    """The precision in which oneDNN computes what comes after x; nothing where torch does, or where something learns"""
    if torch.is_grad_enabled() or not x.is_cpu:
        return None
    precision = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    return precision if precision in PRECISIONS and _is_available() else None


@cache
def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _is_available() -> bool:
    """Not while a graph is traced, which is to run elsewhere"""
    return not torch.compiler.is_compiling() and torch._C._get_tracing_state() is None and _has_onednn()
