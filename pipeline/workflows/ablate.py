"""Compare variants of one pretraining: train each with the same seeds, score the runs, and pair them by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.ablation.budget import streams_of, with_time_budget, with_token_budget
from pipeline.ablation.outcomes import FOLDER, Outcome, outcome_of, require_budget
from pipeline.ablation.publishing import publish
from pipeline.ablation.results import result_of
from pipeline.ablation.room import room_for
from pipeline.ablation.runs import log_result, tracked_ablation
from pipeline.ablation.table import table_lines
from pipeline.ablation.trainings import train_runs
from pipeline.ablation.variants import Variant, ablation_name, variants_of
from pipeline.config.ablate import Ablate
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.files import storage
from pipeline.grid import tune
from pipeline.on_ray import cluster
from pipeline.reporting import Report
from pipeline.saved.run import SUMMARY, run_folder
from pipeline.tracking.runs import tracking_uri
from pipeline.workflows.finetune import finetune
from pipeline.workflows.pretrain import pretrain
from pipeline.workflows.score import score


@cluster.ray_errors_as_cluster_lost()
def ablate(config: Ablate, report: Report) -> list[str]:
    """Pretrain and score each pair of variant and seed that has no result yet; return the result table's lines.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    variants = variants_of(config)  # first, because run names depend on the locations as given, not on absolute ones
    name, config = ablation_name(config, variants), with_absolute_locations(config)
    folder, uri = storage.join(config.output, FOLDER, name), tracking_uri(config.tracking.uri, config.output)
    sized = _with_budget(config, variants, report)
    with tracked_ablation(config, name, folder, uri, report) as run:
        result = result_of(name, config.budget, sized, _run_all(config, sized, uri, report))
        from pipeline.ablation.picture import draw  # imported here, so that runs start without matplotlib

        figure = draw(result)
        written = publish(result, figure, folder)
        log_result(run, result, figure)
    return [*table_lines(result), *written]


def _with_budget(config: Ablate, variants: Sequence[Variant], report: Report) -> list[Variant]:
    """Return the variants, each with the number of steps that fits the budget.

    For a time budget, a short run of each variant is timed. Raises ConfigError if a variant's settings cannot meet a
    token budget, or do not allow this short run.
    """
    tune.connect(config.placement.address)
    room_for(config, config.seeds * len(variants), cluster.live_nodes())  # first, because counting tokens is slow
    if config.token_count is None:
        return with_time_budget(variants, config, pretrain, report)
    cache = storage.join(config.output, FOLDER, "steps")
    return with_token_budget(config, variants, streams_of(variants, report), cache, report)


def _run_all(config: Ablate, variants: Sequence[Variant], uri: str, report: Report) -> list[list[Outcome]]:
    """Train all runs, then score them one by one; return each variant's outcomes, in the order of the seeds."""
    runs = {
        f"{variant.label}, seed {seed}": with_absolute_locations(variant.run(seed))
        for seed in config.all_seeds
        for variant in variants
    }
    require_budget(runs.values())
    summaries = _finished(runs, report)
    first_of_name = {str(run.name): label for label, run in reversed(runs.items())}  # variants may share a run
    missing = {
        label: run
        for label, run in runs.items()
        if str(run.name) not in summaries and first_of_name[str(run.name)] == label
    }
    if missing:
        summaries |= _train_missing(config, missing, uri, report)
    outcomes: list[list[Outcome]] = [[] for _ in variants]
    for seed in config.all_seeds:
        for variant, mine in zip(variants, outcomes, strict=True):
            run = runs[f"{variant.label}, seed {seed}"]
            summary = summaries[str(run.name)]
            mine.append(outcome_of(config, run, summary, score, lambda wanted, say: finetune(wanted, say).rows, report))
    return outcomes


def _finished(runs: Mapping[str, Pretrain], report: Report) -> dict[str, dict[str, Any]]:
    """Return {name: summary} of the finished runs; `runs` is {label: run}.

    Raises ConfigError if a finished run was trained with other settings; `pretrain` checks this.
    """
    summaries: dict[str, dict[str, Any]] = {}
    for label, run in runs.items():
        if str(run.name) not in summaries and storage.exists(storage.join(run_folder(run), SUMMARY)):
            report(f"{label}: run {run.name}")
            summaries[str(run.name)] = pretrain(run, report)
    return summaries


def _train_missing(
    config: Ablate, missing: Mapping[str, Pretrain], uri: str, report: Report
) -> dict[str, dict[str, Any]]:
    """Train the runs {label: run} in this order, several at the same time; return {name of a run: summary}."""
    room = room_for(config, len(missing), cluster.live_nodes())
    report(f"{len(missing)} runs to train, {room.at_once} at a time")
    tracking = replace(config.tracking, uri=uri)  # trials may run on a machine without MLFLOW_TRACKING_URI
    placed = {label: replace(run, placement=room.placement, tracking=tracking) for label, run in missing.items()}
    trained = train_runs(placed, room.at_once, pretrain, report)
    return {str(run.name): summary for run, summary in zip(missing.values(), trained, strict=True)}
