"""Notices that a node will be taken away: when to ask for one, and when to write a checkpoint because of one."""

from collections.abc import Callable

LOOK_SECONDS = 1.0
"""Between questions, about: Ray's answer is agreed on by all workers, which takes some milliseconds."""
LOOKS_BETWEEN = 10
"""Questions between the checkpoints that follow a notice: training goes on until the node is gone."""


class Notice:
    """Counts steps, never the time of day: every rank comes to the same decisions."""

    def __init__(self, leaving: Callable[[], bool]) -> None:
        self.leaving = leaving
        self.looks_since: int | None = None
        """Questions since the last checkpoint because of a notice; None before there is one."""

    def asks_for_checkpoint(self, step: int, step_seconds: float) -> bool:
        """Whether to write one after this step, the steps of late having taken `step_seconds`: at a notice, and every ten seconds or so from there on."""
        if step % max(1, int(LOOK_SECONDS / step_seconds) if step_seconds else 1) != 0:
            return False
        if not self.leaving():
            self.looks_since = None
            return False
        self.looks_since = 0 if self.looks_since is None else (self.looks_since + 1) % LOOKS_BETWEEN
        return self.looks_since == 0
