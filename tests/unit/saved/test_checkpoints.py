"""Checkpoints of a run: the newest or the one asked for, and what is refused."""

import shutil
from pathlib import Path

import pytest

from pipeline.errors import CheckpointError, ConfigError
from pipeline.saved.checkpoints import find_checkpoint, folder_of
from pipeline.saved.run import recorded_run


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(tiny_run, tmp_path / "tiny"))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_the_newest_or_the_one_asked_for(run: Path) -> None:
    assert find_checkpoint(str(run), None, pytest.fail) == folder_of(str(run), 3)
    assert find_checkpoint(str(run), 2, pytest.fail) == folder_of(str(run), 2)


def test_a_step_without_checkpoint_names_those_there(run: Path) -> None:
    Path(folder_of(str(run), 1), "manifest.json").unlink()  # never published
    for step in (1, 7):
        with pytest.raises(ConfigError) as refused:
            find_checkpoint(str(run), step, pytest.fail)
        assert str(refused.value) == f"step ({step}) has no checkpoint in {run}: choose one of 2, 3"
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(ConfigError) as refused:
        find_checkpoint(str(run), None, pytest.fail)
    assert str(refused.value) == f"{run} has no checkpoint yet: wait for the first"


def test_a_damaged_checkpoint_is_refused_by_name_and_passed_over_otherwise(run: Path) -> None:
    newest = folder_of(str(run), 3)
    flip(Path(newest, "model.safetensors"))
    lines: list[str] = []
    assert find_checkpoint(str(run), None, lines.append) == folder_of(str(run), 2)
    assert lines == [
        f"checkpoint {newest} is damaged (model.safetensors does not match its SHA-256); trying the checkpoint before "
        f"it"
    ]
    with pytest.raises(CheckpointError) as refused:
        find_checkpoint(str(run), 3, pytest.fail)
    assert (
        str(refused.value)
        == f"checkpoint {newest} is damaged (model.safetensors does not match its SHA-256): export another step (1, "
        "2, 3)"
    )


def test_a_folder_that_is_no_run(run: Path) -> None:
    assert recorded_run(str(run))["identity"]["model.width"] == 32
    (run / "run.json").write_text('{"identity": {}, "mlflow_run_id": "1"}')
    with pytest.raises(
        CheckpointError,
        match=r"run\.json is damaged \(it lacks steps, corpus\): restore it, or start under another --name$",
    ):
        recorded_run(str(run))
    (run / "run.json").write_text("{")
    with pytest.raises(
        CheckpointError, match=r"run\.json is damaged \(Expecting .*\): restore it, or start under another --name$"
    ):
        recorded_run(str(run))
    (run / "run.json").unlink()
    with pytest.raises(ConfigError) as refused:
        recorded_run(str(run))
    assert str(refused.value) == f"{run} is not the folder of a run: run.json is missing; runs are in OUTPUT/runs"
