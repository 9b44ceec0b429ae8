"""A server to test with: a model of three tiny tasks that counts characters, in a thread or a process of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import numpy as np
from pydantic import SecretStr

from conftest import tiny_tasks
from teabert.answers import Answer
from teabert.attention import Attention
from teabert.errors import UserError
from teabert.requests import Prepared, Refusal, check, find_task, readable
from teabert.serving.app import make_app
from teabert.serving.running import listen, make_server, serve_model
from teabert.serving.settings import ServeSettings
from teabert.serving.workers import Workers

POISON = "poison"
"""The model fails on this text."""
DEADLY = "deadly"
"""Its process dies of this one."""
TOKEN = "the token of the admin"


class Counting:
    """A Predictor whose answers follow from the number of characters; remembers its batches."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.tasks = tiny_tasks()
        self.seconds = seconds
        self.batches: list[list[tuple[str, str]]] = []
        self.free = threading.Event()
        self.free.set()
        """clear it, and the model is stuck in its next batch"""
        self.busy = threading.Event()

    def prepare_all(self, requests, progress=None):
        return [self._prepare(request) for request in requests]

    def _prepare(self, request):
        try:
            texts = check(find_task(self.tasks, request.task), request.text)
        except UserError as error:
            return Refusal(readable(request.task), request.id, str(error))
        for bad in {POISON, DEADLY} & set(texts):
            return Prepared(request.task, bad, (np.zeros(1, np.int32),), 0)
        return Prepared(request.task, request.id, tuple(np.zeros(len(text), np.int32) for text in texts), 0)

    def answer_prepared(self, prepared):
        self.busy.set()
        assert self.free.wait(20)
        time.sleep(self.seconds)
        self.batches.append([(each.task, each.tokens) for each in prepared])
        if any(each.id == POISON for each in prepared):
            raise RuntimeError("this text cannot be answered")
        if any(each.id == DEADLY for each in prepared):
            os.kill(os.getpid(), signal.SIGKILL)
        return [self.expected(each.task, each.tokens) for each in prepared]

    def expected(self, task, characters):
        """The answer to a text of so many characters"""
        if self.tasks[task].kind == "score":
            return Answer(task, None, float(characters), None, {})
        labels = self.tasks[task].labels
        chances = {label: 0.1 / (len(labels) - 1) for label in labels} | {labels[characters % len(labels)]: 0.9}
        return Answer(task, labels[characters % len(labels)], None, 0.9, chances)

    def attention(self, text, task):
        check(find_task(self.tasks, task), text)
        words = [text] if isinstance(text, str) else list(text)
        found = [word for each in words for word in each.split()]
        second = None if isinstance(text, str) else len(text[0].split())
        return Attention(found, [1 / len(found)] * len(found), second)


class Changing:
    """Adds tasks that are copies of `mood` with the file's content as their name."""

    def __init__(self, model: Counting) -> None:
        self.model = model

    def add(self, path):
        name = path.read_bytes().decode("ascii", "replace")
        if not name.isalnum():
            raise UserError(f"{name!r} is no task file.")
        self.model.tasks = self.model.tasks | {name: replace_name(self.model.tasks["mood"], name)}

    def remove(self, name):
        if len(self.model.tasks) == 1:
            raise UserError("The last task stays.")
        self.model.tasks = {other: task for other, task in self.model.tasks.items() if other != name}


def replace_name(task, name):
    return task.model_copy(update={"name": name})


def until(condition):
    """Wait for something that must come about"""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came about")


@contextmanager
def serving(model, settings=None, admin=None, team=None):
    """The server in a thread; gives a client for it"""
    settings = settings or ServeSettings()
    listening = listen("127.0.0.1", 0)
    server = make_server(make_app(model, settings, admin, team), settings)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=20) as client:
            until(lambda: server.started)
            yield client
    finally:
        if isinstance(model, Counting):
            model.free.set()
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "the server did not stop"


def raw(client: httpx.Client, *sent: bytes, wait: float = 5.0) -> bytes:
    """What the server says to bytes that no well-behaved client would send, with a pause between pieces"""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=wait) as connection:
        for piece in sent:
            connection.sendall(piece)
            time.sleep(0.2 if len(sent) > 1 else 0)
        said = b""
        try:
            while piece := connection.recv(65536):
                said += piece
        except TimeoutError:
            pass
        return said


class Telling(Counting):
    """Prints every text that it accepts"""

    def prepare_all(self, requests, progress=None):
        print(*(request.text for request in requests), sep="\n", flush=True)
        return super().prepare_all(requests, progress)


@contextmanager
def process(seconds, workers=0, **changes):
    """A server whose batches take so many seconds, in a process of its own; gives the process and its address"""
    command = [sys.executable, __file__, str(seconds), str(workers), json.dumps({"tokens": 64} | changes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running, re.search(r"http://\S+", running.stdout.readline())[0]
        finally:
            running.kill()


def main() -> None:
    """What the process runs, until a signal ends it"""
    listening = listen("127.0.0.1", 0)
    settings = ServeSettings(admin_token=SecretStr(TOKEN), **json.loads(sys.argv[3]))
    model = Telling(float(sys.argv[1]))
    admin = Changing(model)
    team = Workers(model, admin, int(sys.argv[2]), 2, listening.close) if sys.argv[2] != "0" else None
    serve_model(model, settings, listening, lambda text: print(text, flush=True), team or admin, team)


if __name__ == "__main__":
    main()
