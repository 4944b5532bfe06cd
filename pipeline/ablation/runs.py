"""An ablation in MLflow: a run per ablation with its table and picture, and a child run per variant."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mlflow.tracking import MlflowClient

from pipeline.ablation.results import AblationResult, ResultRow
from pipeline.ablation.table import as_json, markdown
from pipeline.config.ablate import Ablate
from pipeline.config.flat import flatten
from pipeline.files import storage
from pipeline.grid.runs import metric_names, report_failure
from pipeline.reporting import Report
from pipeline.tracking.runs import DESCRIPTION, MlflowRun, open_client, open_run

if TYPE_CHECKING:  # an ablation should start without matplotlib
    from matplotlib.figure import Figure

EXPERIMENT, PARENT, RUNS = "ablation", "mlflow.parentRunId", "pretraining_runs"
"""RUNS is a tag of each child run. The tag lists the MLflow run ids of the variant's pretraining runs."""
RECORD = "mlflow.json"
"""File in the ablation's folder with the ids of its MLflow runs."""


@dataclass(kw_only=True)
class AblationRun:
    """The MLflow run of an ablation, and its child runs."""

    mlflow: MlflowRun
    name: str
    folder: str
    report: Report
    children: dict[str, str] = field(default_factory=dict)
    """Label of a variant -> id of its child run."""

    @property
    def client(self) -> MlflowClient:
        return open_client(self.mlflow.uri)


@contextmanager
def tracked_ablation(config: Ablate, name: str, folder: str, uri: str, report: Report) -> Generator[AblationRun]:
    """Continue the ablation's MLflow run, or create the run with the ablation's settings as parameters.

    At the end, set the MLflow run's status: FINISHED, FAILED or KILLED. If MLflow does not work then, report it.

    Raises ConfigError if the MLflow server does not work.
    """
    location = storage.join(folder, RECORD)
    record = storage.read_object(location) or {}
    known = record if record.get("uri") == uri else {}
    mlflow = open_run(
        uri, EXPERIMENT, name, known.get("run_id"), flatten(config), {DESCRIPTION: f"Ablation **{name}**"}
    )
    same = mlflow.run_id == known.get("run_id")
    children = dict(known.get("children", {})) if same else {}
    run = AblationRun(mlflow=mlflow, name=name, folder=folder, report=report, children=children)
    _record(run)
    status = "FAILED"
    try:
        yield run
        status = "FINISHED"
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or SIGTERM, for which Ray raises SystemExit
        status = "KILLED"
        raise
    finally:
        with report_failure(report, "the ablation's end"):
            run.client.set_terminated(mlflow.run_id, status)


def _record(run: AblationRun) -> None:
    """Write the ids of the MLflow runs to the ablation's folder."""
    ids = {"uri": run.mlflow.uri, "run_id": run.mlflow.run_id, "children": run.children}
    storage.write_json(storage.join(run.folder, RECORD), ids)


def log_result(run: AblationRun, result: AblationResult, figure: "Figure") -> None:
    """Log the table and the picture to the ablation's run, and each variant's scores to the variant's child run.

    If MLflow does not work, report it.
    """
    with report_failure(run.report, "the result"):
        text, client = markdown(result), run.client
        client.log_text(run.mlflow.run_id, text, "table.md")
        client.log_dict(run.mlflow.run_id, as_json(result), "ablation.json")
        client.log_figure(run.mlflow.run_id, figure, "differences.png")
        client.set_tag(run.mlflow.run_id, DESCRIPTION, text)
        for row in result.rows:
            _log_variant(run, row)


def _log_variant(run: AblationRun, row: ResultRow) -> None:
    """Log the scores of a variant to its child run; create the child run if it does not exist."""
    label, uri = row.variant.label, run.mlflow.uri
    tags = {PARENT: run.mlflow.run_id, RUNS: ", ".join(outcome.mlflow_run_id for outcome in row.outcomes)}
    name, settings = f"{run.name}: {label}", flatten(row.variant.config) | {"variant": label}
    child = open_run(uri, EXPERIMENT, name, run.children.get(label), settings, tags).run_id
    run.children[label] = child
    _record(run)
    run.client.set_tag(child, RUNS, tags[RUNS])
    names = metric_names(row.cells)
    for score, cell in row.cells.items():
        values = {"median": cell.median, "lowest": cell.low, "highest": cell.high}
        values |= {} if cell.difference is None else {"difference": cell.difference.mean}
        for statistic, value in values.items():
            run.client.log_metric(child, f"{names[score]}/{statistic}", value)
    run.client.set_terminated(child, "FINISHED")
