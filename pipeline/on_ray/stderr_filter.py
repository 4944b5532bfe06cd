"""Leave lines out of standard error that a library writes there from C++, past sys.stderr"""

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

RESTART_WARNING = b"has constructor arguments in the object store and max_restarts > 0."
"""Part of a line of Ray for each actor of Ray Data: that an actor cannot restart if its arguments are lost.

Ray Data keeps these arguments until the dataset is done, and restarts its actors, so the line is wrong there. It is an
error in Ray's log, whose level cannot be set for one line.
"""


@contextmanager
def lines_left_out(part: bytes, most: int) -> Generator[None]:
    """Leave the first `most` lines out of standard error that contain `part`; all other lines pass unchanged.

    Once they have come, standard error is what it was before, so that no line waits for a thread.
    """
    try:
        before = os.dup(2)
    except OSError:  # the shell has closed it (2>&-)
        yield
        return
    sys.stderr.flush()
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    relay = threading.Thread(target=_relay, args=(reader, os.dup(before), part, most), daemon=True)
    relay.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)  # closes the pipe, unless a process that was started meanwhile still writes to it
        os.close(before)
        relay.join(timeout=1)


def _relay(reader: int, target: int, part: bytes, most: int) -> None:
    """Copy lines from a pipe to a descriptor until the pipe is closed."""
    with os.fdopen(reader, "rb") as lines, os.fdopen(target, "wb", buffering=0) as written:
        for line in lines:
            if part not in line or not most:
                written.write(line)
                continue
            most -= 1
            if not most:
                os.dup2(target, 2)
