"""Jobs in processes of their own, several at once: one that dies takes only its own job with it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from teabert.experiments.clock import Clock
from teabert.experiments.jobs import Job
from teabert.experiments.results import Record, good
from teabert.experiments.work import Place, failure, work

UNLIMITED = Clock()
"""All the time that it takes"""


@dataclass
class Worker:
    """A process and the job that it is at."""

    process: SpawnProcess
    connection: Connection
    job: Job
    begun: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(cls, job: Job, place: Place) -> "Worker":
        """A new process, at its first job; spawned, because a forked one cannot use the GPU."""
        spawn = get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=serve, args=(theirs, place), daemon=True)
        process.start()
        theirs.close()  # the end of the process is then the end of the pipe
        worker = cls(process, ours, job)
        worker.give(job)
        return worker

    def give(self, job: Job) -> None:
        """Its next job."""
        self.job, self.begun = job, time.monotonic()
        with suppress(OSError):  # it has just died, as asking for the result will show
            self.connection.send(job)

    def result(self, place: Place) -> Record:
        """What its job came to; of a process that died, how."""
        try:
            record: Record = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return failure(self.job, place, _how(self.process.exitcode))
        return record

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def serve(connection: Connection, place: Place) -> None:
    """The life of a worker: jobs in, records out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        connection.send(work(connection.recv(), place))


def _die_with_parent() -> None:
    """A worker that outlives its parent would go on in a run folder that the next one begins to use."""
    parent = parent_process()
    assert parent is not None, "a worker is started by another process"
    wait([parent.sentinel])
    os._exit(1)


def run_jobs(
    jobs: Iterable[Job], place: Place, ended: Callable[[Job, Record], None], clock: Clock = UNLIMITED
) -> list[Job]:
    """Do all jobs, `place.workers` at once; `ended` hears of each. The clock may leave some, which are returned: none
    begins that cannot end in time, and when time is up those at work are ended."""
    waiting = list(jobs)
    busy: list[Worker] = []
    try:
        while True:
            while len(busy) < place.workers and (job := _next(waiting, clock)):
                busy.append(Worker.begin(job, place))
            clock.prepare([*waiting, *(worker.job for worker in busy)])
            ready = wait([worker.connection for worker in busy], clock.left()) if busy else []
            if not ready:
                break
            for worker in [worker for worker in busy if worker.connection in ready]:
                job, record, seconds = worker.job, worker.result(place), time.monotonic() - worker.begun
                if good(record):
                    clock.heard(job, seconds)
                following = _next(waiting, clock) if worker.process.is_alive() else None
                if following:
                    worker.give(following)
                else:
                    worker.stop()
                    busy.remove(worker)
                ended(job, record)
    finally:
        for worker in busy:
            worker.stop()
    return [*(worker.job for worker in busy), *waiting]


def _next(waiting: list[Job], clock: Clock) -> Job | None:
    """The first job that can still end in time, taken from those that wait"""
    found = next((job for job in waiting if clock.fits(job)), None)
    if found is not None:
        waiting.remove(found)
    return found


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was ended by {signal.Signals(-code).name}; where nobody did that, memory ran out"
    return f"its process ended by itself with code {code}"
