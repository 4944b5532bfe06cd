"""SIGTERM, as schedulers and `ray job stop` send it: work ends as after Ctrl-C, and the exit code says which of the two it was."""

import signal
import threading
from types import FrameType

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""Exit codes as shells and schedulers know them: 130 and 143."""
terminated = threading.Event()


def interrupt_on_sigterm() -> None:
    """Raise KeyboardInterrupt in the main thread at the first SIGTERM; ignore more of them, which would cut the end short."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a SIGTERM."""
    if not terminated.is_set():
        terminated.set()
        raise KeyboardInterrupt


def exit_code() -> int:
    """Exit code of a command that was stopped: 143 after SIGTERM, 130 after Ctrl-C."""
    return TERMINATED if terminated.is_set() else INTERRUPTED
