"""Lock local folders and paths against other processes of this machine. A lock ends with the process that holds it."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO

from pipeline.errors import ConfigError
from pipeline.files.local_files import open_lock
from pipeline.files.locations import is_url
from pipeline.files.storage import first_line, make_folder


@contextmanager
def locked(folder: str, *, wait: bool = False) -> Generator[None]:
    """Lock a local folder against other processes of this machine, until the context or the process ends.

    If another process holds the lock, wait for that process, or raise ConfigError if `wait` is False. A folder at a
    URL is not locked.
    """
    if is_url(folder):
        yield
        return
    make_folder(folder)
    with _hold_lock(f"{folder}/.lock", folder, wait):
        yield


@contextmanager
def locked_name(location: str, *, wait: bool = False) -> Generator[None]:
    """Lock a local path as `locked` locks a folder. The path need not exist. The lock file is deleted at the end."""
    if is_url(location):
        yield
        return
    folder, _, name = location.rpartition("/")
    make_folder(folder)
    path = f"{folder}/.{name}.lock"
    while True:
        with _hold_lock(path, location, wait) as lock:
            # The process that held the lock may have deleted the file after this process opened it. If so, try again.
            try:
                is_current = os.path.samestat(os.fstat(lock.fileno()), os.lstat(path))
            except FileNotFoundError:
                is_current = False
            if is_current:
                try:
                    yield
                finally:
                    os.unlink(path)
                return


@contextmanager
def _hold_lock(path: str, location: str, wait: bool) -> Generator[IO[str]]:
    """Hold a lock file inside the context.

    Raises ConfigError with `location` in its message if another process holds the lock and `wait` is False.
    """
    try:
        stream = open_lock(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be used as a lock ({first_line(error)}); delete it, or choose another folder"
        ) from error
    with stream as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise ConfigError(
                f"{location} is in use by process {lock.read().strip()}; wait for it, stop it, or choose another name"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield lock
