"""cluster/head.sh where it refuses, before any Ray is started, and the words with which it starts one."""

import importlib.metadata
import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HEAD = Path(__file__).parents[2] / "cluster" / "head.sh"
NOBODY = 65534


def head(word: str, folder: Path | str, port: int = 1, script: Path = HEAD) -> subprocess.CompletedProcess:
    environment = os.environ | {"HEAD_FOLDER": str(folder), "DASHBOARD_PORT": str(port), "RAY_AUTH_TOKEN": "a"}
    return subprocess.run([script, *shlex.split(word)], env=environment, capture_output=True, text=True, timeout=60)


def refusal(word: str, folder: Path | str, port: int = 1, script: Path = HEAD) -> str:
    """The one line of a command that ends with 2."""
    done = head(word, folder, port, script)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done
    return done.stderr.removeprefix("error: ").strip()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A program that waits for a connection on 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


def port_of(server: socket.socket) -> int:
    return server.getsockname()[1]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The script in a project whose `ray` prints its words and ends."""
    programs = {"ray": '#!/bin/sh\necho "$@"\nexit 1\n', "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n'}
    for name, text in programs.items():
        program = tmp_path / "project" / ".venv" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    (tmp_path / "project" / "cluster").mkdir()
    return Path(shutil.copy(HEAD, tmp_path / "project" / "cluster"))


def started(script: Path, folder: Path) -> dict[str, str]:
    """{option: value} of the `ray start` of a head, which ends at once."""
    assert refusal("start", folder, script=script) == f"the Ray head did not start; its log is {folder}/log"
    closed = Path((folder / "ray-folder").read_text()).parent  # in /tmp where the name of the test's own is too long
    if closed != folder:
        shutil.rmtree(closed)
    words = (folder / "log").read_text().split()
    return {option: value for option, value in zip(words, words[1:], strict=False) if option.startswith("--")}


def no_head(port: int) -> str:
    return f"no Ray head of this project listens on port {port}: cluster/head.sh start"


def pretend_running(folder: Path) -> subprocess.Popen:
    """A process of the words of a head, which the folder names as the one that runs."""
    folder.mkdir(mode=0o700)
    words = [sys.executable, "-c", "input()", "ray", "start", "--head", "--temp-dir", f"{folder}/ray", "--block"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE)
    (folder / "pid").write_text(f"{process.pid}\n")
    (folder / "ray-folder").write_text(f"{folder}/ray\n")
    return process


@pytest.mark.parametrize("command", ["start", "submit true", "stop"])
def test_a_folder_that_others_can_write_to_is_refused(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "head"
    folder.mkdir()
    folder.chmod(0o770)
    message = f"{folder} is open to other users (drwxrwx---): chmod 700 it, or choose another with HEAD_FOLDER=…"
    assert refusal(command, folder) == message


@pytest.mark.parametrize("command", ["start", "submit true", "stop"])
def test_a_folder_that_is_a_link_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "head").symlink_to(tmp_path / "theirs")
    message = f"{tmp_path / 'head'} is not a folder of this user's own: choose another with HEAD_FOLDER=…"
    assert refusal(command, tmp_path / "head") == refusal(command, f"{tmp_path / 'head'}/") == message
    assert not any((tmp_path / "theirs").iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to make a folder of another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "head"
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)
    # Root is let in everywhere, and still does not trust it.
    assert refusal("start", folder) == f"{folder} is not a folder of this user's own: choose another with HEAD_FOLDER=…"


def test_a_job_is_not_sent_to_whoever_listens_on_the_port(listener: socket.socket, tmp_path: Path) -> None:
    port = port_of(listener)
    assert refusal("submit true", tmp_path / "head", port) == no_head(port)
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to listen as another user")
def test_a_job_is_not_sent_to_another_user_who_took_the_port_of_a_head(tmp_path: Path) -> None:
    folder = tmp_path / "head"
    process = pretend_running(folder)
    os.seteuid(NOBODY)
    try:
        server = socket.create_server(("127.0.0.1", 0))
    finally:
        os.seteuid(0)
    with server:
        server.settimeout(0)
        assert refusal("submit true", folder, port_of(server)) == no_head(port_of(server))
        with pytest.raises(BlockingIOError):
            server.accept()
    process.communicate(b"\n", timeout=60)


def test_only_the_head_of_the_folder_is_stopped(tmp_path: Path) -> None:
    process = pretend_running(tmp_path / "head")
    (tmp_path / "head" / "ray-folder").write_text("/another/ray\n")
    assert head("stop", tmp_path / "head").stdout == "no Ray head of this project is running\n"
    assert process.poll() is None
    process.communicate(b"\n", timeout=60)


@pytest.mark.parametrize("port", [8265, 8300])
def test_the_address_of_the_head_is_always_exported(port: int, tmp_path: Path) -> None:
    root = HEAD.parents[1]
    assert head("environment", tmp_path, port).stdout.splitlines() == [
        f"source {root}/.venv/bin/activate",
        f"export RAY_AUTH_MODE=token RAY_API_SERVER_ADDRESS=http://127.0.0.1:{port}",
    ]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file" / "head", tmp_path / "file" / "deep" / "head"):
        message = refusal("start", folder)
        assert str(tmp_path / "file") in message and message.endswith(": choose another folder with HEAD_FOLDER=…")


def test_ray_client_gets_a_port_that_other_heads_do_not_take(copied: Path, tmp_path: Path) -> None:
    port = int(started(copied, tmp_path / "head")["--ray-client-server-port"])
    assert port > 1023 and port != 10001  # the default, which every other head takes


def test_objects_are_spilled_to_the_folder_of_the_head(copied: Path, tmp_path: Path) -> None:
    spilled = tmp_path / "head" / "spilled"
    spilled.mkdir(parents=True)
    spilled.parent.chmod(0o700)
    (spilled / "of-the-last-head").touch()
    assert started(copied, spilled.parent)["--object-spilling-directory"] == str(spilled)
    assert not spilled.exists()


def test_a_head_of_another_ray_is_not_used(copied: Path, tmp_path: Path) -> None:
    process = pretend_running(folder := tmp_path / "head")
    (folder / "versions").write_text("2.8.0 3.11.2\n")
    assert refusal("start", folder, script=copied) == (
        "the running Ray head is of another Ray or Python, and no job could join it: "
        "make stop, then the same command again"
    )
    process.communicate(b"\n", timeout=60)
    started(copied, folder)
    versions = f"{importlib.metadata.version('ray')} {platform.python_version()}\n"
    assert (folder / "versions").read_text() == versions
