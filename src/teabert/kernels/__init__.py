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


@cache
def has_triton() -> bool:
    """Whether Triton is installed: torch brings it along on Linux with a GPU."""
    return find_spec("triton") is not None


@cache
def _is_modern(device: torch.device) -> bool:
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
        and has_triton()
        and _is_modern(x.device)
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
