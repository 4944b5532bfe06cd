"""Errors shown in one line, without a traceback. The line names the setting or file, the wrong values and a remedy."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LONGEST_SHOWN = 60
"""Maximum characters of a value in a message."""
MOST_LISTED = 20
"""Maximum number of names in a message, because files may have thousands of labels, ids or columns."""
COMMAND = "bertstream"
JOBS = (
    *("prepare", "pretrain", "audit", "finetune", "predict", "score", "compare", "embed", "search"),
    *("mine", "adapt", "ablate", "speedrun", "export", "serve", "show", "bench"),
)
SCRIPT = re.compile(rf"(?<![\w./-])(python )?jobs/({'|'.join(JOBS)})\.py\b")


class PipelineError(Exception):
    """Base class of errors that a job reports in one line; the job then returns `exit_code`."""

    exit_code = 2

    def __reduce__(self) -> tuple[Any, ...]:
        # Ray pickles a worker's error. Pickle would give the finished message to the __init__ that writes it.
        return _with_message, (type(self), self.args), vars(self)


def _with_message(kind: type[PipelineError], arguments: tuple[Any, ...]) -> PipelineError:
    return kind.__new__(kind, *arguments)


class ConfigError(PipelineError):
    """A setting, or a combination of settings, that cannot work."""


class DataError(PipelineError):
    """Input text, a vocabulary or a prepared corpus that cannot be used."""


class BadRow(DataError):
    """A row of labelled examples that cannot be used. Skipped rows are counted by `reason`."""

    def __init__(self, message: str, reason: str = "bad-row") -> None:
        super().__init__(message)
        self.reason = reason


class StorageUnavailable(DataError):
    """Data that cannot be read now because its storage fails. A later try may work."""


class CheckpointError(PipelineError):
    """A checkpoint or export that is missing, damaged, or from another run."""


class TakenOver(PipelineError):
    """Another driver has taken a run over, so this one may publish nothing more."""


class ClusterLost(PipelineError):
    """Ray, or a Ray process that a command needs, is gone.

    The command itself is correct. If the user starts the command again, it continues.
    """

    exit_code = 1


def class_of(error: PipelineError) -> type[PipelineError]:
    """Return the error's class, or its nearest base, in this module; it can be called with a message alone."""
    kinds = (kind for kind in type(error).__mro__ if issubclass(kind, PipelineError))
    return next(kind for kind in kinds if kind.__module__ == __name__)


def shown(value: object) -> str:
    """Return a value for a message: quoted, on one line, truncated."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")


def listed(names: Iterable[object], most: int = MOST_LISTED) -> str:
    """Return at most `most` names for a message, on one line; "none" if there are no names.

    A long name is shortened in its middle, because long paths often differ only at their ends.
    """
    whole = [" ".join(str(name).splitlines()) for name in names]
    half = LONGEST_SHOWN // 2
    cut = [name if len(name) <= LONGEST_SHOWN else f"{name[:half]}…{name[-half:]}" for name in whole[:most]]
    more = f" and {len(whole) - most:,} more" if len(whole) > most else ""
    return (", ".join(cut) or "none") + more


def as_called(text: str) -> str:
    """Replace `python jobs/JOB.py` in a text by `bertstream JOB` if the user started `bertstream`."""
    return SCRIPT.sub(rf"{COMMAND} \2", text) if Path(sys.argv[0]).stem == COMMAND else text
