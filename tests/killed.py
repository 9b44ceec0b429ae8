"""Train a recipe and die by SIGKILL at the N-th call of a function; run as a program by test_resume.py.

python killed.py RECIPE OUT MODULE:NAME N before|after|half [--resume] [--beside]

--beside: write in a thread, as on a GPU
"""

import importlib
import os
import signal
import sys
from pathlib import Path

import torch


def main() -> None:
    recipe, out, where, number, when, *more = sys.argv[1:]
    torch.set_num_threads(1)
    module_name, path = where.split(":")
    owner = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = getattr(owner, name)
    calls = 0

    def deadly(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == int(number) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if calls == int(number):
            if when == "half":  # as if killed in the middle of writing this file
                file = Path(arguments[1])
                os.truncate(file, file.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)
    from teabert import load_recipe, train, training

    if "--beside" in more:
        training.beside = lambda device: True
    train(load_recipe(recipe), out, resume="--resume" in more)


main()
