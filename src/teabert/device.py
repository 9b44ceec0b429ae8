"""Which device and which precision to compute in."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch


def pick_device(wanted: str | None = None) -> torch.device:
    """The wanted device, or a GPU where there is one."""
    if wanted:
        return torch.device(wanted)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def describe(device: torch.device) -> str:
    """What computes, in words"""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'' if threads == 1 else 's'}" if device.type == "cpu" else device.type


def computes_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bf16 natively, so that it is faster than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, probe, lambda: False)()) for probe in probes)


def shortcomings(device: torch.device, precision: str) -> Iterator[str]:
    """A line on what makes learning slower here than it could be, where anything does"""
    slow = f" in fp32, as {'it' if device.type == 'cuda' else 'the processor'} does not compute in bf16"
    slow = slow if precision == "fp32" and not computes_bf16(device) else ""
    if device.type != "cuda":
        yield f"there is no GPU: computing on {describe(device)}{slow}"
    elif slow:
        yield f"computing on {describe(device)}{slow}"


def pick_precision(wanted: str, device: torch.device) -> str:
    """fp32 or bf16, where auto takes bf16 if the device computes in it."""
    if wanted != "auto":
        return wanted
    return "bf16" if computes_bf16(device) else "fp32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Matrix products in bf16, or everything in fp32."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()


FULL = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Words of errors that have no class of their own"""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error of torch means that memory ran out, or came while one that does was being handled."""
    if error is None:
        return False
    full = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in str(error) for words in FULL)
    return full or is_out_of_memory(error.__context__)
