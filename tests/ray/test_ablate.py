"""jobs/ablate.py on Ray Tune: two runs at the same time; stopped and continued; a lost process, a failed run."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from mlflow.tracking import MlflowClient

from pipeline.ablation.command import read_ablate
from pipeline.ablation.trainings import train_runs
from pipeline.config.jobs import Pretrain
from pipeline.config.placement import Placement
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.grid.tune import connect
from pipeline.on_ray.cluster import NAMESPACE
from pipeline.reporting import Report
from pipeline.saved.run import SUMMARY, run_folder
from pipeline.workflows.ablate import ablate

pytestmark = [pytest.mark.second, pytest.mark.usefixtures("local_ray")]
TINY = """--over sampling.masking.share=0.15,0.3 --seeds 1 --vocabulary.size 150 --sampling.maximum-length 32
    --model.layers 1 --model.width 32 --model.heads 2 --model.feed-forward 64 --model.maximum-positions 32
    --batch.rows-per-step 16 --batch.rows-per-slot 4 --evaluation.rows 64 --prepare.window-characters 6000
    --prepare.piece-characters 1000 --prepare.near-duplicates None --prepare.heldout-share 0.1 --tracking.every 1
    --placement.threads 1 --placement.compile off --placement.device cpu --placement.precision float32"""


def statuses(output: Path) -> dict[str, int]:
    """Return status -> number of pretraining runs with it in MLflow."""
    client = MlflowClient(tracking_uri=f"sqlite:///{output}/mlflow.db")
    found = [run.info.status for run in client.search_runs([client.get_experiment_by_name("pretrain").experiment_id])]
    return {status: found.count(status) for status in found}


@pytest.mark.long  # a stopped grid and a lost process are beside it
def test_a_stopped_ablation_leaves_nothing_running_and_continues_to_a_comparison(
    small_corpus: Path, tmp_path: Path
) -> None:
    """Two variants are trained at the same time."""
    asked = [*TINY.split(), "--corpus", str(small_corpus), "--output", str(tmp_path), "--tokens", "60k"]
    config = read_ablate([*asked, "--checkpoint.every", "20"], "")
    lines: list[str] = []
    stopped: list[str] = []

    def stop_at_first_checkpoint(line: str) -> None:
        lines.append(line)
        if not stopped and list((tmp_path / "runs").glob("*/checkpoints/*/manifest.json")):
            stopped.append(line)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ablate(config, stop_at_first_checkpoint)
    assert "2 runs to train, 2 at a time" in lines
    runs = list((tmp_path / "runs").iterdir())
    for run in runs:
        with pytest.raises(ValueError, match="Failed to look up actor"):
            ray.get_actor(f"run:{run}", namespace=NAMESPACE)
    assert not list((tmp_path / "runs").glob(f"*/{SUMMARY}")) and set(statuses(tmp_path)) == {"KILLED"}
    lines.clear()
    table = ablate(config, lines.append)
    assert any("continuing after step" in line for line in lines)
    labels = [f"sampling.masking.share={share}, seed 0: " for share in (0.15, 0.3)]
    assert all(any(line.startswith(label) and "tokens/s" in line for line in lines) for label in labels)
    assert statuses(tmp_path) == {"FINISHED": 2} and set(runs) == set((tmp_path / "runs").iterdir())
    assert all(any(line.startswith(label) for line in table) for label in ("sampling.masking.share=0.15", "sampling"))
    (folder,) = (tmp_path / "ablations").glob("over-*")
    assert json.loads((folder / "ablation.json").read_text())
    assert (folder / "table.md").exists() and (folder / "differences.png").exists()


def runs_of(output: Path, count: int) -> dict[str, Pretrain]:
    placement = Placement(restarts=1)
    return {
        f"run {number}": Pretrain(name=f"r{number}", output=str(output), placement=placement) for number in range(count)
    }


def finish(run: Pretrain) -> dict[str, Any]:
    storage.write_json(storage.join(run_folder(run), SUMMARY), summary := {"name": str(run.name)})
    return summary


def lose_process_once(run: Pretrain, report: Report) -> dict[str, Any]:
    """Finish every run; the process of the second run is lost at its first try."""
    tried = Path(run.output) / f"tried-{run.name}"
    if run.name == "r1" and not tried.exists():
        tried.touch()
        os._exit(1)
    report(f"trained by {os.getpid()}")
    return finish(run)


def fail_second(run: Pretrain, report: Report) -> dict[str, Any]:
    """Finish the first run, fail the second run, and train all others for ever."""
    if run.name == "r0":
        return finish(run)
    started = Path(run.output) / "started"
    if run.name == "r1":
        while not started.exists():
            time.sleep(0.05)
        raise ConfigError("model.width (7) cannot work")
    started.write_text(str(os.getpid()))
    while True:
        report("training")
        time.sleep(0.1)


@pytest.fixture
def tune_settings() -> None:
    """Set the environment variables with which Tune does not print and does not handle signals."""
    connect(None)


def test_a_run_whose_process_is_lost_is_tried_again(tmp_path: Path, tune_settings: None) -> None:
    lines: list[str] = []
    found = train_runs(runs_of(tmp_path, 2), 2, lose_process_once, lines.append)
    assert found == [{"name": "r0"}, {"name": "r1"}]
    assert any(line.startswith("run 1: the process that drove the run is lost") for line in lines)
    assert sum("trained by" in line for line in lines) == 2


def test_the_first_error_of_a_run_stops_the_others(tmp_path: Path, tune_settings: None) -> None:
    with pytest.raises(ConfigError, match=r"^model.width \(7\) cannot work$"):
        train_runs(runs_of(tmp_path, 4), 2, fail_second, lambda line: None)
    assert (tmp_path / "runs" / "r0" / SUMMARY).exists() and not (tmp_path / "runs" / "r3").exists()
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int((tmp_path / "started").read_text())).wait(30)
