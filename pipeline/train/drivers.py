"""The process that drives a run, by a name from which processes of the same machine can tell whether it is gone."""

import os
import platform
from contextlib import suppress

import psutil

SAME_START = 60.0
"""Seconds within which two starts of a process id are one: the system's clock may have been set between them."""


def this_driver() -> str:
    """Name of this process: machine, namespace of its process id, process id, start in seconds since 1970."""
    return f"{machine()} {os.getpid()} {psutil.Process().create_time():.0f}"


def machine() -> str:
    """Where process ids mean the same: containers of one machine may share its name."""
    namespace = "-"
    with suppress(OSError):  # there are none outside of Linux
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{platform.node() or '-'} {namespace}"


def is_gone(driver: str) -> bool:
    """Whether a driver was a process of this machine that has ended; False where this cannot be known."""
    match driver.rsplit(" ", 2):
        case [where, number, start] if where == machine() and number.isdigit() and start.isdigit():
            return not lives(int(number), float(start))
    return False


def lives(number: int, start: float) -> bool:
    """Whether the process of this number that started then has not ended; also where the system does not tell."""
    try:
        process = psutil.Process(number)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - start) <= SAME_START
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
