"""Messages of refused calls, for tables of calls and messages."""

from collections.abc import Callable
from typing import Any

from pipeline.errors import PipelineError


def refusal(call: Callable[..., object], *arguments: Any, **settings: Any) -> str:
    """Return the message of the error with which a call is refused, or that it was not."""
    try:
        found = call(*arguments, **settings)
    except PipelineError as error:
        return str(error)
    return f"not refused: {found!r}"
