"""Answer a file in small chunks and die by SIGKILL in the middle of the N-th write; run by test_predicting.py.

python killed_predicting.py RUN TASK INPUT OUT N
"""

import os
import signal
import sys
from pathlib import Path

import torch

from teabert import journal, predicting
from teabert.progress import Quiet


def main() -> None:
    run, task, source, out, number = sys.argv[1:]
    torch.set_num_threads(1)
    predicting.ANSWERS = predicting.ROWS = 7
    writes = 0

    def append(file, content):
        nonlocal writes
        writes += 1
        if writes == int(number):
            file.write(content[: len(content) // 2])
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        file.write(content)
        file.flush()

    journal._append = append
    wanted = predicting.Wanted(task, predicting.usual_form(Path(out)))
    predicting.Predicting(Path(run), predicting.Given(source=source), wanted, Quiet()).write(Path(out))


main()
