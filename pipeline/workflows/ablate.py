"""Compare variants of one pretraining: train each with the same seeds, score the runs, and pair them by seed."""

from collections.abc import Sequence

from pipeline import cluster, storage
from pipeline.ablation.budget import streams_of, with_time_budget, with_token_budget
from pipeline.ablation.outcomes import FOLDER, Outcome, outcome_of
from pipeline.ablation.picture import draw
from pipeline.ablation.publishing import publish
from pipeline.ablation.results import result_of
from pipeline.ablation.runs import log_result, tracked_ablation
from pipeline.ablation.table import table_lines
from pipeline.ablation.variants import Variant, ablation_name, variants_of
from pipeline.config.ablate import Ablate
from pipeline.config.locations import with_absolute_locations
from pipeline.reporting import Report
from pipeline.train.tracking import tracking_uri
from pipeline.workflows.finetune import finetune
from pipeline.workflows.pretrain import pretrain
from pipeline.workflows.score import score


@cluster.ray_errors_as_cluster_lost()
def ablate(config: Ablate, report: Report) -> list[str]:
    """Pretrain and score every variant with every seed that has no result yet; return the lines of the result table.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    variants = variants_of(config)  # with locations as given, from which pretraining names its runs
    name, config = ablation_name(config, variants), with_absolute_locations(config)
    folder, uri = storage.join(config.output, FOLDER, name), tracking_uri(config.tracking.uri, config.output)
    sized = _with_budget(config, variants, report)
    with tracked_ablation(config, name, folder, uri) as run:
        result = result_of(name, config.budget, sized, _run_all(config, sized, report))
        figure = draw(result)
        written = publish(result, figure, folder)
        log_result(run, result, figure)
    return [*table_lines(result), *written]


def _with_budget(config: Ablate, variants: Sequence[Variant], report: Report) -> list[Variant]:
    """Return the variants with their steps. Raises ConfigError if a variant's settings do not allow these."""
    cluster.connect(config.placement.address)
    if config.token_count is None:
        return with_time_budget(variants, config, pretrain, report)
    cache = storage.join(config.output, FOLDER, "steps")
    return with_token_budget(config, variants, streams_of(variants, report), cache, report)


def _run_all(config: Ablate, variants: Sequence[Variant], report: Report) -> list[list[Outcome]]:
    """Train and score every run, one after another, all variants of a seed first; return each variant's outcomes."""
    outcomes: list[list[Outcome]] = [[] for _ in variants]
    for seed in config.all_seeds:
        for variant, mine in zip(variants, outcomes, strict=True):
            run = variant.run(seed)
            report(f"{variant.label}, seed {seed}: run {run.name}")
            summary = pretrain(run, report)
            mine.append(outcome_of(config, run, summary, score, lambda wanted, say: finetune(wanted, say).rows, report))
    return outcomes
