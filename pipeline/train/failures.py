"""Errors of workers: which ones a restart may fix, their one-line text, and when a repeated error ends a run."""

import re
from dataclasses import dataclass
from typing import Literal

from pipeline.errors import PipelineError, StorageUnavailable
from pipeline.retries import is_transient

LONGEST = 300
"""Characters of an error's text to show."""
COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A worker's error in a picklable form: the error itself may not be picklable."""

    worker: str
    """Name of the worker."""
    text: str
    kind: Literal["final", "echo", "transient", "unknown"]
    """final: our own error, which no restart fixes; echo: another worker or node was lost; transient: storage or
    network.
    """
    known: PipelineError | None = None
    """Our own error, for kind final."""
    remedy: str = ""
    """Advice to the user."""


class Failures:
    """Errors of a run's workers.

    An unknown error is reported at once, and ends the run when it repeats without progress.
    """

    def __init__(self) -> None:
        self.error: PipelineError | None = None
        """Error that ends the run; the first one wins."""
        self.phase: int | None = None
        self.told = ""
        """Message reported about the current start of the workers, if any."""
        self.newest = 0
        """Newest step that any start reached."""
        self.before: dict[str, int] = {}
        """Error -> the newest step when it occurred, for the last earlier start that had an error."""
        self.now: dict[str, int] = {}
        """The same for the current start."""

    def begin(self, phase: int) -> str | None:
        """Record that the workers start in a phase; return a message if they restart and no reason was reported."""
        again, told = phase == self.phase, self.told
        self.before, self.now, self.phase, self.told = self.now or self.before, {}, phase, ""
        return "the workers start again: one was lost, or nodes came or went" if again and not told else None

    def add(self, failure: Failure, step: int) -> str | None:
        """Record a worker's error (`step`: the last logged step); return a message for the user if it is new."""
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
                f"{failure.remedy}the full error is in Ray's logs, "
                "the same command continues from the newest checkpoint"
            )
            return None
        if not new or (failure.kind == "echo" and (self.told or not stuck)):
            return None
        again = "the workers start again, as often as placement.restarts allows"
        self.told = f"{failure.worker} failed{' again' * stuck}: {failure.text}; {again}"
        return self.told


def failure_of(error: BaseException, worker: str) -> Failure:
    """Return a worker's error in the form sent to the tracker."""
    known = pipeline_cause(error)
    if known and not isinstance(known, StorageUnavailable):
        return Failure(worker=worker, text=str(known), kind="final", known=known)
    inner = _unwrapped(error)
    remedy = "placement.compile off runs without the compiler, " if type(inner).__module__.startswith(COMPILER) else ""
    kind = "transient" if known else _kind_of(inner)
    return Failure(worker=worker, text=str(known or error_line(error)), kind=kind, remedy=remedy)


def _kind_of(error: BaseException) -> Literal["echo", "transient", "unknown"]:
    """Classify an error that is not our own."""
    from torch.distributed import DistError  # imported here: the tracker imports this module without needing torch

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
    """Return our own error inside Ray's wrappers; None without one."""
    while error is not None:
        wrapped = getattr(error, "cause", None)  # a Ray error that wraps ours may be an instance of our class too
        if isinstance(error, PipelineError) and not isinstance(wrapped, PipelineError):
            return error
        error = wrapped or error.__cause__
    return None
