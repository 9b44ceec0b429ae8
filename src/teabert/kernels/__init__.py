"""What a GPU computes in one kernel each, in Triton: packed attention, dropped-out residual sums with LayerNorm, AdamW.

Used by the encoder where it learns or answers in bf16 on a GPU; everywhere else torch's own operators compute the same.
Randomness comes from a number that lies in the GPU's memory, so that a recorded step draws anew every time it is played.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

HEAD_WIDTHS = (16, 32, 64, 128)
"""What matrix units take"""


CAPABILITY = (7, 5)
"""Compute capability of the oldest GPU that Triton is used on"""


@cache
def has_triton() -> bool:
    """Whether Triton is installed: torch brings it along on Linux with a GPU."""
    return find_spec("triton") is not None


@cache
def why_no_kernels(device: torch.device) -> str | None:
    """What is missing where kernels cannot run; nothing where they can, which is found out by running one"""
    if device.type != "cuda":
        return "there is no GPU"
    if not has_triton():
        return "Triton is not installed (pip install triton)"
    capability = torch.cuda.get_device_capability(device)
    if capability < CAPABILITY:
        found, wanted = (".".join(map(str, each)) for each in (capability, CAPABILITY))
        return f"the GPU is older than Triton takes (compute capability {found}, at least {wanted})"
    try:
        from teabert.kernels.sums import sum_rows

        sum_rows(torch.zeros(1, 32, device=device))
    except Exception as error:  # a compiler that is missing, a driver that is too old: each comes as a class of its own
        words = str(error).strip().splitlines()
        return f"Triton cannot make kernels here ({words[0] if words else type(error).__name__})"
    return None


@cache
def _multiplies_bf16(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


_wanted = ContextVar("wanted", default=True)


@contextmanager
def without_kernels() -> Iterator[None]:
    """torch's own operators inside, to compare with them"""
    token = _wanted.set(False)
    try:
        yield
    finally:
        _wanted.reset(token)


def usable(x: Tensor) -> bool:
    """Whether what is computed next to x should go through the kernels: in bf16, on a GPU that multiplies it."""
    return (
        x.is_cuda
        and _wanted.get()
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") == torch.bfloat16
        and _multiplies_bf16(x.device)
        and why_no_kernels(x.device) is None
    )


class Draws:
    """Where dropout's randomness of one step comes from: a seed in the GPU's memory, and a place for each use of it."""

    def __init__(self, seed: Tensor) -> None:
        self.seed = seed  # (1,) int64
        self.places = 0

    def place(self) -> int:
        """A number of its own for each dropout of a step"""
        self.places += 1
        return self.places
