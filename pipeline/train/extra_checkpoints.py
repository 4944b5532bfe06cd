"""Extra checkpoints: before a node is preempted, between checkpoints that are far apart in time, and in elastic runs,
which restart from a checkpoint at every resize.
"""

from collections.abc import Callable

POLL_SECONDS = 1.0
"""Approximate seconds between polls for a preemption notice.

A poll takes milliseconds, because all workers must agree on the answer.
"""
POLLS_BETWEEN = 10
"""Number of polls from one checkpoint to the next after a preemption notice.

One checkpoint is not enough, because training continues until the node is gone.
"""
ELASTIC_SECONDS = 60.0
"""Approximate seconds between checkpoints of an elastic run.

When a node joins, Ray restarts the workers without notice.
"""
SECONDS = 600.0
"""Approximate most seconds between checkpoints of any run, so that a lost machine takes little work with it."""


class ExtraCheckpoints:
    """Decide after which steps an extra checkpoint is written.

    Decisions depend on step counts and on the shared mean step time, never on a rank's clock, so all ranks decide the
    same. `leaving` returns whether a node of the run will be preempted.
    """

    def __init__(self, leaving: Callable[[], bool], *, elastic: bool) -> None:
        self.leaving, self.most_seconds = leaving, ELASTIC_SECONDS if elastic else SECONDS
        self.seconds_since = 0.0
        """Estimated seconds of the steps since the last checkpoint."""
        self.untimed = 0
        """Steps since the last checkpoint that were taken before the time of a step was known."""
        self.polls_since: int | None = None
        """Polls since the last checkpoint that a preemption notice caused; None while there is no notice."""

    def is_due(self, step: int, step_seconds: float, *, due: bool = False) -> bool:
        """Return whether to write a checkpoint after this step.

        True in three cases:
        - a regular checkpoint is `due`;
        - there is a preemption notice: True at the first poll that finds the notice, then about every ten seconds;
        - the last checkpoint is about ten minutes old, or one minute if the run is elastic.

        `step_seconds` is the recent mean time per step, 0 if unknown.
        """
        self.untimed += 1
        if step_seconds:
            self.seconds_since += self.untimed * step_seconds
            self.untimed = 0
        wanted = self._due_to_preemption(step, step_seconds) or due or self.seconds_since >= self.most_seconds
        if wanted:
            self.seconds_since, self.untimed = 0.0, 0
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
    """Return how many steps of `step_seconds` fit in `seconds`, at least 1; also 1 if `step_seconds` is 0."""
    return max(1, int(seconds / step_seconds)) if step_seconds else 1
