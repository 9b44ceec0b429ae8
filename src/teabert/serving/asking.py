"""The routes that ask the model: many texts under many tasks, one task, attention, and what tasks there are."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from teabert.answers import Answer
from teabert.errors import UserError, unknown
from teabert.requests import Refusal, Request
from teabert.serving.batcher import Batcher, Model
from teabert.serving.metrics import Metrics
from teabert.serving.problems import Problem, as_json
from teabert.serving.schemas import (
    AttentionBody,
    PredictBody,
    TaskBody,
    few_keys,
    fitting,
    show_answer,
    show_task,
)
from teabert.serving.settings import ServeSettings
from teabert.settings import parse
from teabert.tasks import Task

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True)
class Service:
    """What the routes work with."""

    model: Model
    settings: ServeSettings
    metrics: Metrics
    batcher: Batcher

    async def ask(self, http: "HttpRequest", requests: Sequence[Request], whole: bool = False) -> list[Answer | Refusal]:
        """The model's answers, for whoever sent the request; `whole`: none of the texts may be cut."""
        if len(requests) > self.settings.client_queue:
            raise Problem(
                413,
                f"The request asks {len(requests):,} questions (texts times tasks); at most {self.settings.client_queue:,}"
                " are taken. Send fewer texts or tasks at once.",
            )
        return await self.batcher.ask(http.state.client, requests, http.is_disconnected, whole)

    def check_texts(self, texts: Sequence[str | tuple[str, str]]) -> None:
        """Refuse more or longer texts than are taken."""
        most, longest = self.settings.max_texts, self.settings.max_characters
        if len(texts) > most:
            raise Problem(413, f"The request has {len(texts):,} texts; at most {most:,} are taken. Send them in parts.")
        for number, text in enumerate(texts, 1):
            for part in [text] if isinstance(text, str) else text:
                if len(part) > longest:
                    raise Problem(422, f"Text {number} has {len(part):,} characters; at most {longest:,} are taken.")

    def task(self, name: str) -> Task:
        """A task by the name in a path."""
        tasks = self.model.tasks
        if name not in tasks:
            raise Problem(404, str(unknown("task", name, tasks)))
        return tasks[name]


async def read(http: "HttpRequest", model: type[Body]) -> Body:
    """The body of a request, checked."""
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, f"The body is of type '{kind}'. Send JSON, with the header 'Content-Type: application/json'.")
    try:
        given = json.loads(await http.body())
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"The body is no JSON that can be read: {error}.") from None
    if not isinstance(given, dict):
        raise Problem(422, f"The body is no JSON object. It takes the keys {', '.join(model.model_fields)}.")
    try:
        return parse(model, few_keys(given, model), "body")
    except UserError as error:
        raise Problem(422, str(error)) from None


async def predict(service: Service, http: "HttpRequest") -> "Response":
    """Every text under its tasks"""
    body = await read(http, PredictBody)
    service.check_texts([item.text for item in body.texts])
    names = [_names(service, item.text, item.tasks or body.tasks) for item in body.texts]
    asked = [Request(name, item.text) for item, mine in zip(body.texts, names, strict=True) for name in mine]
    answers = iter(await service.ask(http, asked))
    results = []
    for item, mine in zip(body.texts, names, strict=True):
        result: dict[str, Any] = {"id": item.id} if item.id else {}
        result["answers"] = {name: show_answer(next(answers), body.abstain) for name in mine}
        results.append(result if mine else result | {"error": _no_task(item.text)})
    return as_json({"results": results})


def _names(service: Service, text: str | tuple[str, str], given: list[str] | None) -> list[str]:
    most = service.settings.max_tasks
    if given and len(given) > most:
        raise Problem(413, f"{len(given)} tasks are asked of a text; at most {most} are taken. Send them in parts.")
    return given or fitting(service.model.tasks, text)


def _no_task(text: str | tuple[str, str]) -> str:
    return f"No task of this model takes {'one text' if isinstance(text, str) else 'a pair of texts'}."


async def predict_task(service: Service, http: "HttpRequest", name: str) -> "Response":
    """Every text under one task"""
    task = service.task(name)
    body = await read(http, TaskBody)
    service.check_texts(body.texts)
    answers = await service.ask(http, [Request(task.name, text) for text in body.texts])
    return as_json({"task": name, "answers": [show_answer(answer, body.abstain) for answer in answers]})


async def attention(service: Service, http: "HttpRequest") -> "Response":
    """How much each task reads each word, looked at between two batches"""
    body = await read(http, AttentionBody)
    service.check_texts([body.text])
    names = _names(service, body.text, body.tasks)
    found = {}
    for name in names:
        if await http.is_disconnected():
            raise Problem(499, "The client hung up.")
        found[name] = await _attention(service, body.text, name)
    return as_json({"attention": found})


async def _attention(service: Service, text: str | tuple[str, str], name: str) -> dict[str, Any]:
    try:
        found = await service.batcher.call(lambda model: model.attention(text, name))
    except UserError as error:
        return {"error": str(error)}
    return {"words": found.words, "weights": found.weights, "second": found.second}


def tasks(service: Service) -> "Response":
    """What tasks there are"""
    return as_json({"tasks": [show_task(task) for task in list(service.model.tasks.values())]})
