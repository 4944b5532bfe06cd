"""Pretrain a model: sources -> corpus -> vocabulary -> training -> export -> summary."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ray
import torch
from ray.actor import ActorHandle

from pipeline.config.jobs import (
    Pretrain,
    require_offered,
    require_positions,
    require_recordable,
    require_rotated_positions,
    require_trained_parts,
    with_words_rate,
)
from pipeline.config.locations import with_absolute_locations
from pipeline.config.objective import OF_VECTORS, OF_WORDS
from pipeline.corpus.stream import StreamSettings
from pipeline.errors import ConfigError
from pipeline.evaluation.blimp import prepare_pairs, read_pairs
from pipeline.evaluation.heldout import unigram_counts
from pipeline.export.card import Lineage
from pipeline.export.huggingface import export
from pipeline.files import storage
from pipeline.files.locations import is_url
from pipeline.files.locks import locked
from pipeline.files.shared_output import unshared_output
from pipeline.objectives.pretraining import Teacher
from pipeline.objectives.table import trained_parts
from pipeline.on_ray import cluster
from pipeline.reporting import Report, Waiting, beating
from pipeline.saved import run
from pipeline.saved.checkpoints import require_current
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.tracking.runs import tracking_uri
from pipeline.train import longer
from pipeline.train.automatic import ASSUMED, FreeMemory, Where, with_choices
from pipeline.train.hardware import autocast_of, chosen_precision
from pipeline.train.initial import Initial, agreed_model, pads_vocabulary, read_initial
from pipeline.train.job import Job
from pipeline.train.launch import fit, locked_tracker, tracked
from pipeline.train.plan_here import passes_over, passes_warning
from pipeline.train.probe import gpus_of_machine, require_usable_gpus
from pipeline.train.prompts import with_prompts
from pipeline.train.run_data import find_corpus, stream_settings, with_known_steps
from pipeline.train.run_tracking import log_summary, open_mlflow_run, report_lost_points
from pipeline.train.start import Start, os_errors_as_checkpoint_error, read_start, roll_back, word_embeddings
from pipeline.train.summary import progress_reporter
from pipeline.train.teacher import with_teacher

CPU = torch.device("cpu")


@cluster.ray_errors_as_cluster_lost()
def pretrain(config: Pretrain, report: Report) -> dict[str, Any]:
    """Start or continue the run config.name, train it to its end and return its summary.

    If the run is finished, only return its summary. Raises PipelineError, with a one-line message, for everything that
    the user can fix. Writes only below config.output and to the tracking server.
    """
    config, models = _with_models(with_absolute_locations(config), report)
    uri = tracking_uri(config.tracking.uri, config.output)
    paradigms = read_pairs(config.evaluation.blimp, report)
    corpus_or_listing = find_corpus(config, report)
    config, resources, choice, graphs_automatic = _with_workers(config, uri)
    stream = stream_settings(config, corpus_or_listing, models.initial, report)
    config = _for_text(config, stream, report)
    with _driving(config, report) as (tracker, begin):
        start = read_start(config, stream, models.initial, models.teacher)
        if start.summary is not None:
            report(f"run {config.name} is finished; another --name, --seed or setting starts another run")
            return start.summary
        start = roll_back(config, start, report)
        words = word_embeddings(config, stream, start, report)
        job = Job(
            config=config,
            folder=start.folder,
            stream=stream,
            initial=models.initial,
            words=words,
            teacher=models.teacher,
            blimp=prepare_pairs(
                paradigms,
                partial(unigram_counts, stream.corpus, CachedTokenizer(stream.vocabulary), stream.vocabulary.size),
                stream.vocabulary,
                config.model.maximum_positions,
            ),
            tracker=tracker,
            attempt=begin(start.done),  # also records the step, before anything is published
            graphs_automatic=graphs_automatic,
        )
        return _train_and_export(job, resources, uri, start, choice, report)


def _for_text(config: Pretrain, stream: StreamSettings, report: Report) -> Pretrain:
    """Return the settings, completed from the text: padding, and the steps of tokens or epochs."""
    with os_errors_as_checkpoint_error(config):
        config = with_known_steps(config, stream, report)
    return replace(config, model=config.model.for_padding(stream.vocabulary.pad_id))


def _train_and_export(
    job: Job, resources: cluster.WorkerResources, uri: str, start: Start, choice: str | None, report: Report
) -> dict[str, Any]:
    """Train to the last step, export the model, and write and return the summary, all tracked in MLflow.

    `choice`: a line about the settings that were chosen for a new run, if any.
    """
    config, stream = job.config, job.stream
    mlflow = open_mlflow_run(config, uri, stream, start)
    report(
        f"run {config.name}: {'continuing' if start.continuing else 'starting'}, {config.steps:,} steps on "
        f"{config.worker_range} {'GPU' if resources.gpu else 'CPU'} worker{'s' * (config.worker_range.most > 1)}"
    )
    if not start.continuing:
        for line in (passes_warning(config, passes_over(config, stream.corpus, stream.vocabulary)), choice):
            if line is not None:
                report(line)
    waiting = Waiting(report, "starting the workers and reading the first texts")
    progress = progress_reporter(config.steps, start.done, waiting.end)
    with tracked(job.tracker, mlflow, report, progress), beating(waiting.beat):
        report_lost_points(config, job.tracker, mlflow, start, report)
        summary = fit(job, resources) | {
            "name": str(config.name),
            "mlflow_uri": mlflow.uri,
            "mlflow_run_id": mlflow.run_id,
            "mlflow_experiment_id": mlflow.experiment_id,
        }
        require_current(job.folder, job.attempt)
        summary |= _export(job, start, summary)
        require_current(job.folder, job.attempt)
        storage.write_json(storage.join(start.folder, run.SUMMARY), summary)
        log_summary(config, job.tracker, stream, start, summary)
        _log_pictures(job, summary, report)
    return summary


def _log_pictures(job: Job, summary: dict[str, Any], report: Report) -> None:
    """Draw the pictures of the finished run and send them to the tracker. A failure is reported, but not raised.

    The tracker itself draws the learning curve and the throughput.
    """
    from pipeline.show.run_end import as_png, end_pictures  # imported here, so that runs start without matplotlib

    try:
        figures = end_pictures(summary, job.stream.corpus)
        ray.get(job.tracker.add_pictures.remote({path: as_png(figure) for path, figure in figures.items()}))
    except Exception as error:  # the run and its summary are complete
        report(f"no pictures of the finished run: {storage.first_line(error)}")


def _export(job: Job, start: Start, summary: dict[str, Any]) -> dict[str, Any]:
    """Export the last checkpoint; return the summary's entries about the export and the initial model."""
    config, corpus = job.config, job.stream.corpus
    if not storage.exists(storage.join(summary["checkpoint"], storage.MANIFEST)):
        raise unshared_output(config.output, f"checkpoint {summary['checkpoint']} is missing on the driver's machine")
    entries = {"export": storage.join(start.folder, "export"), "init": config.init}
    if config.objective.teacher_gives:
        entries["teacher"] = config.objective.teacher
    recorded = run.record(start.identity, config.steps, summary["mlflow_run_id"], corpus.folder)
    audited = run.read_audit(start.folder)
    lineage = Lineage(name=str(config.name), recorded=recorded, summary=summary | entries, corpus=corpus, audit=audited)
    return entries | {"export_check": export(summary["checkpoint"], entries["export"], lineage)}


