"""Checkpoints of a run: the newest or the one asked for, and what is refused."""

import shutil
from pathlib import Path

import pytest

from pipeline.errors import CheckpointError, ConfigError, TakenOver
from pipeline.files import storage
from pipeline.saved.checkpoints import (
    find_checkpoint,
    folder_of,
    newest_attempt,
    newest_sound,
    require_current,
    saved,
    steps_saved,
)
from pipeline.saved.run import recorded_run, run_of_checkpoint


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


def test_what_counts_of_several_attempts(tmp_path: Path) -> None:
    """Attempt 1 wrote on after 2 had begun at step 40, and attempt 2 after 3 had begun at step 50; 4 never trained."""
    run = str(tmp_path)
    for step, attempt in ((20, 0), (40, 1), (60, 1), (50, 2), (70, 2), (60, 3)):
        (tmp_path / "empty").mkdir(exist_ok=True)
        storage.publish(tmp_path / "empty", folder_of(run, step, attempt), {"step": step})
    Path(folder_of(run, 90, 2)).mkdir()  # without a manifest, nobody would read it
    storage.write_json(f"{run}/lease.json", {"attempt": 4, "driver": "job 4", "began": {"1": 20, "2": 40, "3": 50}})
    assert folder_of(run, 20) == f"{run}/checkpoints/step-00000020"
    assert saved(run) == (
        {
            20: f"{run}/checkpoints/step-00000020",
            40: f"{run}/checkpoints/step-00000040-attempt-1",
            50: f"{run}/checkpoints/step-00000050-attempt-2",
            60: f"{run}/checkpoints/step-00000060-attempt-3",
        },
        [(60, 1), (70, 2), (90, 2)],
    )
    lines: list[str] = []
    assert newest_sound(run, lines.append) == folder_of(run, 60, 3) and newest_attempt(run) == 3
    assert lines == [
        "ignoring what an attempt wrote beyond the step from which a later one counts: step 60 of attempt 1, "
        "step 70 of attempt 2"
    ]
    with pytest.raises(ConfigError, match="^step \\(70\\) has no checkpoint in .*: choose one of 20, 40, 50, 60$"):
        find_checkpoint(run, 70, pytest.fail)
    require_current(run, 4)
    require_current(run, 0)
    with pytest.raises(TakenOver, match=r" was taken over by job 4 \(attempt 4\): this attempt \(3\) stops and "):
        require_current(run, 3)
    Path(run, "lease.json").unlink()  # a copy without it
    assert steps_saved(run) == [20, 40, 50, 60, 70, 90] and saved(run)[0][60] == folder_of(run, 60, 3)
    require_current(run, 3)


def test_the_run_of_a_checkpoint_of_an_attempt(run: Path) -> None:
    old, new = folder_of(str(run), 3), folder_of(str(run), 3, 12)
    shutil.move(old, new)
    of_run = run_of_checkpoint(new)
    assert of_run and (of_run.step, of_run.folder) == (3, str(run))
    assert find_checkpoint(str(run), 3, pytest.fail) == new
    assert run_of_checkpoint(f"{new}/generator") is None
