"""Reports of trainers that go to MLflow, and the runs that they go to, without Ray."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import ray
from mlflow.tracking import MlflowClient
from pyarrow.fs import LocalFileSystem
from ray.train import RunConfig

from pipeline.errors import ConfigError
from pipeline.tracking.tracker import Tracker
from pipeline.tracking.trainer import continued_run, kept_reports, reported, tracked
from tests.conftest import new_store


def test_numbers_are_logged_at_the_step_reported_with_them() -> None:
    metrics = {"step": np.int64(7), "loss": np.float32(0.5), "epoch": 2, "done": True, "name": "a", "f1@10": 1.5}
    assert reported(metrics) == (7, {"loss": 0.5, "epoch": 2.0, "done": 1.0, "f1_10": 1.5})
    assert math.isnan(reported({"loss": math.nan, "step": 0})[1]["loss"])


@pytest.mark.parametrize("metrics", [{"loss": 1.0}, {"step": 1.5, "loss": 1.0}, {"step": "1"}])
def test_a_report_needs_the_number_of_its_step(metrics: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r'got "step" (None|1\.5|\'1\'), but MLflow needs the number of the step'):
        reported(metrics)


def test_a_run_folder_continues_its_mlflow_run(tmp_path: Path) -> None:
    uri, folder = new_store(tmp_path), str(tmp_path / "mine")
    first = continued_run(folder, uri, "ray-train", "mine", {"rate": 0.1})
    again = continued_run(folder, uri, "ray-train", "mine", {"rate": 0.2})
    other = continued_run(str(tmp_path / "other"), uri, "ray-train", "mine", {})
    assert again == first and other.run_id != first.run_id
    client = MlflowClient(tracking_uri=uri)
    assert client.get_run(first.run_id).data.params == {"rate": "0.1"}
    client.delete_run(first.run_id)
    assert continued_run(folder, uri, "ray-train", "mine", {}).run_id not in (first.run_id, other.run_id)


def test_reports_are_kept_with_the_checkpoints_and_logged_once(tmp_path: Path) -> None:
    assert [*kept_reports(str(tmp_path / "none"))] == [*kept_reports(str(tmp_path))] == []
    metrics = [{"loss": 9.0}, {"step": 5, "loss": 3.0}, {"step": 10, "loss": 2.0}]  # the first before it was tracked
    kept = [{"version": 0, "checkpoint_dir_name": f"checkpoint_{i}", "metrics": each} for i, each in enumerate(metrics)]
    for each in kept:
        (tmp_path / str(each["checkpoint_dir_name"])).mkdir()
    nothing = ("pending_training_results", "pending_validation_specs", "validated_checkpoint_dir_names")
    ends = ("timed_out_validation_checkpoint_dir_names", "failed_validation_checkpoint_dir_names")
    snapshot = {"ray_version": ray.__version__, "checkpoint_results": kept, "latest_checkpoint_result": kept[-1]}
    snapshot |= {"checkpoint_report_indices": [0, 1, 2], "current_report_index": 3}
    snapshot |= {name: [] for name in (*nothing, *ends)}
    (tmp_path / "checkpoint_manager_snapshot.json").write_text(json.dumps(snapshot))
    assert [*kept_reports(str(tmp_path))] == [(5, {"loss": 3.0}), (10, {"loss": 2.0})]

    run = continued_run(str(tmp_path), new_store(tmp_path), "ray-train", "mine", {})
    killed, again = Tracker("killed before it sent step 10"), Tracker("the next driver")
    killed.start(run)
    killed.log(5, {"loss": 3.0})
    killed.flush()
    again.start(run)
    for step, numbers in (*kept_reports(str(tmp_path)), (10, {"loss": 2.5}), (15, {"loss": 1.0})):  # 10 trained again
        again.log(step, numbers)
    again.finish("FINISHED")
    killed.stopping.set()
    points = MlflowClient(tracking_uri=run.uri).get_metric_history(run.run_id, "loss")
    assert sorted((point.step, point.value) for point in points) == [(5, 3.0), (10, 2.0), (15, 1.0)]


def test_the_folder_must_be_one_that_is_read_without_a_filesystem(tmp_path: Path) -> None:
    config = RunConfig(name="mine", storage_path=str(tmp_path), storage_filesystem=LocalFileSystem())
    with pytest.raises(ConfigError, match="give storage_path as a local path, s3:// or gs://"), tracked(config):
        pass