@contextmanager
def _driving(config: Pretrain, report: Report) -> Generator[tuple[ActorHandle, Callable[[int], int]]]:
    """Lock the run for this driver; yield its tracker, and what returns the driver's attempt, given its first step.

    The attempt of a run on disk is 0. Raises ConfigError if another process drives the run.
    """
    folder = run.run_folder(config)
    with locked_tracker(folder) as tracker, os_errors_as_checkpoint_error(config):
        if not is_url(folder):
            with locked(folder):
                yield tracker, lambda step: 0
            return
        from pipeline.tracking.attempt import fenced  # only runs in an object store have a lease

        with fenced(folder, tracker, report) as attempt:
            yield tracker, attempt.begin if attempt else lambda step: 0


@dataclass(frozen=True, kw_only=True)
class _Models:
    """Published models that a run uses; None for a model that the settings do not name."""

    initial: Initial | None
    teacher: Teacher | None


def _with_models(config: Pretrain, report: Report) -> tuple[Pretrain, _Models]:
    """Return the settings, completed from the models that they name, and these models."""
    config, initial = _with_initial_model(config, report)
    config = with_prompts(config, report)
    teacher = None
    if given := config.objective.teacher_gives:
        config, teacher = TEACHERS[given](config, initial, report)
    return config, _Models(initial=initial, teacher=teacher)


