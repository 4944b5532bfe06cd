"""Errors shown in one line, without a traceback: the setting or file, both values, and what would work."""

from collections.abc import Iterable

LONGEST_SHOWN = 60
"""Maximum characters of a value in a message."""
MOST_LISTED = 20
"""Maximum number of names in a message: files have thousands of labels, ids or columns."""


class PipelineError(Exception):
    """Base of the errors that a job reports in one line, returning its exit code."""

    exit_code = 2


class ConfigError(PipelineError):
    """A setting, or a combination of settings, that cannot work."""


class DataError(PipelineError):
    """Input text, a vocabulary or a prepared corpus that cannot be used."""


class BadRow(DataError):
    """A row of labelled examples that cannot be used; `reason` names it in the counts of skipped rows."""

    def __init__(self, message: str, reason: str = "bad-row") -> None:
        super().__init__(message)
        self.reason = reason


class StorageUnavailable(DataError):
    """Data whose storage does not let it be read now: nothing is known to be wrong with it, and a later try may read
    it.
    """


class CheckpointError(PipelineError):
    """A checkpoint or export that is missing, damaged or of another run."""


class ClusterLost(PipelineError):
    """Ray, or one of its processes that a command needs, is gone.

    Nothing is wrong with the command; started again, it continues.
    """

    exit_code = 1


def shown(value: object) -> str:
    """Return a value for a message: quoted, on one line, truncated."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")


def listed(names: Iterable[object], most: int = MOST_LISTED) -> str:
    """Return names for a message: one line, at most `most` of them, long ones cut in the middle since paths differ at
    their ends.
    """
    whole = [" ".join(str(name).splitlines()) for name in names]
    half = LONGEST_SHOWN // 2
    cut = [name if len(name) <= LONGEST_SHOWN else f"{name[:half]}…{name[-half:]}" for name in whole[:most]]
    more = f" and {len(whole) - most:,} more" if len(whole) > most else ""
    return (", ".join(cut) or "none") + more
