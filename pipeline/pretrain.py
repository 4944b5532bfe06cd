"""Run pretraining end to end: sources -> corpus -> vocabulary -> training -> export -> summary."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import ray
import torch
from ray.actor import ActorHandle

from pipeline import cluster, storage
from pipeline.config.data import PASSING, NextSentence, Preparation
from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain, with_words_rate
from pipeline.config.locations import BUILTIN, with_absolute_locations
from pipeline.corpus.embeddings import counted_embeddings
from pipeline.corpus.given_vocabulary import given_vocabulary
from pipeline.corpus.prepare import finished_corpus, prepare
from pipeline.corpus.prepared import Corpus, is_prepared, load_corpus
from pipeline.corpus.shards import COUNTED
from pipeline.corpus.stream import StreamSettings, count_rows_if_small, settings_for_phase
from pipeline.corpus.vocabulary import extended_vocabulary, trained_vocabulary
from pipeline.errors import CheckpointError, ConfigError, DataError, listed
from pipeline.export.card import Lineage
from pipeline.export.huggingface import export
from pipeline.text.wordpiece import WordPiece
from pipeline.train import checkpoint, run
from pipeline.train.evaluate import baseline_metrics
from pipeline.train.hardware import autocast_of, chosen_precision
from pipeline.train.initial import Initial, agreed_model, read_initial
from pipeline.train.launch import fit, locked_tracker, tracked
from pipeline.train.probe import require_usable_gpus
from pipeline.train.summary import Pace, description, progress_line, summary_markdown
from pipeline.train.tracking import DESCRIPTION, corpus_inputs, open_run, tracking_uri
from pipeline.train.worker import Job

Report = Callable[[str], None]
CPU = torch.device("cpu")


@cluster.ray_errors_as_cluster_lost()
def pretrain(config: Pretrain, report: Report) -> dict[str, Any]:
    """Run, or continue, the named run to its end and return its summary; for a finished run, only return the summary.

    Raises PipelineError in one line for everything that the user can fix. Writes only below config.output and to the
    tracking server.
    """
    config = with_words_rate(with_absolute_locations(config))
    folder = run.run_folder(config)
    storage.require_writable("output", config.output)
    initial = read_initial(config, report) if config.init else None
    if initial:
        config = replace(config, model=agreed_model(config.model, initial, str(config.init)))
    uri = tracking_uri(config.tracking, config.output)
    _refuse_early(config)
    cluster.connect(config.placement.address)
    if uri.startswith("sqlite:") and cluster.count_nodes() > 1:
        raise ConfigError(
            f"tracking.uri ({uri}) is a file on one machine and the cluster has {cluster.count_nodes()}: "
            "start a server (mlflow server) and set MLFLOW_TRACKING_URI"
        )
    resources = cluster.worker_resources(config.placement, config.worker_range)
    if resources.gpu:
        require_usable_gpus(config.placement.worker_resource)
    else:
        autocast_of(chosen_precision(config.placement, CPU), CPU)  # refuses formats that need a GPU
    stream = stream_settings(config, initial, report)
    wanted = run.identity(config, stream.corpus, stream.vocabulary, initial.fingerprint if initial else None)
    with locked_tracker(folder) as tracker, storage.locked(folder), os_errors_as_checkpoint_error(config):
        recorded = run.read_run(folder)
        if recorded is not None:
            run.refuse_differences(config, recorded["identity"], wanted)
        run.save_run_vocabulary(folder, stream.vocabulary, config.model.maximum_positions)
        summary = run.read_summary(folder)
        if run.is_finished(summary, config):
            report(f"run {config.name} is finished; another --name, --seed or setting starts another run")
            return summary
        try:
            newest = checkpoint.newest_sound(
                folder, lambda message: None
            )  # a damaged run is refused before anything starts
        except OSError as error:
            raise CheckpointError(
                f"the checkpoints of run {config.name} cannot be read: {storage.first_line(error)}; "
                "the same command tries again"
            ) from error
        done = checkpoint.read_state(newest).step if newest else 0
        if done > config.steps:
            raise ConfigError(
                f"steps ({config.steps}) is less than the {done} that run {config.name} has done: "
                f"ask for {done} or more, or choose another --name"
            )
        tags = {"corpus": stream.corpus.fingerprint, "vocabulary": stream.vocabulary.fingerprint, "run_folder": folder}
        tracked_as = recorded and recorded["mlflow_run_id"]
        if recorded and (back := run.rollback_step(config, recorded, done)) is not None:
            checkpoint.roll_back_to(folder, back)
            report(
                f"run {config.name}: going back from step {done} to {back}, where it began to decay; "
                "tracked as another MLflow run from there"
            )
            tags, tracked_as = tags | {"continues": f"{tracked_as} from step {back}"}, None
        words = None
        if config.word_embeddings == "cooccurrence" and not newest:
            words = counted_embeddings(
                stream.corpus,
                WordPiece(stream.vocabulary, stream.table_chunks),
                config.model.width,
                config.output,
                report,
            )
        about = description(config, stream.corpus, stream.vocabulary.size, folder)
        parameters = flatten(config) | _corpus_parameters(stream.corpus) | tags
        mlflow = open_run(
            uri,
            config.tracking.experiment,
            str(config.name),
            tracked_as,
            parameters,
            tags | {DESCRIPTION: about},
            corpus_inputs(stream.corpus),
        )
        run.write_run(folder, wanted, config.steps, mlflow.run_id, stream.corpus.folder)
        report(
            f"run {config.name}: {'continuing' if newest else 'starting'}, {config.steps:,} steps on "
            f"{config.worker_range} {'GPU' if resources.gpu else 'CPU'} worker{'s' * (config.worker_range.most > 1)}"
        )
        pace = Pace(config.steps, done)

        def show(step: int, metrics: dict[str, float]) -> None:
            left = pace.seconds_left(step, metrics["speed/step_milliseconds"])
            report(progress_line(config.steps, step, metrics, left))

        job = Job(config=config, folder=folder, stream=stream, initial=initial, words=words, tracker=tracker)
        with tracked(tracker, mlflow, report, show):
            if tracked_as and mlflow.run_id != tracked_as:
                report(
                    f"MLflow ({mlflow.uri}) does not have the run {tracked_as} that run {config.name} had: "
                    f"a new one begins here, after step {done:,}"
                )
            elif tracked_as and (gone := ray.get(tracker.missing_losses.remote(done, config.tracking.every))):
                report(
                    f"MLflow has no points of {gone:,} of the steps until {done:,}: "
                    "they were lost with the driver, or the server was away to its end"
                )
            summary = fit(job, resources) | {
                "name": str(config.name),
                "mlflow_uri": mlflow.uri,
                "mlflow_run_id": mlflow.run_id,
                "mlflow_experiment_id": mlflow.experiment_id,
            }
            if not storage.exists(storage.join(summary["checkpoint"], storage.MANIFEST)):
                raise ConfigError(
                    f"output ({config.output}) is not the same folder on all machines: "
                    f"checkpoint {summary['checkpoint']} is not there; use a shared folder or a URL"
                )
            summary |= {"export": storage.join(folder, "export"), "init": config.init}
            recorded = run.record(wanted, config.steps, mlflow.run_id, stream.corpus.folder)
            lineage = Lineage(name=str(config.name), recorded=recorded, summary=summary, corpus=stream.corpus)
            summary |= {"export_check": export(summary["checkpoint"], summary["export"], lineage)}
            storage.write_json(storage.join(folder, run.SUMMARY), summary)
            _log_summary(tracker, summary, about)
        return summary


@contextmanager
def os_errors_as_checkpoint_error(config: Pretrain) -> Iterator[None]:
    """Raise CheckpointError where the driver cannot read or write a file during a run."""
    try:
        yield
    except ConnectionError:  # of Ray
        raise
    except OSError as error:
        raise CheckpointError(
            f"a file of run {config.name} below {config.output} cannot be read or written "
            f"({storage.first_line(error)}); the same command continues from the newest checkpoint"
        ) from error


def _refuse_early(config: Pretrain) -> None:
    """Refuse an unusable vocabulary or corpus before Ray starts, which takes seconds."""
    if not config.init:
        given_vocabulary(config.vocabulary)
    if _is_prepared_corpus(config):
        load_corpus(config.corpus[0])
    else:
        finished_corpus(config.corpus or (BUILTIN,), config.prepare, _corpus_folder(config))


def _is_prepared_corpus(config: Pretrain) -> bool:
    """Return whether config.corpus names a prepared corpus.

    Raises ConfigError where prepare settings are given as well.
    """
    if len(config.corpus) != 1 or not is_prepared(config.corpus[0]):
        return False
    if config.prepare != Preparation():
        raise ConfigError(
            f"corpus {config.corpus[0]} is prepared already: leave out the prepare settings, "
            "or prepare it anew in another folder"
        )
    return True


def stream_settings(config: Pretrain, initial: Initial | None, report: Report) -> StreamSettings:
    """Return the stream's settings, with corpus and vocabulary made where they do not exist; an initial model brings
    its vocabulary.

    Raises DataError for a corpus without examples, ConfigError for slots with more rows than the corpus has.
    """
    given = (
        initial.vocabulary if initial else given_vocabulary(config.vocabulary)
    )  # first: it may be refused, and the corpus takes longer
    corpus = load_or_prepare_corpus(config, report)
    vocabulary = given or trained_vocabulary(config.vocabulary, corpus, config.output, report)
    if config.vocabulary.extend:
        vocabulary = extended_vocabulary(vocabulary, config.vocabulary, corpus, config.output, report)
    settings = StreamSettings(
        corpus=corpus,
        vocabulary=vocabulary,
        sampling=config.sampling,
        batch=config.batch,
        seed=config.seed,
        table_chunks=config.placement.table_chunks,
    )
    for prefix, phase in zip(("batch", "phases"), config.all_phases):
        rows = count_rows_if_small(settings_for_phase(settings, phase), phase.batch.rows_per_slot)
        if rows == 0:
            raise DataError(
                f"the corpus ({listed(config.corpus)}) yields no examples: it needs documents of several sentences"
            )
        if rows is not None and rows < phase.batch.rows_per_slot:
            raise ConfigError(
                f"{prefix}.rows_per_slot ({phase.batch.rows_per_slot}) is more than the rows of the whole corpus "
                f"({rows}): use smaller slots or more text"
            )
    return settings


def load_or_prepare_corpus(config: Pretrain, report: Report) -> Corpus:
    """Return the prepared corpus that config.corpus names, or prepare one from its sources."""
    if _is_prepared_corpus(config):
        corpus = load_corpus(config.corpus[0])
    else:
        corpus = prepare(config.corpus or (BUILTIN,), config.prepare, _corpus_folder(config), report)
    if isinstance(config.sampling.pairs, NextSentence) and corpus.counts["documents"] == 1:
        report(
            "note: the corpus is one document, so no segment B can come from another (NotNext) "
            "and nothing is held out; "
            "give one file a document, or ::format=sentences with a blank line between documents"
        )
    return corpus


def _corpus_folder(config: Pretrain) -> str:
    """Return the folder of the corpus prepared from these sources and settings."""
    sources = config.corpus or (BUILTIN,)
    settings = {name: value for name, value in asdict(config.prepare).items() if f"prepare.{name}" not in PASSING}
    digest = hashlib.sha256(json.dumps([sources, settings]).encode()).hexdigest()[:12]
    return storage.join(config.output, "corpora", digest)


def _corpus_parameters(corpus: Corpus) -> dict[str, Any]:
    """Return each source's counts and the corpus' drop reasons, as MLflow parameters."""
    names = ("weight", "files", *COUNTED)
    of_sources = enumerate(
        {"source": location} | {name: about[name] for name in names} for location, about in corpus.sources.items()
    )
    sources = {f"corpus.{number}.{name}": value for number, about in of_sources for name, value in about.items()}
    return sources | {f"corpus.dropped.{reason}": count for reason, count in corpus.dropped.items()}


def _log_summary(tracker: ActorHandle, summary: dict[str, Any], about: str) -> None:
    """Send the summary's figures and locations to the tracker, and append the summary to the run's description."""
    figures = {
        f"summary/{name}": summary[name]
        for name in (
            "tokens_per_second",
            "data_wait_percent",
            "training_seconds",
            "step_milliseconds_95th",
            "peak_memory_gigabytes",
        )
    }
    if summary["model_flops_utilisation_percent"] is not None:
        figures |= {"summary/model_flops_utilisation_percent": summary["model_flops_utilisation_percent"]}
    ray.get(tracker.log.remote(summary["steps"], figures | baseline_metrics(summary["baselines"])))
    tags = {name: summary[name] for name in ("checkpoint", "export", "export_check")}
    ray.get(tracker.tag.remote(tags | {DESCRIPTION: f"{about}\n{summary_markdown(summary)}"}))
