"""Work that earlier code left half done: the same commands finish it, and what was done before is not done again."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from mlflow.tracking import MlflowClient

from jobs import ablate, embed, finetune, predict, pretrain
from tests.kept import commands
from tests.kept.comparing import assert_same
from tests.kept.copying import copy_folders

pytestmark = [pytest.mark.second, pytest.mark.usefixtures("local_ray", "one_thread")]
LOSS_TOLERANCE = 1e-4  # float32 sums in another order


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    target = tmp_path_factory.mktemp("copies") / "kept"
    return target, copy_folders(target)


@pytest.fixture
def expected(copies: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what was recorded, in the folder with the copies."""
    monkeypatch.chdir(copies[0])
    return copies[1]


def times(folder: str) -> dict[Path, int]:
    """Return path -> time of the last change, for all files but locks."""
    return {
        path: path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock"
    }


def assert_untouched(before: dict[Path, int]) -> None:
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_stopped_run_goes_on_to_its_end(expected: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain.main(commands.PRETRAIN) == 0
    assert f"run stopped: continuing, {commands.STEPS} steps" in capsys.readouterr().out
    summary = json.loads(Path("output/runs/stopped/summary.json").read_text())
    client = MlflowClient(tracking_uri=summary["mlflow_uri"])
    for name, points in expected["losses"].items():
        found = {point.step: point.value for point in client.get_metric_history(summary["mlflow_run_id"], name)}
        later = {step: points[str(step)] for step in range(commands.STOPPED + 1, commands.STEPS + 1)}
        assert found == pytest.approx(later, abs=LOSS_TOLERANCE), name


def test_a_stopped_grid_trains_what_is_missing(expected: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    (done,) = Path("output/finetune").glob("moods-*/result.json")
    before = times(str(done.parent))
    assert finetune.main(commands.GRID) == 0
    assert "1 of 2 trials have their results already" in capsys.readouterr().out
    assert_untouched(before)
    results = {path.parent.name: json.loads(path.read_text()) for path in done.parents[1].glob("*/result.json")}
    found = {name: {key: result[key] for key in ("scores", "curve")} for name, result in results.items()}
    assert_same(found, expected["trials"], LOSS_TOLERANCE)


@pytest.mark.long  # a stopped grid and run are beside it, and the unit tests read this ablation
def test_a_stopped_ablation_trains_the_missing_run(expected: dict[str, Any]) -> None:
    before = times("ablation/runs") | times("ablation/ablations/steps")
    assert ablate.main(commands.ABLATE) == 0
    assert_untouched(before)
    summaries = {
        path.parent.name: json.loads(path.read_text()) for path in Path("ablation/runs").glob("*/summary.json")
    }
    found = {name: summary["heldout_after"]["heldout/mlm_loss"] for name, summary in summaries.items()}
    assert found == pytest.approx(expected["ablation"], abs=LOSS_TOLERANCE)
    assert len(list(Path("ablation/ablations").glob("over-*/table.md"))) == 1


def test_stopped_predictions_go_on(expected: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert predict.main(commands.PREDICT) == 0
    assert f"{commands.DONE_PARTS} parts are answered already" in capsys.readouterr().out
    assert_same([json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()], expected["predictions"])


def test_stopped_vectors_go_on(expected: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: time for path, time in times("stopped-vectors").items() if path.suffix == ".parquet"}
    assert embed.main(commands.STOPPED_VECTORS) == 0
    assert f"{commands.DONE_PARTS} parts are embedded already" in capsys.readouterr().out
    assert_untouched(before)
    found, whole = (pq.read_table(f"{folder}/parts").to_pylist() for folder in ("stopped-vectors", "vectors"))
    assert_same(found, whole)
