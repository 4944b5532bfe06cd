"""Entry point of each Ray Train worker: config -> module, batches, loop, and on rank 0 the summary."""

import dataclasses
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import ray
import ray.train
import ray.util
import torch
from ray.actor import ActorHandle
from ray.train.torch import get_device

from pipeline import storage
from pipeline.config.jobs import Pretrain
from pipeline.config.phases import Phase
from pipeline.corpus.embeddings import WORDS
from pipeline.corpus.stream import StreamSettings, slots_of_blocks
from pipeline.errors import CheckpointError
from pipeline.model.float8 import to_float8
from pipeline.objectives.pretraining import BertPretraining
from pipeline.shared_output import unshared_output
from pipeline.text.wordpiece import WordPiece
from pipeline.train import checkpoint
from pipeline.train.blanks import fill_in_the_blanks
from pipeline.train.checkpoint import State, read_tensors
from pipeline.train.compiling import compiled, compiles
from pipeline.train.evaluate import baseline_metrics, baselines, evaluate, heldout_batches, unigram_counts
from pipeline.train.failures import failure_of
from pipeline.train.hardware import (
    autocast_of,
    chosen_precision,
    cores,
    device_peak,
    out_of_memory_as_config_error,
    peak_memory_bytes,
    slower_precision,
    utilisation_percent,
)
from pipeline.train.heldout_words import heldout_words, word_metrics
from pipeline.train.initial import Initial, build_initial_module, extended_state, set_word_embeddings
from pipeline.train.loop import Work, train
from pipeline.train.meter import percentile_milliseconds
from pipeline.train.optim import build_optimizer
from pipeline.train.run import read_run

STREAM = "train"  # name of the dataset among the trainer's


@dataclass(frozen=True, kw_only=True)
class Job:
    """Inputs of every worker, sent by the driver."""

    config: Pretrain
    folder: str
    stream: StreamSettings
    initial: Initial | None
    words: str | None
    """Folder of initial word embeddings; None: random ones, or the run continues from a checkpoint."""
    tracker: ActorHandle


def run(settings: dict[str, Job]) -> None:
    """Train; report every error to the tracker, which ends the run for errors that no restart fixes."""
    job = settings["job"]
    try:
        device = get_device()
        with out_of_memory_as_config_error(job.config, job.config.phase_at(0), None, device):
            run_worker(job, device)
    except Exception as error:
        ray.get(job.tracker.fail.remote(failure_of(error, worker_name())))
        raise


def worker_name() -> str:
    """Return this worker's name in messages."""
    return f"worker {ray.train.get_context().get_world_rank()} on {ray.util.get_node_ip_address()}"


