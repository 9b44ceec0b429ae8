"""Processes that compute, so that HTTP and the model hold each other up less; the weights are in memory once.

A process with threads cannot fork safely, so the server, before it has any, forks a nursery: a process that only holds the
model and forks workers. They are asked through pairs of sockets, and whoever finds the other end closed ends: none outlives
the server, however that ended.
"""

import gc
import logging
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from teabert.answers import Answer
from teabert.attention import Attention
from teabert.errors import UserError
from teabert.requests import Prepared, Text
from teabert.serving.adding import Admin
from teabert.serving.batcher import Model

MOST = 8
"""Workers, unless more are asked for."""
LONELY = 0.2
"""Seconds without two workers at work at once, after which one may have all threads."""
FORK = "fork"
GONE = (EOFError, OSError)
"""What is raised where the other end is closed."""
log = logging.getLogger("teabert.serving")


class Failed(Exception):
    """What another process raised, as it was printed there; or that it ended."""


def how_many(wanted: int | None, device: str, threads: int) -> int:
    """How many workers there are to be; none where the server computes itself."""
    if not wanted and wanted is not None:
        return 0
    obstacle = "" if sys.platform == "linux" else "they need Linux"
    obstacle = obstacle if device == "cpu" else f"they are for processors, and this model is on '{device}'"
    if wanted and obstacle:
        raise UserError(f"workers: {wanted} cannot be had: {obstacle}. Leave --workers away.")
    return wanted or (0 if obstacle or threads == 1 else min(threads, MOST))


class Workers:
    """So many workers, and the nursery; to be made before the server has threads."""

    def __init__(self, model: Model, admin: Admin, count: int, threads: int, leave: Callable[[], None]) -> None:
        self.model, self.admin, self.threads = model, admin, threads
        self.nursery = Nursery(model, admin, leave)
        self.lock = Lock()
        self.busy, self.together = 0, 0.0
        """workers at work, and when it was last more than one"""
        self.computing = [Worker(self) for _ in range(count)]

    def begin(self) -> None:
        """Nothing: workers are told how many threads to take."""

    def close(self) -> None:
        """Have all end, and see them gone."""
        for worker in self.computing:
            worker.close()
        self.nursery.close()

    def add(self, path: Path) -> None:
        """Add the task of a task file, everywhere or nowhere: all read the same, whatever becomes of the file meanwhile."""
        if not path.is_file():
            self._change("add", path)  # which says so
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            shutil.copyfile(path, copy)
            self._change("add", copy)

    def remove(self, name: str) -> None:
        """Remove an added task, everywhere or nowhere."""
        self._change("remove", name)

    def _change(self, method: str, given: Any) -> None:
        """First in the nursery, which refuses what does not fit; then here, and in workers that it forks anew"""
        try:
            self.nursery.ask(method, given)
        except GONE:
            self.close()
        try:
            getattr(self.admin, method)(given)
        except BaseException:
            self.close()  # the nursery has what the server has not
            raise
        finally:
            for worker in self.computing:
                worker.replace()

    @contextmanager
    def at_work(self) -> Iterator[int]:
        """While a worker computes: with how many threads, all of them where it has long been the only one"""
        with self.lock:
            now = time.monotonic()
            if self.busy:
                self.together = now
            self.busy += 1
            share = max(1, self.threads // len(self.computing))
            threads = self.threads if now - self.together > LONELY else share
        try:
            yield threads
        finally:
            with self.lock:
                self.busy -= 1


class Worker:
    """A model that answers in a process of its own; in the server's where the nursery is no more."""

    connection: Connection | None = None

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.replace()

    def answer_prepared(self, prepared: Sequence[Prepared]) -> list[Answer]:
        """One packed batch"""
        found: list[Answer] = self._ask("answer_prepared", prepared)
        return found

    def attention(self, text: Text, task: str) -> Attention:
        """How much a task reads each word"""
        found: Attention = self._ask("attention", text, task)
        return found

    def _ask(self, method: str, *given: Any) -> Any:
        with self.workers.at_work() as threads:
            for _ in range(2):
                if self.connection is None:
                    take(threads)
                    return getattr(self.workers.model, method)(*given)
                try:
                    return ask(self.connection, (method, given, threads))
                except GONE:
                    log.error("a worker ended while it was at work; a new one takes its place")
                    self.replace()
        raise Failed("two workers ended over it")

    def replace(self) -> None:
        """Let a new process take the place of the old"""
        self.close()
        try:
            self.connection = self.workers.nursery.worker()
        except (*GONE, Failed) as error:
            log.error("no worker can be forked (%r): the server computes itself until it is started anew", error)

    def close(self) -> None:
        """Have the process end"""
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Nursery:
    """The process that holds the model and forks workers."""

    def __init__(self, model: Model, admin: Admin, leave: Callable[[], None]) -> None:
        self.lock = Lock()
        self.connection, its = Pipe()
        gc.collect()
        gc.freeze()  # looking for garbage writes to every object, and memory that is written to is shared no more

        def tend() -> None:
            self.connection.close()
            leave()
            _tend(its, model, admin)

        self.process = fork(tend)
        its.close()

    def worker(self) -> Connection:
        """The connection to a new worker."""
        mine, its = Pipe()
        with its, self.lock:
            self.connection.send_bytes(pickle.dumps((FORK, (), 1)))
            send_handle(self.connection, its.fileno(), self.process)
            heard(self.connection)
        return mine

    def ask(self, method: str, *given: Any) -> None:
        """Call a method of its admin."""
        with self.lock:
            ask(self.connection, (method, given, 1))

    def close(self) -> None:
        """Have it end, which it does after the last worker."""
        if not self.connection.closed:
            self.connection.close()
            os.waitpid(self.process, 0)


def take(threads: int) -> None:
    """Compute with so many threads: said anew only where it changes, for torch then forgets what it has prepared."""
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)


