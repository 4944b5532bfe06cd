"""Retry calls to object stores on transient errors."""

import functools
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pipeline.errors import DataError

TRANSIENT = (
    *(
        f"AWS Error {name}"
        for name in (
            "INTERNAL_FAILURE",
            "SERVICE_UNAVAILABLE",
            "NETWORK_CONNECTION",
            "SLOW_DOWN",
            "THROTTLING",
            "REQUEST_TIMEOUT",
            "UNKNOWN",
        )
    ),
    *(
        f"google::cloud::Status({name}"
        for name in ("UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
    ),
)
"""Substrings of transient object-store errors. The stores' libraries do not retry once a response has started."""
WAITS = (0.2, 1.0, 3.0, 9.0)
"""Seconds before each retry."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def with_retries(call: Callable[[], Result]) -> Result:
    """Return the result of `call`, and retry it on transient storage errors. Raises the error of the last try."""
    for wait in WAITS:
        try:
            return call()
        except (OSError, DataError) as error:
            if not is_transient(error):
                raise
            time.sleep(wait)
    return call()


def is_transient(error: Exception) -> bool:
    """Return whether an error is a transient storage error, or a DataError that quotes one."""
    return isinstance(error, OSError | DataError) and any(word in str(error) for word in TRANSIENT)


def retrying(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function to retry transient storage errors."""

    @functools.wraps(function)
    def calling(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        return with_retries(lambda: function(*arguments, **named))

    return calling
