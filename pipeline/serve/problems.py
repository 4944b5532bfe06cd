"""Errors of requests, and their bodies in each API's own form."""

from dataclasses import dataclass
from typing import Any

OPENAI = "/v1/"
"""Beginning of the routes of the OpenAI API."""
DISCONNECTED = 499
"""Status of a request whose client has gone."""


@dataclass(eq=False)
class RequestError(Exception):
    """A request that is not answered."""

    status: int
    """HTTP status."""
    kind: str
    """Value of error_type in the API of Text Embeddings Inference."""
    message: str
    code: str | None = None
    """Value of error.code in the OpenAI API."""


def invalid(message: str, status: int = 422) -> RequestError:
    """Return the error of a request that the client can correct."""
    return RequestError(status, "Validation", message)


def overloaded() -> RequestError:
    """Return the error of a request that came when too many were waiting."""
    return RequestError(429, "Overloaded", "Model is overloaded: ask again later", "rate_limit_exceeded")


def unavailable(reason: str) -> RequestError:
    """Return the error of a request that no replica could answer."""
    return RequestError(503, "Unhealthy", reason, "unavailable")


def late(seconds: float) -> RequestError:
    """Return the error of a request that has no answer after limits.seconds."""
    return unavailable(f"no answer within {seconds:g} seconds (limits.seconds)")


def disconnected() -> RequestError:
    """Return the error of a request whose client has gone. Nobody reads it; /metrics counts its status, as nginx's."""
    return RequestError(DISCONNECTED, "Validation", "the client has gone")


def wrong_route(path: str, uses: list[str], kind: str) -> RequestError:
    """Return the error of a route that the model is not for."""
    return RequestError(
        424,
        "Backend",
        f"{path} needs another kind of model: this one ({kind}) answers {', '.join(uses)}",
        "wrong_route",
    )


def body_of(error: RequestError, path: str) -> dict[str, Any]:
    """Return the body of an error, in the form of the API that the path belongs to."""
    if not path.startswith(OPENAI):
        return {"error": error.message, "error_type": error.kind}
    kind = "invalid_request_error" if error.status < 500 and error.status != 429 else "server_error"
    return {"error": {"message": error.message, "type": kind, "param": None, "code": error.code}}
