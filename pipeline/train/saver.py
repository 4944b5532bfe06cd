"""Write checkpoints in a thread of rank 0 while training continues."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import torch

from pipeline.config.jobs import Pretrain
from pipeline.errors import CheckpointError
from pipeline.files import storage
from pipeline.objectives.table import Pretraining
from pipeline.optim.schedule import decay_start
from pipeline.saved.checkpoints import require_current
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import checkpoint
from pipeline.train.checkpoint import Snapshot, State
from pipeline.train.positions import write_position

FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
"""Seconds before the first retry of a failed write, and maximum seconds between retries.

Each wait is twice the previous one, up to the maximum.
"""


class Saver:
    """Publish one checkpoint at a time, in order; a failed write is retried for `checkpoint.patience_seconds`.

    At the end of the context, the saver waits for the current write. If training failed, a failed write is retried at
    most once more.
    """

    def __init__(
        self,
        folder: str,
        config: Pretrain,
        vocabulary: Vocabulary,
        flush: Callable[[], None],
        say: Callable[[str], None],
        attempt: int = 0,
    ) -> None:
        self.folder, self.config, self.vocabulary, self.flush, self.say = folder, config, vocabulary, flush, say
        self.attempt = attempt
        """The driver's attempt, for a run in an object store; else 0."""
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.writing: Future[None] | None = None
        self.given_up = threading.Event()
        """Set when training has failed. After that, a failed write is retried at most once more."""
        self.failing = threading.Event()
        """Set while a failed write is retried."""
        self.sound: set[int] = set()
        """Steps whose checkpoints are known to be intact, so that each is verified only once."""

    def __enter__(self) -> "Saver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.given_up.set()
        self.thread.shutdown(wait=True)
        if error is None:
            self.finish()

    def save(self, state: State, module: Pretraining, optimizer: torch.optim.Optimizer, *, wait: bool) -> None:
        """Copy weights and optimiser state to the host and publish them in the background.

        If another checkpoint is being written, wait for it first; without `wait`, skip this checkpoint instead. Raises
        errors as `check` does.
        """
        if not wait and self.writing is not None and not self.writing.done():
            return
        self.finish()
        self.writing = self.thread.submit(self._write, state, checkpoint.snapshot(module, optimizer))

    def check(self) -> None:
        """Raise CheckpointError if the last write has failed for good, and TakenOver if another driver has the run.

        Do not wait for a write in progress.
        """
        if self.writing is not None and self.writing.done():
            self.finish()

    def finish(self) -> None:
        """Wait for the checkpoint being written, if any. Raises errors as `check` does."""
        if self.writing is not None:
            writing, self.writing = self.writing, None
            writing.result()

    def _write(self, state: State, taken: Snapshot) -> None:
        self.flush()
        self._write_with_retries(state, lambda: self._publish(state, taken), "be written")
        self._write_with_retries(state, lambda: self._delete_older(state), "replace older ones")

    def _write_with_retries(self, state: State, work: Callable[[], None], action: str) -> None:
        """Call `work` until it succeeds. `action` completes "the checkpoint could not …" in messages.

        Raises CheckpointError after `checkpoint.patience_seconds` of failures.
        """
        started, wait, patience = time.monotonic(), FIRST_WAIT, self.config.checkpoint.patience_seconds
        while True:
            try:
                work()
                self.failing.clear()
                return
            except OSError as error:
                left, reason = patience - (time.monotonic() - started), storage.first_line(error)
                if left <= 0 or self.given_up.is_set():
                    raise CheckpointError(
                        f"the checkpoint of step {state.step} could not {action} below {self.folder} for {patience} s "
                        f"({reason}); "
                        "free space or give access, and start the same command again: "
                        "it continues from the newest intact checkpoint"
                    ) from error
                self.failing.set()
                if wait == FIRST_WAIT:
                    self.say(
                        f"the checkpoint of step {state.step} cannot {action} ({reason}); "
                        f"trying again for {patience} s while training goes on"
                    )
                self.given_up.wait(min(wait, left))
                wait = min(2 * wait, LONGEST_WAIT)

    def _publish(self, state: State, taken: Snapshot) -> None:
        assert state.cursor is not None
        require_current(self.folder, self.attempt)
        write_position(self.folder, state.step, state.cursor)
        checkpoint.publish(self.folder, state, taken, self.vocabulary, self.attempt)

    def _delete_older(self, state: State) -> None:
        # Again: a driver that took the run over while the checkpoint was written needs an older one.
        require_current(self.folder, self.attempt)
        kept = self.config.checkpoint
        # The best checkpoint is chosen within a phase, because losses at other sequence lengths cannot be compared.
        phase = self.config.phase_at(state.step - 1)
        ends = {phase.end for phase in self.config.all_phases}
        best = checkpoint.best_step(self.folder, phase.first, state.step, self.sound) if kept.keep_best else None
        checkpoint.delete_old_checkpoints(
            self.folder,
            kept.keep,
            state.step,
            {step for step in (best, decay_start(self.config)) if step is not None},
            lambda step: step % kept.every == 0 or step in ends,
        )
