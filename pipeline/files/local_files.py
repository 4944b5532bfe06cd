"""Handle local files safely: links, pipes and devices, locks between processes, and leftovers of killed processes."""

import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO

SCRATCH = "bertstream-"
"""Start of the name of every scratch folder."""
LONGEST_NAME, LONGEST_PATH = 255, 4095
"""Limits of Linux for a file name and a path, in bytes."""
LOCK, FILES = "lock", "files"
"""Names in a scratch folder: the lock file, held by the process that uses the folder, and the folder for files."""


class Kind(Enum):
    """Kind of what is at a path. The values are the names in pyarrow's FileType."""

    FILE = "File"
    FOLDER = "Directory"
    OTHER = "Unknown"  # a pipe, a socket or a device
    MISSING = "NotFound"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Kind of what is at a path, and a file's size in bytes (None for other kinds)."""

    kind: Kind
    size: int | None = None


def entry_at(path: str) -> Entry:
    """Return what is at a path, following links; a link to a missing file is missing.

    Raises OSError if the system does not tell, for example PermissionError.
    """
    try:
        about = os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return Entry(kind=Kind.MISSING)
        raise
    if stat.S_ISREG(about.st_mode):
        return Entry(kind=Kind.FILE, size=about.st_size)
    return Entry(kind=Kind.FOLDER if stat.S_ISDIR(about.st_mode) else Kind.OTHER)


def names_in(folder: str) -> list[str]:
    """Return the sorted names in a folder; empty if the folder does not exist. Links to missing files are left out.

    Raises OSError, for a file NotADirectoryError.
    """
    try:
        return sorted(name for name in os.listdir(folder) if entry_at(f"{folder}/{name}").kind is not Kind.MISSING)
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        if entry_at(folder).kind is Kind.MISSING:  # the path names something inside a file
            return []
        raise


def delete_tree(folder: str) -> None:
    """Delete a folder and all that is in it. Links are deleted, not followed, also if `folder` is a link."""
    if os.path.islink(folder):
        os.unlink(folder)
    else:
        shutil.rmtree(folder)


def path_problem(path: str) -> str | None:
    """Return the reason why a path is invalid, for a message; None if the path is valid."""
    try:
        lengths = [len(name.encode()) for name in path.split("/")]
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if "\0" in path:
        return "it holds a zero byte"
    if max(lengths) > LONGEST_NAME:
        return f"a name in it has {max(lengths)} bytes, and at most {LONGEST_NAME} are allowed"
    return (
        f"it has {len(path.encode())} bytes, and at most {LONGEST_PATH} are allowed"
        if len(path.encode()) > LONGEST_PATH
        else None
    )


def replace_file(path: str, content: bytes) -> None:
    """Write a file under a random name, then move it to `path`. A link at `path` is replaced, not followed."""
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as stream:
        try:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def require_regular(path: str) -> None:
    """Raise OSError if a path exists but is not a regular file. Reading a pipe or a device might never end."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # opening the file will raise an error that names the cause
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, and a file is needed", path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, and a regular file is needed", path)


def open_lock(path: str) -> IO[str]:
    """Open a lock file, and create it if missing. Raises OSError for a link, a folder, a pipe or a device."""
    stream = os.fdopen(
        os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666), "r+"
    )
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return stream


@contextmanager
def scratch_folder(purpose: str, parent: Path | None = None) -> Generator[Path]:
    """Yield an empty temporary folder in `parent`, and delete the folder at the end. Its name contains `purpose`.

    If `parent` is None, the system's temporary folder is used. First, scratch folders in `parent` are deleted that
    killed processes of this user left behind.
    """
    parent = parent or Path(tempfile.gettempdir())
    _sweep(parent)
    with tempfile.TemporaryDirectory(prefix=f"{SCRATCH}{purpose}-", dir=parent) as name:
        folder = Path(name)
        with open_lock(str(folder / f"{LOCK}.new")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Rename the file only after locking it: other processes delete a folder whose lock file is not locked.
            os.rename(folder / f"{LOCK}.new", folder / LOCK)
            (folder / FILES).mkdir()
            yield folder / FILES


def _sweep(parent: Path) -> None:
    """Delete scratch folders of this user in `parent` if their process has ended."""
    with os.scandir(parent) as entries:
        names = [
            entry.path for entry in entries if entry.name.startswith(SCRATCH) and entry.is_dir(follow_symlinks=False)
        ]
    for name in names:
        try:
            if os.lstat(name).st_uid != os.getuid():
                continue
            with open(os.open(f"{name}/{LOCK}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(name)
        except OSError:  # the folder is in use, or cannot be read, or another process is deleting it now
            continue
