"""Identify the process that drives a run, so that other processes on the machine can tell whether it has ended."""

import os
import platform
from contextlib import suppress

import psutil

SAME_START = 60.0
"""Seconds within which two start times of a process id count as the same: the system clock may have been set in
between.
"""


def this_driver() -> str:
    """Return the name of this process: machine, process-id namespace, process id, start in seconds since 1970."""
    return f"{machine()} {os.getpid()} {psutil.Process().create_time():.0f}"


def machine() -> str:
    """Return a name for the machine and process-id namespace: containers of one machine may share its host name."""
    namespace = "-"
    with suppress(OSError):  # there are none outside of Linux
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{platform.node() or '-'} {namespace}"


def is_gone(driver: str) -> bool:
    """Return whether a driver on this machine has ended; False where this cannot be known."""
    match driver.rsplit(" ", 2):
        case [where, number, start] if where == machine() and number.isdigit() and start.isdigit():
            return not _lives(int(number), float(start))
    return False


def _lives(number: int, start: float) -> bool:
    """Return whether the process with this id and start time is running; True where the system does not tell."""
    try:
        process = psutil.Process(number)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - start) <= SAME_START
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
