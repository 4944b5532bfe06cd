"""MLflow tags on the origin of a run: the commit of this code, the user and the command."""

import getpass
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from pipeline.locations import without_login

COMMIT, CHANGED = "mlflow.source.git.commit", "mlflow.source.git.dirty"
USER, SOURCE, KIND = "mlflow.user", "mlflow.source.name", "mlflow.source.type"
COMMAND = "command"
GIT_SECONDS = 10
LONGEST = 5_000
"""Longest tag value that every MLflow server accepts."""


def origin() -> dict[str, str]:
    """Return the tags; commit tags are left out where this code is in no git checkout."""
    return commit(__file__) | _user() | {KIND: "LOCAL", SOURCE: without_login(sys.argv[0]), COMMAND: command(sys.argv)}


def commit(file: str) -> dict[str, str]:
    """Return the commit of a file's checkout, and whether its files have changes; empty where git does not know it."""
    if (
        _git(file, "ls-files", "--error-unmatch", file) is None
    ):  # as where a package is installed below a checkout of something else
        return {}
    commit_id, changed = _git(file, "rev-parse", "HEAD"), _git(file, "status", "--porcelain", "--untracked-files=no")
    return {COMMIT: commit_id, CHANGED: str(changed != "").lower()} if commit_id else {}


def _git(file: str, *words: str) -> str | None:
    """Return git's output in the folder of a file; None where git is missing or fails."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            ["git", *words], cwd=os.path.dirname(file), capture_output=True, text=True, timeout=GIT_SECONDS
        )
        return done.stdout.strip() if done.returncode == 0 else None
    return None


def _user() -> dict[str, str]:
    """Return the user of this process; empty where the system has no name, as in some containers."""
    with suppress(OSError, KeyError):
        return {USER: getpass.getuser()}
    return {}


def command(words: Sequence[str]) -> str:
    """Return a command in shell syntax, without logins and keys of URLs."""
    shown = shlex.join(_word_without_login(word) for word in words)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def _word_without_login(word: str) -> str:
    """Return a command-line word without the login of its URL, also in --OPTION=VALUE."""
    option, equals, value = word.partition("=")
    if word.startswith("-") and equals:
        return f"{option}={without_login(value)}"
    return without_login(word)
