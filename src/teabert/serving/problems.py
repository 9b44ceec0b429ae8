"""What goes wrong between client and model, as answers in words: a status and {"error": ..., "error_type": ...}."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from teabert.requests import readable

if TYPE_CHECKING:
    from starlette.responses import Response

TYPES = {
    400: "Validation",
    401: "Unauthorized",
    404: "NotFound",
    405: "NotFound",
    408: "Timeout",
    413: "Validation",
    415: "Validation",
    422: "Validation",
    429: "Overloaded",
    499: "Gone",
    500: "Backend",
    503: "Unhealthy",
    504: "Timeout",
}
"""The statuses that the server gives, and the error_type beside each."""


class Problem(Exception):
    """Why a request as a whole is not answered."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})

    def response(self) -> "Response":
        """The answer that says so."""
        content = {"error": self.message, "error_type": TYPES.get(self.status, "Validation")}
        return as_json(content, self.status, self.headers)


def as_json(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> "Response":
    """A JSON answer; lone surrogates, which no UTF-8 can carry, become question marks."""
    from starlette.responses import Response

    text = readable(json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    return Response(text.encode("utf-8"), status, headers, "application/json")
