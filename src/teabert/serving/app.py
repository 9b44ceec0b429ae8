"""The HTTP app over a Predictor: its routes, what they take and give, and how errors are said."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from teabert import __version__
from teabert.errors import missing_extra, unknown
from teabert.serving import adding, asking, inference
from teabert.serving.adding import Admin
from teabert.serving.asking import Service
from teabert.serving.batcher import Batcher, Model, Team
from teabert.serving.describing import answers, describe, takes
from teabert.serving.gate import Gate, Scope
from teabert.serving.metrics import Metrics
from teabert.serving.pages import page_routes
from teabert.serving.problems import Problem, as_json
from teabert.serving.schemas import (
    AttentionAnswer,
    AttentionBody,
    Health,
    InferenceBody,
    PredictAnswer,
    PredictBody,
    Prediction,
    TaskAnswer,
    TaskBody,
    TasksAnswer,
)
from teabert.serving.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.routing import APIRoute


def make_app(model: Model, settings: ServeSettings, admin: Admin | None = None, team: Team | None = None) -> "FastAPI":
    """The app that answers with a model; with an admin and a token for it, tasks may be added and removed.

    The team computes; by default it is the model alone.
    """
    try:
        from fastapi import FastAPI
    except ImportError:
        raise missing_extra("fastapi", "serve", "The server") from None
    if settings.task is not None and settings.task not in model.tasks:
        raise unknown("task", settings.task, model.tasks)
    metrics = Metrics()
    batcher = Batcher(model, settings, metrics, team)

    @asynccontextmanager
    async def life(app: "FastAPI") -> AsyncIterator[None]:
        batcher.start()
        yield
        batcher.close()

    service = Service(model, settings, metrics, batcher)
    app = FastAPI(title="Teabert", version=__version__, lifespan=life, docs_url=None, redoc_url=None)
    direct = [*_asking(service), *_inference(service)]
    app.add_middleware(Direct, routes=direct)
    app.add_middleware(Gate, settings=settings, metrics=metrics)
    _say_problems(app)
    if admin is not None and settings.admin_token is not None:
        _add_admin(app, service, admin)
    app.router.routes.extend(direct)
    _add_health(app, service)
    app.router.routes.extend(page_routes())
    describe(app, settings)
    return app


def _say_problems(app: "FastAPI") -> None:
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response

    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def not_here(request: Request, error: HTTPException) -> Response:
        known = {404: "There is nothing at this path. See /docs.", 405: "This path takes another method. See /docs."}
        return Problem(error.status_code, known.get(error.status_code, error.detail), error.headers).response()

    @app.exception_handler(Exception)
    async def mistake(request: Request, error: Exception) -> Response:
        close = {"Connection": "close"}  # as uvicorn does after an exception
        return Problem(500, "The server made a mistake; its log says which.", close).response()


def _add_health(app: "FastAPI", service: Service) -> None:
    from starlette.responses import Response

    @app.get("/healthz", tags=["health"], responses=answers(Health, [503]))
    async def alive() -> Response:
        """Whether the server lives; where not, start it anew"""
        if not service.batcher.alive:
            raise Problem(503, "The model's thread has ended; the server's log says why.")
        return as_json({"status": "alive"})

    @app.get("/readyz", tags=["health"], responses=answers(Health, [503]))
    async def ready() -> Response:
        """Whether the server takes questions"""
        if not service.batcher.ready:
            raise Problem(503, "The server is starting or shutting down.")
        return as_json({"status": "ready"})

    @app.get("/metrics", tags=["health"], responses=answers(None, [401]), response_class=Response)
    async def metrics() -> Response:
        """Counters, as Prometheus reads them"""
        return Response(service.metrics.text(), media_type="text/plain; version=1.0.0; charset=utf-8")


class Direct:
    """ASGI middleware: calls routes that read their bodies themselves, past FastAPI, which takes as long as they do."""

    def __init__(self, app: Any, routes: "list[APIRoute]") -> None:
        self.app, self.routes = app, routes

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer, or pass on what is for others"""
        from starlette.requests import Request

        for route in self.routes if scope["type"] == "http" else ():
            found = route.path_regex.match(scope["path"])
            if found and scope["method"] in (route.methods or ()):
                scope["route"] = route
                response = await route.endpoint(Request(scope, receive), **found.groupdict())
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _asking(service: Service) -> "list[Any]":
    from fastapi import APIRouter
    from starlette.requests import Request
    from starlette.responses import Response

    bare = APIRouter()

    @bare.post("/v1/predict", tags=["answers"], openapi_extra=takes(PredictBody), responses=answers(PredictAnswer))
    async def predict(request: Request) -> Response:
        """Many texts under many tasks; what cannot be answered has an error in its place"""
        return await asking.predict(service, request)

    @bare.post("/v1/tasks/{name}/predict", tags=["answers"], openapi_extra=takes(TaskBody), responses=answers(TaskAnswer))
    async def predict_task(request: Request, name: str) -> Response:
        """Many texts under one task"""
        return await asking.predict_task(service, request, name)

    @bare.post("/v1/attention", tags=["answers"], openapi_extra=takes(AttentionBody), responses=answers(AttentionAnswer))
    async def attention(request: Request) -> Response:
        """How much each task reads each word of a text"""
        return await asking.attention(service, request)

    @bare.get("/v1/tasks", tags=["tasks"], responses=answers(TasksAnswer, [401]))
    async def tasks(request: Request) -> Response:
        """The tasks of the model"""
        return asking.tasks(service)

    return bare.routes


def _inference(service: Service) -> "list[Any]":
    from fastapi import APIRouter
    from starlette.requests import Request
    from starlette.responses import Response

    bare = APIRouter()
    tags: list[Any] = ["text-embeddings-inference"]
    said: Any = list[Prediction] | list[list[Prediction]]

    @bare.post("/predict", tags=tags, openapi_extra=takes(InferenceBody), responses=answers(said))
    async def predict(request: Request) -> Response:
        """The usual task, in the shape of text-embeddings-inference"""
        return await inference.predict(service, request, inference.default_task(service))

    @bare.post("/tei/{name}/predict", tags=tags, openapi_extra=takes(InferenceBody), responses=answers(said))
    async def predict_named(request: Request, name: str) -> Response:
        """A named task, in the shape of text-embeddings-inference: its clients take /tei/TASK as the address"""
        return await inference.predict(service, request, service.task(name))

    return bare.routes


def _add_admin(app: "FastAPI", service: Service, admin: Admin) -> None:
    from starlette.requests import Request
    from starlette.responses import Response

    @app.post("/v1/tasks", tags=["tasks"], openapi_extra=takes(None), responses=answers(None))
    async def add(request: Request, file: str | None = None) -> Response:
        """Add the task of a task file: the body, or one of the server's task folder by name"""
        return await adding.add(service, admin, request, file)

    @app.delete("/v1/tasks/{name}", tags=["tasks"], responses=answers(None))
    async def remove(request: Request, name: str) -> Response:
        """Remove a task"""
        return await adding.remove(service, admin, request, name)
