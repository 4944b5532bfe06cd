"""Checkpoints beside those at the asked interval: when a node will be taken away, and in elastic runs, where a resize takes what was done since the last."""

from collections.abc import Callable

POLL_SECONDS = 1.0
"""Between questions, about: Ray's answer is agreed on by all workers, which takes some milliseconds."""
POLLS_BETWEEN = 10
"""Questions between the checkpoints that follow a notice: training goes on until the node is gone."""
ELASTIC_SECONDS = 60.0
"""Between checkpoints of an elastic run, about: Ray gives no notice before it starts the group anew for a node that came."""


class ExtraCheckpoints:
    """Counts steps, never the time of day: every rank comes to the same decisions."""

    def __init__(self, leaving: Callable[[], bool], *, elastic: bool) -> None:
        self.leaving, self.elastic = leaving, elastic
        self.seconds_since = 0.0
        """That steps took since the last checkpoint."""
        self.polls_since: int | None = None
        """Questions since the last checkpoint because of a notice; None before there is one."""

    def is_due(self, step: int, step_seconds: float, *, due: bool = False) -> bool:
        """Whether to write one after this step, the steps of late having taken `step_seconds`: where it is due; at a notice, and every ten seconds or so from there on; a minute after the last one in an elastic run."""
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
        """Whether to write one because of a notice."""
        if step % steps_within(POLL_SECONDS, step_seconds) != 0:
            return False
        if not self.leaving():
            self.polls_since = None
            return False
        self.polls_since = 0 if self.polls_since is None else (self.polls_since + 1) % POLLS_BETWEEN
        return self.polls_since == 0


def steps_within(seconds: float, step_seconds: float) -> int:
    """Steps that take so long, 1 at least."""
    return max(1, int(seconds / step_seconds)) if step_seconds else 1