def run_worker(job: Job, device: torch.device) -> None:
    """Run one worker from start to end."""
    config, stream = job.config, job.stream
    if read_run(job.folder) is None:  # the driver has written it
        raise unshared_output(config.output, f"run.json of this run is not there on {ray.util.get_node_ip_address()}")
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    blocks = prefetch_first_block(
        ray.train.get_dataset_shard(STREAM).iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=4)
    )
    torch.set_num_threads(config.placement.threads or max(1, cores() // context.get_local_world_size()))
    say = (lambda text: ray.get(job.tracker.say.remote(text))) if rank == 0 else _no_op
    torch.manual_seed(config.seed)
    precision = chosen_precision(config.placement, device)
    if line := slower_precision(config.placement, device):
        say(line)
    module = BertPretraining(config.model, len(stream.vocabulary.tokens)).to(device)
    if precision == "float8":
        to_float8(module.encoder.layers)
    module.encoder.recompute = config.placement.recompute
    optimizer = build_optimizer(config.optimizer, module)
    folder = checkpoint.newest_sound(job.folder, say)
    state = checkpoint.load(folder, module, optimizer, config.model) if folder else State()
    if config.worker_range.elastic:
        say(f"at work: {world} worker{'s' * (world > 1)} of {config.worker_range}")
    if folder:
        say(f"continuing after step {state.step}")
    phase = config.phase_at(state.step)
    if len(config.all_phases) > 1:
        say(f"steps {phase.first + 1:,} to {phase.end:,} have sequences to length {phase.sampling.maximum_length}")
    wordpiece = WordPiece(stream.vocabulary, stream.table_chunks)
    points = Points(job.tracker)
    work = Work(
        config=config,
        folder=job.folder,
        vocabulary=stream.vocabulary,
        rank=rank,
        world=world,
        device=device,
        autocast=autocast_of(precision, device),
        heldout=heldout_batches(
            stream.corpus,
            wordpiece,
            phase.sampling,
            rows=config.evaluation.rows,
            rows_per_batch=phase.batch.rows_per_slot,
            rank=rank,
            world=world,
        ),
        peak_flops=device_peak(device, precision),
        log=points.log if rank == 0 else _no_op,
        flush=points.flush if rank == 0 else _no_op,
        say=say,
        leaving=lambda: ray.train.get_preemption_info() is not None,
        worker_name=worker_name(),
    )
    if not folder:
        state = _initial_state(job, work, module, wordpiece, precision)
    if state.step == phase.first:
        work.log(state.step, baseline_metrics(_heldout_baselines(stream, work, wordpiece)))
    compiling = compiles(
        config, len(stream.vocabulary.tokens), device, dataclasses.replace(phase, first=state.step), say
    )
    with compiled(module) if compiling else nullcontext():
        state = train(work, slots_of_blocks(blocks, phase.batch.rows_per_slot), module, optimizer, state)
    if state.step < config.steps:  # another phase follows
        return
    summary = _summarise(job, work, module, state, phase, wordpiece)
    if rank == 0:
        ray.get(job.tracker.result.remote(summary))


def prefetch_first_block(blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Return the blocks, requesting the first at once: the stream's processes start while the model is built."""
    coming = iter(blocks)
    first = ThreadPoolExecutor(max_workers=1).submit(next, coming, None)

    def in_order() -> Iterator[pa.Table]:
        if (block := first.result()) is not None:
            yield block
            yield from coming

    return in_order()


class Points:
    """Send metrics to the tracker without waiting; `flush` waits for all."""

    def __init__(self, tracker: ActorHandle) -> None:
        self.tracker = tracker
        self.under_way: list[ray.ObjectRef] = []

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self.under_way.append(self.tracker.log.remote(step, metrics))

    def flush(self) -> None:
        sent, self.under_way = self.under_way, []
        ray.get(sent)  # the tracker takes calls in any order
        ray.get(self.tracker.flush.remote())


def _no_op(*_: Any) -> None:
    """Ignore a message, on ranks other than 0."""


def _initial_state(job: Job, work: Work, module: BertPretraining, wordpiece: WordPiece, precision: str) -> State:
    """Return the state before the first step.

    A published model is loaded, and evaluated with its own vocabulary; every rank must call this.
    """
    if job.config.word_embeddings == "cooccurrence":
        if job.words is None:
            raise CheckpointError(
                "the checkpoints that this run continued from are gone: the same command starts it again"
            )
        set_word_embeddings(module, read_tensors(storage.join(job.words, WORDS))["words"])
    if job.initial is None:
        return State(heldout_before=_measure_words(job, work, module, wordpiece, 0))
    published = build_initial_module(job.initial, job.config.model).to(work.device)
    if precision == "float8":
        to_float8(published.encoder.layers)
    before = _measure_words(job, work, published, WordPiece(job.initial.vocabulary), 0)
    module.load_state_dict(extended_state(published.state_dict(), job.initial.vocabulary, job.stream.vocabulary))
    return State(heldout_before=before)


def _measure_words(job: Job, work: Work, module: BertPretraining, wordpiece: WordPiece, step: int) -> dict[str, float]:
    """Log and return the held-out loss per word and per byte; every rank must call it."""
    config = job.config
    held = heldout_words(
        job.stream.corpus,
        wordpiece,
        maximum_length=config.sampling.maximum_length,
        sentences=config.evaluation.rows,
        rows_per_batch=config.batch.rows_per_slot,
        rank=work.rank,
        world=work.world,
    )
    metrics = word_metrics(module, held, world=work.world, device=work.device, autocast=work.autocast)
    work.log(step, metrics)
    return metrics


def _summarise(
    job: Job, work: Work, module: BertPretraining, state: State, phase: Phase, wordpiece: WordPiece
) -> dict[str, Any]:
    """Return held-out metrics with their baselines, throughput, and filled-in blanks; every rank must call it."""
    config, stream = job.config, job.stream
    after = evaluate(module, work.heldout, world=work.world, device=work.device, autocast=work.autocast)
    if after:
        after |= _measure_words(job, work, module, wordpiece, state.step)
        work.flush()
    beside = _heldout_baselines(stream, work, wordpiece)
    blanks = None
    if work.rank == 0:
        blanks = fill_in_the_blanks(
            module,
            stream.corpus,
            wordpiece,
            stream.vocabulary,
            maximum_length=phase.sampling.maximum_length,
            device=work.device,
        )
    return {
        "steps": state.step,
        "tokens": state.tokens,
        "epochs": state.cursor.epoch + 1 if state.cursor else 0,
        "workers": work.world,
        "device": work.device.type,
        "precision": chosen_precision(config.placement, work.device),
        "tokens_per_second": state.tokens / max(state.seconds, 1e-9),
        "data_wait_percent": 100 * state.wait_seconds / max(state.seconds, 1e-9),
        "training_seconds": state.seconds,
        "maximum_length": phase.sampling.maximum_length,
        "step_milliseconds_95th": percentile_milliseconds(state.step_times, 0.95),
        "peak_memory_gigabytes": peak_memory_bytes(work.device) / 1e9,
        "model_flops_utilisation_percent": _overall_utilisation(work, state),
        "heldout_before": state.heldout_before,
        "heldout_after": after,
        "baselines": beside,
        "blanks": blanks and asdict(blanks),
        "checkpoint": checkpoint.folder_of(job.folder, state.step),
    }


def _heldout_baselines(stream: StreamSettings, work: Work, wordpiece: WordPiece) -> dict[str, float]:
    """Return the baselines on the phase's held-out rows; empty without such rows. Every rank must call it."""
    if not stream.corpus.heldout:
        return {}
    return baselines(work.heldout, unigram_counts(stream.corpus, wordpiece, len(stream.vocabulary.tokens)), work.world)


def _overall_utilisation(work: Work, state: State) -> float | None:
    """Return model FLOPs utilisation over the whole run in percent; None where the device's peak is unknown."""
    if work.peak_flops is None:
        return None
    return utilisation_percent(
        work.config, work.vocabulary.size, vars(state), max(state.seconds, 1e-9), work.world * work.peak_flops
    )
