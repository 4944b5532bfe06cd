"""MLflow tags on the origin of a run: the commit of this code, the user and the command."""

import getpass
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from pipeline.files.locations import without_login

COMMIT, CHANGED = "mlflow.source.git.commit", "mlflow.source.git.dirty"
USER, SOURCE, KIND = "mlflow.user", "mlflow.source.name", "mlflow.source.type"
COMMAND = "command"
GIT_SECONDS = 10
LONGEST = 5_000
"""Maximum characters of a tag value that every MLflow server accepts."""


def origin() -> dict[str, str]:
    """Return the tags; without the commit tags if this code is not in a git checkout."""
    return commit(__file__) | _user() | {KIND: "LOCAL", SOURCE: without_login(sys.argv[0]), COMMAND: command(sys.argv)}


def commit(file: str) -> dict[str, str]:
    """Return a tag with the commit of a file's git checkout, and a tag that says whether tracked files have changed.

    Empty if git does not track the file.
    """
    # An installed package may lie inside the checkout of another project, which does not track the package's files.
    if _git(file, "ls-files", "--error-unmatch", file) is None:
        return {}
    commit_id, changed = _git(file, "rev-parse", "HEAD"), _git(file, "status", "--porcelain", "--untracked-files=no")
    return {COMMIT: commit_id, CHANGED: str(changed != "").lower()} if commit_id else {}


def _git(file: str, *words: str) -> str | None:
    """Return the output of a git command, run in the folder of a file; None if git is missing, fails or is too slow."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            ["git", *words], cwd=os.path.dirname(file), capture_output=True, text=True, timeout=GIT_SECONDS
        )
        return done.stdout.strip() if done.returncode == 0 else None
    return None


def _user() -> dict[str, str]:
    """Return a tag for the user of this process; empty if the system has no user name, as in some containers."""
    with suppress(OSError, KeyError):
        return {USER: getpass.getuser()}
    return {}


def command(words: Sequence[str]) -> str:
    """Return a command in shell syntax, without the logins and keys in its URLs, truncated to LONGEST characters."""
    shown = shlex.join(_word_without_login(word) for word in words)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def _word_without_login(word: str) -> str:
    """Return a word of a command line without the login in its URL. The word has the form URL or --OPTION=URL."""
    option, equals, value = word.partition("=")
    if word.startswith("-") and equals:
        return f"{option}={without_login(value)}"
    return without_login(word)
