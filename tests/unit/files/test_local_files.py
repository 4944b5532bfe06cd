import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.files.local_files import replace_file, scratch_folder
from pipeline.files.locks import locked

HOLDER = (
    "from pipeline.files.local_files import scratch_folder\nwith scratch_folder('checkpoint') as folder:\n    "
    "(folder / 'weights').write_bytes(b'w')\n    print(folder, flush=True)\n    input()\n"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system's temporary folder of this test's own."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def holder(temporary: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A process that uses a scratch folder until it reads a line, and the folder."""
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def test_a_scratch_folder_is_empty_and_ends_with_its_context(temporary: Path):
    with scratch_folder("checkpoint") as folder:
        assert list(folder.iterdir()) == [] and folder.is_relative_to(temporary)
        (folder / "weights").write_bytes(b"w")
    assert list(temporary.iterdir()) == []


def test_sweep_deletes_abandoned_scratch_folders_only(temporary: Path):
    killed, killed_folder = holder(temporary)
    living, living_folder = holder(temporary)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert (killed_folder / "weights").exists()
        with scratch_folder("load"):
            assert not killed_folder.parent.exists()
            assert (living_folder / "weights").read_bytes() == b"w"
    finally:
        living.communicate("\n")
    assert list(temporary.iterdir()) == []


def test_what_looks_like_a_scratch_folder_and_is_none_stays(temporary: Path, tmp_path: Path):
    (tmp_path / "mine" / "files").mkdir(parents=True)
    (tmp_path / "mine" / "lock").touch()
    (temporary / "bertstream-link").symlink_to(tmp_path / "mine")
    (temporary / "bertstream-without-a-lock").mkdir()
    (temporary / "bertstream-file").touch()
    (temporary / "other").mkdir()
    (temporary / "other" / "lock").touch()
    with scratch_folder("load"):
        pass
    assert sorted(path.name for path in temporary.iterdir()) == [
        "bertstream-file",
        "bertstream-link",
        "bertstream-without-a-lock",
        "other",
    ]
    assert (tmp_path / "mine" / "lock").exists()


def test_a_write_follows_no_link_that_somebody_made_first(tmp_path: Path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / f"run.json.{os.getpid()}.tmp").symlink_to(tmp_path / "precious")
    (tmp_path / "run.json").symlink_to(tmp_path / "precious")
    storage.write_bytes(str(tmp_path / "run.json"), b"{}")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "run.json").read_bytes() == b"{}" and not (tmp_path / "run.json").is_symlink()


def test_a_predictable_name_is_never_used_and_an_existing_one_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("secrets.token_hex", lambda size: "ab" * size)
    (tmp_path / "precious").write_text("mine")
    (tmp_path / f"x.{'ab' * 8}.tmp").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        replace_file(str(tmp_path / "x"), b"theirs")
    assert (tmp_path / "precious").read_text() == "mine" and not (tmp_path / "x").exists()


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path):
    (tmp_path / "x").mkdir()
    with pytest.raises(OSError):
        replace_file(str(tmp_path / "x"), b"content")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["temporary", "x"]


def test_the_probe_of_a_folder_spares_the_files_in_it(tmp_path: Path):
    (tmp_path / ".writable").write_text("mine")
    storage.require_writable("output", str(tmp_path))
    assert (tmp_path / ".writable").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".writable", "temporary"]


def test_a_lock_that_is_a_link_or_a_pipe_is_refused(tmp_path: Path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".lock").symlink_to(tmp_path / "precious")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / ".lock")
    for name in ("a", "b"):
        with (
            pytest.raises(
                ConfigError,
                match=rf"^{tmp_path}/{name}/\.lock cannot be used as a lock \(.+\); delete it, or choose "
                rf"another folder$",
            ),
            locked(str(tmp_path / name)),
        ):
            pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_pipes_and_devices_are_not_read(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        for read in (storage.read_bytes, storage.read_json, storage.sha256):
            with pytest.raises(OSError, match="it is a pipe, a socket or a device, and a regular file is needed"):
                read(str(tmp_path / name))


def test_a_file_is_read_up_to_a_limit(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"[12345]")
    assert storage.read_at_most(str(tmp_path / "x"), 7) == b"[12345]"
    with pytest.raises(OSError, match="it has more than 6 bytes"):
        storage.read_at_most(str(tmp_path / "x"), 6)


def test_json_nested_too_deeply_is_a_value_error(tmp_path: Path):
    (tmp_path / "x.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(ValueError, match="^it is nested too deeply$"):
        storage.read_json(str(tmp_path / "x.json"))


def test_a_damaged_object_is_none(tmp_path: Path):
    for content in (b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'"x"'):
        (tmp_path / "x.json").write_bytes(content)
        assert storage.read_object(str(tmp_path / "x.json")) is None
    (tmp_path / "x.json").write_text('{"a": 1}')
    assert (
        storage.read_object(str(tmp_path / "x.json")) == {"a": 1}
        and storage.read_object(str(tmp_path / "none.json")) is None
    )