def _with_vector_teacher(config: Pretrain, initial: Initial | None, report: Report) -> tuple[Pretrain, Teacher]:
    """Return the settings, completed from the teacher of text vectors, and the teacher."""
    from pipeline.embed.teacher import with_vector_teacher  # loads what computes vectors: other runs do not need it

    return with_vector_teacher(config, report)


TEACHERS: dict[str, Callable[[Pretrain, Initial | None, Report], tuple[Pretrain, Teacher]]] = {
    OF_WORDS: with_teacher,
    OF_VECTORS: _with_vector_teacher,
}
"""AnyObjective.teacher_gives -> the function that reads the teacher."""


def _with_initial_model(config: Pretrain, report: Report) -> tuple[Pretrain, Initial | None]:
    """Return the settings, completed from the initial model, and the initial model itself.

    Without config.init, the run starts from random weights, and the initial model is None.
    """
    config = with_words_rate(config)
    storage.require_writable("output", config.output)
    if not config.init:
        return config, None
    used = trained_parts(config.objective, config.sampling)
    initial = read_initial(
        config.init,
        config.vocabulary,
        config.output,
        report,
        used=used,
        shares_embeddings=config.objective.shares_embeddings,
        keeps_padding=pads_vocabulary(config.objective),
    )
    config = replace(config, model=agreed_model(config.model, initial, config.init))
    if copied := longer.description(initial.model, config.model):
        report(copied)
    if initial.generator is not None:
        config.objective.require_generator(config.model, initial.generator, str(config.init))
    require_offered(config)
    require_trained_parts(config)
    require_positions(config)
    require_rotated_positions(config)
    require_recordable(config)
    return config, initial


def _with_workers(config: Pretrain, uri: str) -> tuple[Pretrain, cluster.WorkerResources, str | None, bool]:
    """Join the cluster; return the settings as chosen for its workers, their resources, and a line about the choice.

    Also return whether placement.graphs was auto.
    """
    resources, memory = _join_cluster(config, uri)
    with os_errors_as_checkpoint_error(config):
        begun = run.read_run(run.run_folder(config))
    gpus = gpus_of_machine(config.placement)
    where = Where(on_gpus=resources.gpu, memory=memory or ASSUMED, gpus=gpus)
    chosen, choice = with_choices(config, begun and begun["identity"], where)
    return chosen, resources, choice, config.placement.graphs == "auto"


def _join_cluster(config: Pretrain, uri: str) -> tuple[cluster.WorkerResources, FreeMemory | None]:
    """Join or start Ray; return the resources of each worker, and the least free memory of the GPUs that answered.

    Raises ConfigError if the run does not fit into the cluster, or if MLflow uses a file on one machine and the cluster
    has several machines.
    """
    cluster.connect(config.placement.address)
    if uri.startswith("sqlite:") and cluster.count_nodes() > 1:
        raise ConfigError(
            f"tracking.uri ({uri}) is a file on one machine, but the cluster has {cluster.count_nodes()} machines: "
            "start a server (mlflow server) and set MLFLOW_TRACKING_URI"
        )
    resources = cluster.worker_resources(config.placement, config.worker_range)
    if resources.gpu:
        return resources, require_usable_gpus(config.placement.worker_resource)
    autocast_of(chosen_precision(config.placement, CPU), CPU)  # raises ConfigError for a format that needs a GPU
    return resources, None
