"""Errors of workers: decide which errors a restart may fix, describe them in one line, and end a run if one repeats."""

import re
from dataclasses import dataclass
from typing import Literal

from pipeline.errors import PipelineError, StorageUnavailable
from pipeline.files.retries import is_transient

LONGEST = 300
"""Maximum characters of an error's text in a message."""
COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")
"""Modules that define the errors of torch.compile."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A worker's error in a picklable form: the error itself may not be picklable."""

    worker: str
    """Name of the worker."""
    text: str
    kind: Literal["final", "echo", "transient", "unknown"]
    """Kind of the error:
    - final: an error of this package that no restart fixes;
    - echo: a consequence of the loss of another worker or node;
    - transient: an error of storage or network;
    - unknown: any other error.
    """
    known: PipelineError | None = None
    """The error itself if its kind is final, else None."""
    remedy: str = ""
    """Advice to the user, with a semicolon and a space at the end; may be empty."""


class Failures:
    """Errors of a run's workers.

    An unknown error is reported at once. It ends the run if it occurs again after a restart and no step was logged in
    between.
    """

    def __init__(self) -> None:
        self.error: PipelineError | None = None
        """The first error that ends the run; None while no such error occurred."""
        self.started = False
        """Whether the workers have started."""
        self.told = ""
        """Last message reported since the workers started; empty if none was."""
        self.newest = 0
        """Last logged step when the last error occurred; 0 before the first error."""
        self.before: dict[str, int] = {}
        """Error -> value of `newest` when the error occurred.

        Only errors of one earlier start of the workers: the newest start that was followed by an error.
        """
        self.now: dict[str, int] = {}
        """Error -> value of `newest` when the error occurred; only errors since the workers last started."""

    def begin(self) -> str | None:
        """Record that the workers start.

        Return a message if this is a restart and no reason for it was reported, else None.
        """
        again, told = self.started, self.told
        self.before, self.now, self.started, self.told = self.now or self.before, {}, True, ""
        return (
            "the workers start again, because a worker was lost or the number of nodes changed"
            if again and not told
            else None
        )

    def add(self, failure: Failure, step: int) -> str | None:
        """Record a worker's error; return a message for the user, or None if nothing is new.

        `step` is the last logged step. An error that ends the run is stored in `error` and gives no message.
        """
        self.newest = max(self.newest, step)
        if failure.known:
            self.error = self.error or failure.known
            return None
        error = f"{failure.kind}: {re.sub(r'0x[0-9a-f]+|[0-9]+', '#', failure.text)}"
        stuck = self.before.get(error, -1) == self.newest
        new = error not in self.now
        self.now[error] = self.newest
        if failure.kind == "unknown" and stuck:
            self.error = self.error or PipelineError(
                f"{failure.worker} failed twice with the same error and no step in between: {failure.text}; "
                f"{failure.remedy}the full error is in Ray's logs; "
                "the same command continues from the newest checkpoint"
            )
            return None
        if not new or (failure.kind == "echo" and (self.told or not stuck)):
            return None
        again = "the workers start again, as often as placement.restarts allows"
        self.told = f"{failure.worker} failed{' again' * stuck}: {failure.text}; {again}"
        return self.told


def failure_of(error: BaseException, worker: str) -> Failure:
    """Return the Failure that is sent to the tracker for an error; `worker` names the worker that raised the error."""
    known = pipeline_cause(error)
    if known and not isinstance(known, StorageUnavailable):
        return Failure(worker=worker, text=str(known), kind="final", known=known)
    inner = _unwrapped(error)
    remedy = "placement.compile off runs without the compiler; " if type(inner).__module__.startswith(COMPILER) else ""
    kind = "transient" if known else _kind_of(inner)
    return Failure(worker=worker, text=str(known or error_line(error)), kind=kind, remedy=remedy)


def _kind_of(error: BaseException) -> Literal["echo", "transient", "unknown"]:
    """Return the kind of an error that is not a PipelineError."""
    from torch.distributed import DistError  # here, because the tracker imports this module and does not need torch

    if isinstance(error, DistError) or "third_party/gloo" in str(error):
        return "echo"
    if type(error).__module__.split(".")[0] == "ray":
        return "echo"
    if isinstance(error, ConnectionError | TimeoutError) or (isinstance(error, Exception) and is_transient(error)):
        return "transient"
    return "unknown"


def _unwrapped(error: BaseException) -> BaseException:
    """Return the error without Ray's task wrappers."""
    while isinstance(inner := getattr(error, "cause", None), BaseException):
        error = inner
    return error


def error_line(error: BaseException) -> str:
    """Return an error's type and text in one line, without Ray's wrappers."""
    inner = _unwrapped(error)
    text = str(inner).strip()
    if text.startswith("Traceback (most recent call last)"):
        return text.splitlines()[-1].strip()
    text = " ".join(text.split())
    return f"{type(inner).__name__}{': ' * bool(text)}{text[:LONGEST]}{'…' * (len(text) > LONGEST)}"


def pipeline_cause(error: BaseException | None) -> PipelineError | None:
    """Return the PipelineError inside Ray's wrappers; None if there is none."""
    while error is not None:
        wrapped = getattr(error, "cause", None)  # Ray's wrapper may be an instance of our class, too
        if isinstance(error, PipelineError) and not isinstance(wrapped, PipelineError):
            return error
        error = wrapped or error.__cause__
    return None
