"""Text-embeddings-inference's /predict, so that its clients work: inputs in, [{"score", "label"}, ...] out.

It has one model for one task; ours is the one the settings name, the only one, or the one in the path /tei/TASK/predict.
"""

import math
from typing import TYPE_CHECKING, Any

from teabert.answers import Answer
from teabert.requests import Refusal, Request
from teabert.serving.asking import Service, read
from teabert.serving.problems import Problem, as_json
from teabert.serving.schemas import InferenceBody
from teabert.tasks import Task

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response


def default_task(service: Service) -> Task:
    """The task of /predict."""
    known = service.model.tasks
    name = service.settings.task or (next(iter(known)) if len(known) == 1 else None)
    if name is None or name not in known:
        raise Problem(
            404,
            f"This model has several tasks: {', '.join(known)}. Ask /tei/TASK/predict, or start the server with"
            " --task TASK.",
        )
    return known[name]


async def predict(service: Service, http: "HttpRequest", task: Task) -> "Response":
    """One list of labels, best first, or a list of such lists for several inputs"""
    body = await read(http, InferenceBody)
    several = isinstance(body.inputs, list)
    texts = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    service.check_texts(texts)
    answers = await service.ask(http, [Request(task.name, text) for text in texts], whole=not body.truncate)
    found = [ranked(task, answer, body.raw_scores) for answer in answers]
    return as_json(found if several else found[0])


def ranked(task: Task, answer: Answer | Refusal, raw: bool) -> list[dict[str, Any]]:
    """An answer's labels, best first; a score task has one, of its own name."""
    if isinstance(answer, Refusal):
        raise Problem(422, answer.message)
    if answer.score is not None:
        return [{"score": answer.score, "label": task.name}]
    scores = {label: math.log(max(chance, 1e-38)) if raw else chance for label, chance in answer.probabilities.items()}
    return [{"score": score, "label": label} for label, score in sorted(scores.items(), key=lambda each: -each[1])]
