"""An ablation in MLflow and in its folder."""

import json
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from pipeline.ablation.command import read_ablate
from pipeline.ablation.outcomes import Outcome
from pipeline.ablation.picture import draw
from pipeline.ablation.publishing import publish
from pipeline.ablation.results import AblationResult, result_of
from pipeline.ablation.runs import RUNS, log_result, tracked_ablation
from pipeline.ablation.variants import variants_of
from pipeline.config.ablate import Ablate
from pipeline.reporting import no_op
from tests.conftest import new_store

PLL = "BLiMP PLL"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One store for all tests of this module."""
    return new_store(tmp_path_factory.mktemp("mlflow"))


def config(tmp_path: Path) -> Ablate:
    return read_ablate(["dropout", "--tokens", "1M", "--output", str(tmp_path)], "about")


def result(config: Ablate, seeds: int, score: str = PLL) -> AblationResult:
    runs = [
        [
            Outcome(
                run=f"{variant}-{seed}",
                seed=seed,
                steps=9,
                tokens=99,
                seconds=1.0,
                tokens_per_second=99.0,
                epochs=1,
                trained=True,
                mlflow_run_id=f"{variant}{seed}",
                scores={score: (5 + variant + seed * (1 + variant)) / 10},
            )
            for seed in range(seeds)
        ]
        for variant in range(2)
    ]
    return result_of("dropout-0", config.budget, variants_of(config), runs)


def test_a_run_has_the_table_and_a_child_per_variant_its_medians_and_more_seeds_go_on(tmp_path: Path, uri: str) -> None:
    asked, folder = config(tmp_path), str(tmp_path / "ablations")
    ids = set()
    for seeds in (1, 3):
        known = result(asked, seeds)
        with tracked_ablation(asked, "dropout-0", folder, uri, no_op) as run:
            log_result(run, known, draw(known))
        ids |= {run.mlflow.run_id, *run.children.values()}
    assert len(ids) == 3
    client = MlflowClient(tracking_uri=uri)
    parent, child = client.get_run(run.mlflow.run_id), client.get_run(run.children["0"])
    assert {artifact.path for artifact in client.list_artifacts(run.mlflow.run_id)} == {
        "table.md",
        "ablation.json",
        "differences.png",
    }
    assert (parent.info.status, parent.data.params["tokens"], parent.data.params["model.width"]) == (
        "FINISHED",
        "1M",
        "128",
    )
    assert (child.info.status, child.data.params["variant"], child.data.params["model.hidden_dropout"]) == (
        "FINISHED",
        "0",
        "0.0",
    )
    assert child.data.tags[RUNS] == "10, 11, 12" and child.data.tags["mlflow.parentRunId"] == run.mlflow.run_id
    assert child.data.metrics == pytest.approx(
        {
            f"{PLL}/{name}": value
            for name, value in (("median", 0.8), ("lowest", 0.6), ("highest", 1.0), ("difference", 0.2))
        }
    )


def test_names_of_scores_are_logged_as_mlflow_takes_them(tmp_path: Path, uri: str) -> None:
    asked = config(tmp_path)
    known = result(asked, 1, "mind dev ndcg@10")
    with tracked_ablation(asked, "dropout-0", str(tmp_path / "ablations"), uri, no_op) as run:
        log_result(run, known, draw(known))
    child = MlflowClient(tracking_uri=uri).get_run(run.children["0"])
    assert "mind dev ndcg_10/median" in child.data.metrics


def test_an_ablation_that_stops_is_told_so(tmp_path: Path, uri: str) -> None:
    for error, status in ((KeyboardInterrupt, "KILLED"), (ValueError, "FAILED")):
        with pytest.raises(error), tracked_ablation(config(tmp_path), "dropout-0", str(tmp_path), uri, no_op) as run:
            raise error
        assert MlflowClient(tracking_uri=uri).get_run(run.mlflow.run_id).info.status == status


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_an_mlflow_that_is_away_at_the_end_is_reported(tmp_path: Path, error: type[BaseException] | None) -> None:
    asked, said, uri = config(tmp_path), list[str](), new_store(tmp_path)
    known = result(asked, 1)
    with pytest.raises(error) if error else nullcontext():
        with tracked_ablation(asked, "dropout-0", str(tmp_path), uri, said.append) as run:
            with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
                database.execute("ALTER TABLE runs RENAME TO elsewhere")
            log_result(run, known, draw(known))
            if error:
                raise error
    assert [line.partition(" could not be logged to MLflow: ")[0] for line in said] == [
        "the result",
        "the ablation's end",
    ]


def test_table_picture_and_values_are_written(tmp_path: Path) -> None:
    known = result(config(tmp_path), 3)
    (line,) = publish(known, draw(known), str(tmp_path / "out"))
    assert str(tmp_path / "out") in line
    assert (tmp_path / "out/differences.png").read_bytes().startswith(b"\x89PNG") and b"<svg" in (
        tmp_path / "out/differences.svg"
    ).read_bytes()
    values = json.loads((tmp_path / "out/ablation.json").read_text())
    low, high = values["variants"][1]["scores"][PLL]["interval"]
    assert low < 0.2 < high and values["seeds"] == [0, 1, 2] and values["equal"] == "1M tokens"
    table = (tmp_path / "out/table.md").read_text()
    assert "| 0 | 9 | 99 | 0.0 | 0.111 | 99 | 80.0 (60.0 to 100.0)<br>+20.0 [" in table and table.startswith(
        "# Ablation dropout-0\n"
    )
