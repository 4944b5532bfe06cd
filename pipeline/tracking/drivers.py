"""Identify the process that drives a run, so that other processes on the machine can tell whether it has ended."""

import os
import platform
from contextlib import suppress

import psutil

SAME_START = 60.0
"""Two start times of one process id count as equal if they differ by at most this many seconds.

The system clock may have been corrected between the two readings.
"""


def this_driver() -> str:
    """Return a name for this process: machine, process-id namespace, process id, and start in seconds since 1970."""
    return f"{machine()} {os.getpid()} {psutil.Process().create_time():.0f}"


def machine() -> str:
    """Return a name for this machine and process-id namespace; containers may share the host name of their machine."""
    namespace = "-"
    with suppress(OSError):  # only Linux has /proc/self/ns
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{platform.node() or '-'} {namespace}"


def is_gone(driver: str) -> bool:
    """Return whether a driver, named by `this_driver`, has ended.

    False if the name is invalid or the driver is on another machine, because then this process cannot tell.
    """
    match driver.rsplit(" ", 2):
        case [name, process_id, start] if name == machine() and process_id.isdigit() and start.isdigit():
            return not _lives(int(process_id), float(start))
    return False


def _lives(process_id: int, start: float) -> bool:
    """Return whether the process with this id and start time is running; True if the system denies access to it."""
    try:
        process = psutil.Process(process_id)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - start) <= SAME_START
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
