"""Write a file through a journal and die by SIGKILL at the N-th moment; run as a program by test_journal.py.

python killed_writing.py FOLDER N    the moments: before, in the middle of and after each write; around each rename
"""

import os
import signal
import sys
from pathlib import Path

from teabert import journal

CHUNKS = [b"one\n", b"two\ntwo\n", b"", b"three\n" * 200, b"end"]


def main() -> None:
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    moments = 0

    def moment() -> None:
        nonlocal moments
        moments += 1
        if moments == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def append(file, content):
        moment()
        half = len(content) // 2
        file.write(content[:half])
        file.flush()
        moment()
        file.write(content[half:])
        file.flush()
        moment()

    def replace(source, target, rename=os.replace):
        moment()
        rename(source, target)
        moment()

    journal._append = append
    journal.os.replace = replace
    with journal.Journal(folder / "out.txt", {"input": 1}) as out:
        for place in range(out.place.get("next", 0), len(CHUNKS)):
            out.add(CHUNKS[place], {"next": place + 1})
    print(moments)


main()
