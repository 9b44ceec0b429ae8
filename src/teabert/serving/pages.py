"""The pages for people: plain files of the package, which ask no other host for anything."""

from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PATHS = {"index.html": "/", "docs.html": "/docs"}
"""Where files lie that are not asked for by name; the others are below /page/."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}


def page_routes() -> list["Route"]:
    """A route for every file of the page."""
    from starlette.routing import Route

    files = [file for file in (resources.files("teabert.serving") / "page").iterdir() if file.is_file()]
    made = []
    for file in files:
        kind = KINDS["." + file.name.rpartition(".")[2]]
        made.append(Route(PATHS.get(file.name, f"/page/{file.name}"), _sender(file.read_bytes(), kind)))
    return made


def _sender(content: bytes, kind: str) -> "Callable[[Request], Response]":
    from starlette.responses import Response

    def send(request: "Request") -> "Response":
        return Response(content, headers=HEADERS, media_type=kind)

    return send
