"""Hold the lease of a run in an object store while this driver trains it, and stop when another driver has it."""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import ray
from ray.actor import ActorHandle

from pipeline.errors import CheckpointError, ConfigError, TakenOver
from pipeline.files import storage
from pipeline.files.lease import (
    LEASE_SECONDS,
    RENEW_SECONDS,
    Lease,
    LeaseClock,
    LeaseHeld,
    LeaseLost,
    LeaseRecord,
    in_store,
)
from pipeline.reporting import Report
from pipeline.saved.checkpoints import LEASE, newest_attempt, taken_over
from pipeline.tracking.failures import failure_of

ONE_DRIVER = "give this run one driver only"


class Attempt:
    """This driver's attempt at a run."""

    def __init__(self, folder: str, lease: Lease, report: Report) -> None:
        self.folder, self.lease, self.report = folder, lease, report
        self.watched: LeaseRecord | None = None
        """Lease that this driver watched until it could take the run over; None if it had been released."""
        self.error: TakenOver | None = None
        """Set once another driver has taken the run over."""

    def begin(self, step: int) -> int:
        """Record the step from which this attempt counts, before it publishes anything; return its number.

        Raises TakenOver, and OSError if storage fails.
        """
        try:
            number = self.lease.begin(step)
        except LeaseLost as lost:
            raise self.superseded(lost) from lost
        if self.watched:
            self.report(
                f"attempt {number} has taken the run over from attempt {self.watched.attempt}, from step {step:,}"
            )
        return number

    def take(self) -> None:
        """Take the lease of the run. Raises ConfigError if another driver holds it, and OSError if storage fails."""
        try:
            self.lease.take(newest_attempt(self.folder), self.watching)
        except LeaseHeld as held:
            (record,) = held.args
            raise ConfigError(
                f"run {self.folder} is being trained already by {record.driver} (attempt {record.attempt}); "
                "wait for it, stop it (ray job stop), or choose another --name"
            ) from held
        if not self.lease.is_kept():
            self.report(f"note: the store of {self.folder} ignores conditions of writes: {ONE_DRIVER}")

    def watching(self, before: LeaseRecord) -> None:
        """Report for whom this driver waits."""
        self.watched = before
        self.report(
            f"attempt {before.attempt} of this run ({before.driver}) has not ended; "
            f"taking the run over if it does not renew its lease for {LEASE_SECONDS:.0f} s"
        )

    def superseded(self, lost: LeaseLost) -> TakenOver:
        """Return the error of a lost lease, and keep it."""
        (record,) = lost.args
        driver = f"{record.driver} (attempt {record.attempt})" if record else f"whoever deleted {LEASE}"
        self.error = taken_over(self.folder, self.lease.held().attempt, driver)
        return self.error


@contextmanager
def fenced(folder: str, tracker: ActorHandle, report: Report) -> Generator[Attempt | None]:
    """Hold the lease of a run in this context; yield None for a store without leases (see `in_store`).

    Raises ConfigError if another driver holds the lease. If another driver takes it, this context raises TakenOver.
    """
    stored = in_store(storage.join(folder, LEASE))
    if stored is None:
        report(f"note: runs in the store of {folder} have no lease: {ONE_DRIVER}")
        yield None
        return
    owner = f"{ray.get(tracker.owner.remote())} on {ray.util.get_node_ip_address()}"
    is_main = threading.current_thread() is threading.main_thread()

    def end_run(error: TakenOver) -> None:
        with suppress(ray.exceptions.RayError):  # without its tracker, the run ends anyway
            ray.get(tracker.fail.remote(failure_of(error, "the driver")))
        if is_main:  # in another thread, the run ends at its next checkpoint
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with attempted(folder, Lease(stored, owner, LeaseClock()), end_run, report) as attempt:
        yield attempt


@contextmanager
def attempted(
    folder: str, lease: Lease, end_run: Callable[[TakenOver], None], report: Report, every: float = RENEW_SECONDS
) -> Generator[Attempt]:
    """Take a lease, renew it in a thread while the context lasts, and release it at the end.

    `end_run` is called in that thread when another driver has taken the lease; it interrupts the context.
    """
    attempt, stopping = Attempt(folder, lease, report), threading.Event()
    attempt.take()

    def renew() -> None:
        while not stopping.wait(every):
            try:
                lease.renew()
            except LeaseLost as lost:
                end_run(attempt.superseded(lost))
                return
            except (OSError, CheckpointError):  # nobody can take the lease while the store is away, or it is damaged
                continue

    renewing = threading.Thread(target=renew, name="lease", daemon=True)
    renewing.start()
    try:
        try:
            yield attempt
        finally:
            stopping.set()
            renewing.join()
            lease.release()
    except (KeyboardInterrupt, SystemExit) as error:  # also from `end_run` while the thread is waited for
        if attempt.error:
            raise attempt.error from error
        raise
