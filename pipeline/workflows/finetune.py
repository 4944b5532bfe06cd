"""Fine-tune an encoder: try settings on Ray Tune -> train the best ones with other seeds -> table, models, MLflow."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipeline.config.finetune import Finetune
from pipeline.config.locations import with_absolute_locations
from pipeline.errors import DataError, PipelineError
from pipeline.files import storage
from pipeline.files.shared_output import report_shared_output
from pipeline.finetune.live import Live
from pipeline.finetune.problems import Problem, data_of
from pipeline.finetune.settings import warnings
from pipeline.finetune.submission import submit
from pipeline.finetune.table import Reported, glue_line, table
from pipeline.grid import runs, tune
from pipeline.grid.closing import closing_lines
from pipeline.grid.inputs import GridInputs, read_inputs
from pipeline.grid.planning import grid_name, grid_recipe, planned
from pipeline.grid.precision import with_precision
from pipeline.grid.teaching import with_answers
from pipeline.grid.testing import predict_settings, score_settings
from pipeline.grid.waves import run_waves
from pipeline.on_ray import cluster
from pipeline.reporting import Report
from pipeline.tasks.known import GLUE
from pipeline.tasks.task import Task
from pipeline.tracking.runs import tracking_uri
from pipeline.train.probe import require_usable_gpus
from pipeline.workflows.predict import predict
from pipeline.workflows.score import score


@dataclass(frozen=True, kw_only=True)
class FinetuneResult:
    """Result of a fine-tuning job."""

    rows: list[Reported]
    """Rows of the result table."""
    models: dict[str, str]
    """Task -> folder of its best model on the development split."""
    closing: list[str]
    """Lines that say how to use the models and where to see the trials."""
    dropout: tuple[float, float]
    """Hidden and attention dropout of the trials, unless their search tries dropouts."""


@cluster.ray_errors_as_cluster_lost()
def finetune(config: Finetune, report: Report) -> FinetuneResult:
    """Run every trial that has no result yet, report the result table, and return its rows and the best models.

    Raises PipelineError, with a one-line message and before any training, for everything that the user can fix.
    """
    begun = time.monotonic()
    inputs = read_inputs(with_absolute_locations(config), report)
    config, problems = inputs.config, inputs.problems
    uri = tracking_uri(config.mlflow_uri, config.output, "mlflow_uri")
    computed = _join_cluster(inputs, report)
    inputs = with_answers(inputs, report)
    recipe = grid_recipe(config, inputs.problems, inputs.initial, inputs.settings, report)
    config, computed = replace(config, recipe=recipe), replace(computed, recipe=recipe)
    inputs = replace(inputs, config=config)
    grid = planned(computed, inputs.initial, inputs.cuttings, inputs.settings, begun, report)
    parent, live = _open_grid_run(uri, inputs, report), Live(report)
    with runs.end_run_with_status(parent, live):
        rows, models = run_waves(grid, parent, live, report)
        _report_table(rows, inputs, parent, report)
        _use_models(config, problems, models, parent, report)
    return FinetuneResult(
        rows=rows,
        models=models,
        closing=closing_lines(config, problems, models, parent),
        dropout=recipe.dropouts(inputs.initial.model),
    )


def _join_cluster(inputs: GridInputs, report: Report) -> Finetune:
    """Join or start Ray, report warnings about the settings, and return the settings with the precision of the trials.

    Raises ConfigError if the trials do not fit into the cluster.
    """
    config, width = inputs.config, inputs.initial.model.width
    tune.connect(config.placement.address)
    report_shared_output(config.output, cluster.count_nodes() > 1 or config.placement.autoscaled, report)
    for line in warnings(config, inputs.settings, inputs.initial.model):
        report(line)
    if (asked := tune.resources(config)).get("GPU"):
        require_usable_gpus()
    return with_precision(config, width, asked, report)


def _open_grid_run(uri: str, inputs: GridInputs, report: Report) -> runs.GridRun:
    """Open the MLflow run that groups all trials, and record it in the output folder."""
    name = grid_name(inputs.config, inputs.problems, inputs.initial)
    parent = runs.open_grid(uri, inputs.config, name, inputs.initial)
    location = storage.join(inputs.config.output, "finetune", "grids", f"{name}.mlflow.json")
    runs.record_run(parent, location, report)
    return parent


def _report_table(rows: list[Reported], inputs: GridInputs, parent: runs.GridRun, report: Report) -> None:
    """Report the result table, and log it to MLflow."""
    text = table(rows, inputs.initial.model)
    runs.log_table(parent, text, rows)
    report("\n".join(["", text, *filter(None, [glue_line(rows, GLUE)]), ""]))


def _use_models(
    config: Finetune, problems: Mapping[str, Problem], models: Mapping[str, str], parent: runs.GridRun, report: Report
) -> None:
    """Score and predict the test file, log the best models to MLflow, and predict GLUE's test splits."""
    for name, folder in models.items():
        score_and_answer(config, problems[name].task, folder, parent, report)
        runs.log_best(parent, config, problems[name], name, folder, len(models) > 1, report)
    try:
        submit(replace(config, data=data_of(config)), problems, models, report)
    except DataError as error:  # a bad GLUE file must not fail a job whose scores are reported
        report(f"no GLUE submission file: {error}")


def score_and_answer(config: Finetune, task: Task, model: str, parent: runs.GridRun, report: Report) -> None:
    """Score the test file, if there is one, log the scores to MLflow, and write predictions for the file."""
    if config.test is None:
        return
    report(f"scores of the test file, by the best model on dev ({model}):")
    scores = score(score_settings(config, task, model), report)
    runs.log_scores(parent, task.name, "test", scores)
    try:
        predict(predict_settings(config, task, model), report)
    except PipelineError as error:  # a failed prediction must not fail a job whose scores are reported
        report(f"no predictions for the test file: {error}")
