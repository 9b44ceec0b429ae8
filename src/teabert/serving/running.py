"""`teabert serve`: a run folder, listening until it is told to stop; what was accepted by then is still answered."""

import gc
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from teabert.errors import UserError, missing_extra
from teabert.requests import Prepared
from teabert.serving.adding import Admin, TaskFiles
from teabert.serving.settings import ServeSettings

if TYPE_CHECKING:
    import uvicorn

    from teabert.predictor import Predictor
    from teabert.serving.batcher import Model, Team

SILENT_S = 10.0
"""Seconds that a connection may take to send the head of a request."""
KEPT = {"LRU_CACHE_CAPACITY": "64", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}
"""For how many shapes of batch oneDNN may keep what it has made. Nearly every batch has another, and 1024 of them, as it is
by default, take half a gigabyte."""
LOCAL = ("127.0.0.1", "::1", "localhost")


def serve(run: Path, settings: ServeSettings, say: Callable[[str], None]) -> None:
    """Serve a run's best model."""
    check_installed()
    listening = listen(settings.host, settings.port)
    os.environ.update(KEPT | os.environ)
    import torch

    from teabert.predictor import load
    from teabert.serving.batcher import Alone
    from teabert.serving.workers import Workers, how_many

    # Whoever computes has helping threads of its own. Were this thread to have some too, they were more than processors,
    # and those of the model's thread would sleep after every product instead of waiting for the next: a third slower.
    # Nor could it fork any more.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with listening:
        predictor = load(run)
        admin: Admin = TaskFiles(predictor)
        team: Team = Alone(predictor, threads)
        if count := how_many(settings.workers, predictor.model.device.type, threads):
            _lay_out(predictor)
            admin = team = Workers(predictor, admin, count, threads, listening.close)
        serve_model(predictor, settings, listening, say, admin, team)


def _lay_out(predictor: "Predictor") -> None:
    """Answer something: what the first answer makes of the weights is then shared by all forks"""
    tasks = predictor.tasks.values()
    texts = [Prepared(task.name, "", (np.zeros(8, np.int32),) * task.sequences, 4) for task in tasks]
    predictor.answer_prepared(texts)


def serve_model(
    model: "Model",
    settings: ServeSettings,
    listening: socket.socket,
    say: Callable[[str], None],
    admin: Admin | None = None,
    team: "Team | None" = None,
) -> None:
    """Answer whoever comes to the socket, until a signal ends it; the team computes."""
    from teabert.serving.app import make_app

    server = make_server(make_app(model, settings, admin, team), settings)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    say(f"Serving {', '.join(model.tasks)} at http://{shown}:{port} (routes: /docs). Stop with Ctrl+C.")
    if settings.host not in LOCAL and settings.api_key is None:
        say("note: whoever reaches this address may ask. Set TEABERT_API_KEY to want a key.")
    gc.collect()
    gc.freeze()  # what is there now stays: looking through all of torch for garbage takes a tenth of a second
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn raises it again once everything is answered
        say("Stopped.")


def check_installed() -> None:
    """Refuse before a model is loaded what would fail after it."""
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        try:
            __import__(package)
        except ImportError:
            raise missing_extra(package.replace("_", "-"), "serve", "The server") from None


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"Cannot listen at {host}, port {port}: {reason}. Choose others with --host and --port.") from None


def unasked(connection: Any) -> bool:
    """Whether a connection of uvicorn's has sent no whole request that waits for its answer, nor rests between two."""
    cycle = getattr(connection, "cycle", None)
    resting = getattr(connection, "timeout_keep_alive_task", None) is not None
    return not resting and (cycle is None or cycle.response_complete)


def make_server(app: Any, settings: ServeSettings) -> "uvicorn.Server":
    """The uvicorn server of an app: quiet, bounded, and rid of connections that never ask anything."""
    import uvicorn

    class Server(uvicorn.Server):
        """Hangs up on who begins to ask and never ends, for whom uvicorn waits for ever."""

        silent: dict[Any, float] = {}

        async def on_tick(self, counter: int) -> bool:
            """Ten times a second"""
            if counter % 10 == 0:
                self.hang_up(time.monotonic())
            return await super().on_tick(counter)

        def hang_up(self, now: float) -> None:
            """Close what has been silent for too long"""
            waiting = [each for each in self.server_state.connections if unasked(each)]
            self.silent = {each: self.silent.get(each, now) for each in waiting}
            for each, since in self.silent.items():
                if now - since > SILENT_S and each.transport is not None:
                    each.transport.close()

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        ws="none",
        lifespan="on",
        limit_concurrency=settings.connections,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.deadline_s + settings.body_s) + 5,
        server_header=False,
        date_header=False,
    )
    return Server(config)
