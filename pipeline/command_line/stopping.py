"""Handle SIGTERM from schedulers and `ray job stop` like Ctrl-C, but with another exit code."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""Exit codes 130 and 143, as shells and schedulers expect."""
terminated = threading.Event()


def interrupt_on_sigterm() -> None:
    """Raise KeyboardInterrupt in the main thread at the first SIGTERM; a no-op in other threads.

    Later SIGTERMs are ignored, because they would interrupt the shutdown.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt for the first SIGTERM; ignore later ones."""
    if not terminated.is_set():
        terminated.set()
        raise KeyboardInterrupt


@contextmanager
def interrupts_deferred() -> Generator[threading.Event]:
    """Set the yielded event at Ctrl-C and SIGTERM, instead of raising KeyboardInterrupt; for calls that must clean up.

    If the event is already set, Ctrl-C raises KeyboardInterrupt. Only the main thread gets signals, so in other threads
    this is a no-op.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            terminated.set()
        elif stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code() -> int:
    """Return the exit code of a stopped command: 143 after SIGTERM, 130 after Ctrl-C."""
    return TERMINATED if terminated.is_set() else INTERRUPTED
