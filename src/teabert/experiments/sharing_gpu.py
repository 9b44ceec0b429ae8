"""Several processes on one GPU at the same time: NVIDIA's multi-process service, where the driver brings it along.

Without it the GPU serves one process after another, and a small run leaves most of it idle.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import torch

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
PART = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PATIENCE = 20
"""Seconds for the service to start or stop"""


@contextmanager
def shared_gpu(processes: int, part: int = 100) -> Iterator[str | None]:
    """Processes that are started inside run side by side; says why they do not, where there is a GPU to share. Each gets at
    most this part, in percent, of the GPU's multiprocessors."""
    if processes < 2 or not torch.cuda.is_available() or any(name in os.environ for name in FOLDERS):
        yield None
        return
    if shutil.which(CONTROL) is None:
        yield f"{CONTROL} is not here, so the GPU takes the {processes} runs in turns"
        return
    with tempfile.TemporaryDirectory(prefix="teabert-mps-") as folder:
        before = os.environ.get(PART)
        os.environ.update(dict.fromkeys(FOLDERS, folder) | ({PART: str(part)} if part < 100 else {}))
        why = _say(["-d"])
        if why is not None:
            _forget()
        try:
            yield None if why is None else f"{why}, so the GPU takes the {processes} runs in turns"
        finally:
            os.environ.pop(PART, None)
            os.environ.update({} if before is None else {PART: before})
            if why is None:
                _say([], "quit\n")
                _forget()


def _forget() -> None:
    """Processes that start from now on do not look for the service"""
    for name in FOLDERS:
        os.environ.pop(name, None)


def _say(arguments: list[str], words: str = "") -> str | None:
    """Tell the service; what went wrong, if anything did"""
    try:
        done = subprocess.run([CONTROL, *arguments], input=words, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{CONTROL}: {error}"
    return f"{CONTROL}: {(done.stdout + done.stderr).strip()}" if done.returncode else None
