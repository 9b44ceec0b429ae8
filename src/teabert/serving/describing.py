"""What /openapi.json says that FastAPI cannot know: bodies that are read by hand, and the key."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from teabert.serving.schemas import AttentionBody, InferenceBody, Item, PredictBody, ProblemShown, TaskBody
from teabert.serving.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

BODIES = (PredictBody, TaskBody, AttentionBody, InferenceBody, Item)
PLACE = "#/components/schemas/{model}"
WHAT = {
    400: "The body is no JSON",
    401: "The key is missing or wrong",
    404: "There is no such task",
    408: "The request came too slowly",
    413: "The request is too large",
    415: "The body is of another type",
    422: "The request does not fit",
    429: "Too many questions are waiting; Retry-After says when to come again",
    503: "The server is starting or shutting down",
    504: "No answer within the deadline",
}


def answers(shown: Any, statuses: Iterable[int] = WHAT) -> dict[int | str, dict[str, Any]]:
    """What a route may answer: a model of the answer, or none, and problems"""
    found: dict[int | str, dict[str, Any]] = {} if shown is None else {200: {"model": shown, "description": "The answer"}}
    return found | {status: {"model": ProblemShown, "description": WHAT[status]} for status in statuses}


def takes(body: type[BaseModel] | None) -> dict[str, Any]:
    """The body of a route; none is a file as it is"""
    kind = "application/octet-stream" if body is None else "application/json"
    schema = {"type": "string", "format": "binary"} if body is None else {"$ref": PLACE.format(model=body.__name__)}
    return {"requestBody": {"required": body is not None, "content": {kind: {"schema": schema}}}}


def describe(app: "FastAPI", settings: ServeSettings) -> None:
    """Complete the app's description."""
    whole = app.openapi()
    schemas = whole["components"]["schemas"]
    for body in BODIES:
        made = body.model_json_schema(ref_template=PLACE)
        made.pop("$defs", None)
        schemas[body.__name__] = made
    if settings.api_key is not None:
        whole["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        whole["security"] = [{"key": []}]
