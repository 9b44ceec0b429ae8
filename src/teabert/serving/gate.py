"""What every request passes first: the key, the size of its body and the time it takes to come; then it is counted.

The body is read here as a whole, so that nothing behind waits for a slow client or holds more than it may.
"""

import asyncio
import hmac
import time
from collections.abc import Iterable, MutableMapping
from typing import Any

from teabert.serving.metrics import Metrics
from teabert.serving.problems import Problem
from teabert.serving.settings import ServeSettings

OPEN = ("/", "/docs", "/openapi.json", "/healthz", "/readyz")
"""Paths that need no key, besides /page/: they say nothing about the model's texts."""
DROP_S = 2.0
"""Seconds in which the rest of an oversized body is thrown away: a client that is still sending may not hear an answer."""
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]

Scope = MutableMapping[str, Any]


class Gate:
    """ASGI middleware."""

    def __init__(self, app: Any, settings: ServeSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.keys, self.tokens = settings.secrets("api_key"), settings.secrets("admin_token")

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Let a request through, or answer it here"""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def answer(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            admin = self._admit(scope)
            limit = self.settings.max_task_file if admin else self.settings.max_body
            await self.app(scope, await self._arrived(scope, receive, limit), answer)
        except Problem as problem:
            await problem.response()(scope, receive, answer)
        finally:
            self.metrics.request(_route(scope), status, time.perf_counter() - begun)

    def _admit(self, scope: Scope) -> bool:
        """Note whose request it is; whether it comes from an administrator"""
        given = credential(scope["headers"])
        address = (scope.get("client") or ("unknown",))[0]
        scope["state"] = {**scope.get("state", {}), "client": address, "admin": matches(given, self.tokens)}
        if scope["state"]["admin"]:
            return True
        if self.keys and scope["path"] not in OPEN and not scope["path"].startswith("/page/"):
            if not matches(given, self.keys):
                raise Problem(401, UNAUTHORISED, {"WWW-Authenticate": "Bearer"})
            if len(self.keys) > 1:  # with one key for all, addresses tell them apart
                scope["state"]["client"] = f"key {[matches(given, [key]) for key in self.keys].index(True)}"
        return False

    async def _arrived(self, scope: Scope, receive: Any, limit: int) -> Any:
        """A `receive` that gives the whole body at once"""
        headers = dict(scope["headers"])
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            return receive
        try:
            async with asyncio.timeout(self.settings.body_s):
                body = await _read(receive, limit, _length(headers))
        except TimeoutError:
            raise Problem(
                408,
                f"The request had not arrived as a whole after {self.settings.body_s:g} seconds.",
                {"Connection": "close"},
            ) from None
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return waiting.pop() if waiting else await receive()

        return again


UNAUTHORISED = "This server wants a key. Send it as the header 'Authorization: Bearer KEY'."


async def _read(receive: Any, limit: int, promised: int) -> bytes:
    """The whole body"""
    chunks: list[bytes] = []
    size, more = 0, True
    while more and max(size, promised) <= limit:
        message = await receive()
        if message["type"] != "http.request":
            raise Problem(499, "The client hung up.")
        chunks.append(message.get("body", b""))
        size, more = size + len(chunks[-1]), message.get("more_body", False)
    if max(size, promised) <= limit:
        return b"".join(chunks)
    del chunks
    await _drop(receive, more)
    raise Problem(
        413,
        f"The body has {'more than ' if more and not promised else ''}{max(size, promised):,} bytes; at most {limit:,} are"
        " taken. Send fewer texts at once.",
        {"Connection": "close"},
    )


async def _drop(receive: Any, more: bool) -> None:
    """Throw away what still comes, for a moment"""
    try:
        async with asyncio.timeout(DROP_S):
            while more:
                message = await receive()
                more = message["type"] == "http.request" and message.get("more_body", False)
    except TimeoutError:
        return


def _length(headers: MutableMapping[bytes, bytes]) -> int:
    """The body's size as its header promises it; 0 where it does not"""
    given = headers.get(b"content-length", b"0")
    return int(given) if given.isdigit() and len(given) < 19 else 0


def _route(scope: Scope) -> str:
    """The route that answered, by its pattern: a name from outside would be a counter of its own"""
    return str(getattr(scope.get("route"), "path", "other"))


def credential(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bearer token of a request; empty where it has none."""
    for name, value in headers:
        scheme, _, token = value.partition(b" ")
        if name == b"authorization" and scheme.lower() == b"bearer":
            return token.strip()
    return b""


def matches(given: bytes, accepted: list[str]) -> bool:
    """Whether it is one of the accepted secrets, compared in constant time"""
    same = [hmac.compare_digest(given, secret.encode("utf-8")) for secret in accepted]  # all of them, always
    return any(same)
