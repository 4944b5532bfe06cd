"""Tags with what started a run: a real git repository, and words with logins."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.tracking import origin
from pipeline.tracking.origin import CHANGED, COMMIT, command, commit


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_commit_is_that_of_the_checkout_that_has_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    file = tmp_path / "code" / "one.py"
    file.parent.mkdir()
    file.write_text("1")
    assert commit(str(file)) == {}  # no checkout
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "nothing in it")
    assert commit(str(file)) == {}  # a checkout of something else, as where a package is installed below one
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit(str(file)) == {COMMIT: head, CHANGED: "false"}
    (tmp_path / "output.txt").write_text("")
    assert commit(str(file)) == {COMMIT: head, CHANGED: "false"}
    file.write_text("2")
    assert commit(str(file)) == {COMMIT: head, CHANGED: "true"}
    monkeypatch.setenv("PATH", str(tmp_path))  # without git
    assert commit(str(file)) == {}


def test_a_command_stands_without_logins() -> None:
    words = [
        "jobs/pretrain.py",
        "--corpus",
        "https://me:word@host/a.txt",
        "--corpus=s3://key:word@bucket/x?token=abc",
        "--name",
        "a b",
    ]
    assert (
        command(words)
        == "jobs/pretrain.py --corpus 'https://***@host/a.txt' '--corpus=s3://***@bucket/x?token=***' --name 'a b'"
    )
    assert len(command(["x" * 9_000])) == 5_000


def test_the_tags_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["jobs/pretrain.py", "bert-tiny"])
    monkeypatch.setattr(origin, "commit", lambda file: {})
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    assert origin.origin() == {
        "mlflow.user": "me",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": "jobs/pretrain.py",
        "command": "jobs/pretrain.py bert-tiny",
    }