# in the server


def ask(connection: Connection, asked: tuple[str, Sequence[Any], int]) -> Any:
    """What another process answers."""
    connection.send_bytes(pickle.dumps(asked))
    return heard(connection)


def heard(connection: Connection) -> Any:
    """The answer that comes."""
    how, found = pickle.loads(connection.recv_bytes())
    if how is UserError:
        raise UserError(found)
    if how is Failed:
        raise Failed(found)
    return found


# in the other processes


def fork(run: Callable[[], None]) -> int:
    """Run something in a child, which never comes back; the child's number."""
    process = os.fork()
    if process:
        return process
    try:
        for number in (signal.SIGINT, signal.SIGTERM):  # for the server, which lets go of us once all is answered
            signal.signal(number, signal.SIG_IGN)
        run()
    except GONE:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _tend(server: Connection, model: Model, admin: Admin) -> None:
    """The nursery's life"""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that dead workers leave nothing behind
    try:
        while True:
            method, given, _ = pickle.loads(server.recv_bytes())
            if method == FORK:
                _answer(server, lambda: _fork_worker(server, model))
            else:
                _answer(server, lambda: getattr(admin, method)(*given))  # noqa: B023 - it is called at once
    finally:
        while True:
            os.wait()  # until nobody is left, which is an OSError


def _fork_worker(server: Connection, model: Model) -> None:
    with Connection(recv_handle(server)) as asker:

        def work() -> None:
            server.close()
            _work(asker, model)

        fork(work)


def _work(asker: Connection, model: Model) -> None:
    """A worker's life"""
    while True:
        method, given, threads = pickle.loads(asker.recv_bytes())
        take(threads)
        _answer(asker, lambda: getattr(model, method)(*given))  # noqa: B023 - it is called at once


def _answer(asker: Connection, function: Callable[[], Any]) -> None:
    said: tuple[type | None, Any]
    try:
        said = None, function()
    except UserError as error:
        said = UserError, str(error)
    except Exception:
        said = Failed, traceback.format_exc()
    asker.send_bytes(pickle.dumps(said))
