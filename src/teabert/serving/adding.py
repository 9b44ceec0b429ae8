"""Tasks that come and go while the server runs: a task file in, between two batches; for an administrator's token only."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from teabert.errors import UserError, unknown
from teabert.serving.asking import Service
from teabert.serving.problems import Problem, as_json

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response

    from teabert.predictor import Predictor


class Admin(Protocol):
    """Who changes the tasks of the model that is served."""

    def add(self, path: Path) -> None:
        """Add the task (or tasks) of a task file; a UserError where it does not fit"""

    def remove(self, name: str) -> None:
        """Remove a task; a UserError where that cannot be"""


class TaskFiles:
    """The tasks of a Predictor, changed in memory: a run keeps what `teabert add-task` gives it."""

    def __init__(self, predictor: "Predictor") -> None:
        self.predictor = predictor

    def add(self, path: Path) -> None:
        """Add the task of a task file."""
        from teabert.taskfiles import TaskFile, attach

        attach(self.predictor, TaskFile.load(path), path.name)

    def remove(self, name: str) -> None:
        """Remove an added task."""
        from teabert.taskfiles import detach

        detach(self.predictor, name)


async def add(service: Service, admin: Admin, http: "HttpRequest", file: str | None) -> "Response":
    """Add a task file until the server ends: the body, or one of the task folder by its name"""
    _check_token(http)
    before = set(service.model.tasks)
    if file is not None:
        await _change(service, lambda: admin.add(_in_folder(service, file)))
    else:
        content = await http.body()
        if not content:
            raise Problem(
                422, "The body is empty. Send a task file as it is, or name one of the task folder with ?file=NAME."
            )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "the sent file"
            path.write_bytes(content)
            await _change(service, lambda: admin.add(path))
    return as_json({"added": [name for name in service.model.tasks if name not in before]})


async def remove(service: Service, admin: Admin, http: "HttpRequest", name: str) -> "Response":
    """Remove a task; what waits under it is refused"""
    _check_token(http)
    service.task(name)
    await _change(service, lambda: admin.remove(name))
    service.metrics.forget(name)
    return as_json({"removed": [name]})


async def _change(service: Service, change: "Callable[[], None]") -> None:
    try:
        await service.batcher.change(change)
    except UserError as error:
        raise Problem(422, str(error)) from None


def _check_token(http: "HttpRequest") -> None:
    if not http.state.admin:
        raise Problem(
            401,
            "Only an administrator may add and remove tasks. Send the token as the header 'Authorization: Bearer TOKEN'.",
            {"WWW-Authenticate": "Bearer"},
        )


def _in_folder(service: Service, name: str) -> Path:
    folder = service.settings.task_folder
    if folder is None:
        raise UserError(
            "The server has no task folder. Send the task file as the body, or start it with one (task_folder)."
        )
    known = sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    if name not in known:
        raise unknown("task file", name, known)
    return folder / name
