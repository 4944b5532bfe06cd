"""Track a run in MLflow from its driver: log the parameters at the start, report lost points, and log the summary."""

from typing import Any

import ray
from ray.actor import ActorHandle

from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain
from pipeline.corpus.prepared import COUNTED, Corpus
from pipeline.corpus.stream import StreamSettings
from pipeline.evaluation.evaluate import baseline_metrics
from pipeline.reporting import Report
from pipeline.saved import run
from pipeline.tracking.runs import DESCRIPTION, MlflowRun, corpus_inputs, open_run
from pipeline.train.start import Start
from pipeline.train.summary import description, summary_markdown

FIGURES = (  # entries of the summary that are logged as metrics
    "tokens_per_second",
    "data_wait_percent",
    "training_seconds",
    "step_milliseconds_95th",
    "peak_memory_gigabytes",
)
UTILISATION = "model_flops_utilisation_percent"  # also logged, if the device's peak is known


def open_mlflow_run(config: Pretrain, uri: str, stream: StreamSettings, start: Start) -> MlflowRun:
    """Continue or create the MLflow run of a run, and record its id in run.json.

    A new MLflow run gets parameters, tags and data sets.
    """
    tags = {
        "corpus": stream.corpus.fingerprint,
        "vocabulary": stream.vocabulary.fingerprint,
        "run_folder": start.folder,
    }
    tags |= {"continues": start.continues} if start.continues else {}
    mlflow = open_run(
        uri,
        config.tracking.experiment,
        str(config.name),
        start.mlflow_run_id,
        flatten(config) | _corpus_parameters(stream.corpus) | tags,
        tags | {DESCRIPTION: _description(config, stream, start)},
        corpus_inputs(stream.corpus),
    )
    run.write_run(start.folder, start.identity, config.steps, mlflow.run_id, stream.corpus.folder, config.steps_from)
    return mlflow


def _description(config: Pretrain, stream: StreamSettings, start: Start) -> str:
    """Return the part of a run's description (Markdown) that is known before its first step."""
    return description(config, stream.corpus, stream.vocabulary.size, start.folder)


def _corpus_parameters(corpus: Corpus) -> dict[str, Any]:
    """Return MLflow parameters of a corpus: the counts of each source, and the count of each drop reason."""
    names = ("weight", "files", *COUNTED)
    numbered = enumerate(
        {"source": location} | {name: about[name] for name in names} for location, about in corpus.sources.items()
    )
    sources = {f"corpus.{number}.{name}": value for number, about in numbered for name, value in about.items()}
    return sources | {f"corpus.dropped.{reason}": count for reason, count in corpus.dropped.items()}


def report_lost_points(config: Pretrain, tracker: ActorHandle, mlflow: MlflowRun, start: Start, report: Report) -> None:
    """Report a line if MLflow no longer has the run, or if losses of logged steps are missing in MLflow."""
    if start.mlflow_run_id and mlflow.run_id != start.mlflow_run_id:
        report(
            f"MLflow ({mlflow.uri}) does not have the MLflow run {start.mlflow_run_id} of run {config.name}: "
            f"a new MLflow run begins after step {start.done:,}"
        )
    elif start.mlflow_run_id and (gone := ray.get(tracker.missing_losses.remote(start.done, config.tracking.every))):
        report(
            f"MLflow has no loss for {gone:,} of the logged steps up to {start.done:,}: "
            "the driver process ended before it sent these losses, or MLflow was unavailable until the driver ended"
        )


def log_summary(
    config: Pretrain, tracker: ActorHandle, stream: StreamSettings, start: Start, summary: dict[str, Any]
) -> None:
    """Send the summary's figures and locations to the tracker, and append the summary to the run's description."""
    names = FIGURES if summary[UTILISATION] is None else (*FIGURES, UTILISATION)
    figures = {f"summary/{name}": summary[name] for name in names}
    ray.get(tracker.log.remote(summary["steps"], figures | baseline_metrics(summary["baselines"])))
    tags = {name: summary[name] for name in ("checkpoint", "export", "export_check")}
    about = f"{_description(config, stream, start)}\n{summary_markdown(summary)}"
    ray.get(tracker.tag.remote(tags | {DESCRIPTION: about}))
