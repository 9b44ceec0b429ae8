"""Which device and which precision to compute in."""

from contextlib import AbstractContextManager, nullcontext

import torch


def pick_device(wanted: str | None = None) -> torch.device:
    """The wanted device, or a GPU where there is one."""
    if wanted:
        return torch.device(wanted)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def computes_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bf16 natively, so that it is faster than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, probe, lambda: False)()) for probe in probes)


def pick_precision(wanted: str, device: torch.device) -> str:
    """fp32 or bf16, where auto takes bf16 if the device computes in it."""
    if wanted != "auto":
        return wanted
    return "bf16" if computes_bf16(device) else "fp32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Matrix products in bf16, or everything in fp32."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch means that memory ran out: a GPU's has a class of its own, a CPU's only words."""
    words = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in words
