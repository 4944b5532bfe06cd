"""Token and temporary folders of a Ray that a command starts on this machine, and errors that name them"""

import os
import secrets
import shutil
import stat
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.files.local_files import scratch_folder

LEAST_FREE = 100e6
"""Bytes of free space for temporary files below which a full disk is named if Ray does not start."""
LONGEST_TEMPORARY = 103 - len(
    "/bertstream-ray-01234567/files/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
)
"""Longest path of a temporary folder in bytes.

Operating systems limit the length of socket paths, and Ray's sockets are below this folder.
"""
SHORT = f"a folder whose path has at most {LONGEST_TEMPORARY} bytes, such as /scratch"


def make_token() -> None:
    """Create Ray's authentication token if it is missing, and make the token readable by this user only.

    All users could read a token that Ray creates. A no-op without token authentication, or if an environment variable
    gives another token.
    """
    if os.environ.get("RAY_AUTH_MODE") != "token" or {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        return
    try:
        token = Path.home() / ".ray" / "auth_token"
        with suppress(FileExistsError):
            token.parent.mkdir(mode=0o700, exist_ok=True)
            with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(secrets.token_hex(32))
        if stat.S_IMODE(token.stat().st_mode) != 0o600:
            token.chmod(0o600)
    except (OSError, RuntimeError) as error:  # RuntimeError: HOME is not set, and the user is not known to the system
        raise ConfigError(
            f"HOME ({os.environ.get('HOME', 'not set')}) cannot hold Ray's token, .ray/auth_token: "
            f"{getattr(error, 'strerror', None) or error}; set HOME to a folder that you can write to, or "
            "RAY_AUTH_TOKEN to a secret"
        ) from error


def ray_folders(folders: ExitStack) -> tuple[Path, Path]:
    """Make a folder for Ray's temporary files and one for its spilled objects; `folders` deletes them when it closes.

    Raises ConfigError if the system has no temporary folder, if it cannot be written to, or if RAY_TMPDIR is too long.
    """
    try:
        parent = _temporary_folder()
        return folders.enter_context(scratch_folder("ray", parent)), folders.enter_context(scratch_folder("spilled"))
    except OSError as error:  # its text names the folder
        raise ConfigError(
            f"Ray needs folders for temporary files: {error}; set RAY_TMPDIR to {SHORT}, and TMPDIR to any, with free "
            "space, that you can write to"
        ) from error


def _temporary_folder() -> Path:
    """Return the folder in which `start` makes Ray's folder: RAY_TMPDIR, else the system's, or /tmp if it is too long.

    Raises OSError if the system has no temporary folder, and ConfigError if RAY_TMPDIR is too long.
    """
    chosen = os.environ.get("RAY_TMPDIR")
    parent = Path(chosen or tempfile.gettempdir())
    size = len(os.fsencode(parent))
    if chosen and size > LONGEST_TEMPORARY:
        raise ConfigError(
            f"RAY_TMPDIR ({chosen}) has {size} bytes, too long for Ray's sockets: leave it out, or set it to {SHORT}"
        )
    return Path("/tmp") if size > LONGEST_TEMPORARY else parent


def start_remedy() -> str:
    """Say what to do if Ray has not started on this machine."""
    free = shutil.disk_usage(_temporary_folder()).free
    if free < LEAST_FREE:
        return (
            f"{_temporary_folder()} has {free / 1e6:.0f} MB of free space for Ray's temporary files: free more, or set "
            f"RAY_TMPDIR to {SHORT}"
        )
    return "run the same command again, if possible when the machine is less busy"
