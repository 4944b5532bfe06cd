"""Extra checkpoints: before a node is preempted, and in elastic runs, where a resize loses work."""

from collections.abc import Callable

POLL_SECONDS = 1.0
"""Approximate seconds between polls: all workers agree on Ray's answer, which takes some milliseconds."""
POLLS_BETWEEN = 10
"""Polls between checkpoints after a preemption notice: training continues until the node is gone."""
ELASTIC_SECONDS = 60.0
"""Approximate seconds between checkpoints of an elastic run: Ray restarts the group for a new node without notice."""


class ExtraCheckpoints:
    """Timing by step counts, never by the clock, so that every rank makes the same decisions."""

    def __init__(self, leaving: Callable[[], bool], *, elastic: bool) -> None:
        self.leaving, self.elastic = leaving, elastic
        self.seconds_since = 0.0
        """Time of the steps since the last checkpoint."""
        self.polls_since: int | None = None
        """Polls since the last checkpoint due to a preemption notice; None before the first."""

    def is_due(self, step: int, step_seconds: float, *, due: bool = False) -> bool:
        """Return whether to write a checkpoint after this step, `step_seconds` being the recent time per step.

        True when `due`, at a preemption notice and about every ten seconds after it, and every minute in an elastic
        run.
        """
        self.seconds_since += step_seconds
        wanted = (
            self._due_to_preemption(step, step_seconds)
            or due
            or (self.elastic and self.seconds_since >= ELASTIC_SECONDS)
        )
        if wanted:
            self.seconds_since = 0.0
        return wanted

    def _due_to_preemption(self, step: int, step_seconds: float) -> bool:
        """Return whether to write a checkpoint because of a preemption notice."""
        if step % _steps_within(POLL_SECONDS, step_seconds) != 0:
            return False
        if not self.leaving():
            self.polls_since = None
            return False
        self.polls_since = 0 if self.polls_since is None else (self.polls_since + 1) % POLLS_BETWEEN
        return self.polls_since == 0


def _steps_within(seconds: float, step_seconds: float) -> int:
    """Return the number of steps in that time, at least 1."""
    return max(1, int(seconds / step_seconds)) if step_seconds else 1
