"""Entry point of each Ray Train worker: build the model, read the stream, run the loop, and summarise the run."""

import dataclasses
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import ray
import ray.train
import ray.util
import torch
from ray.train.torch import get_device

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import Phase, share_of_masks
from pipeline.corpus.embeddings import WORDS
from pipeline.corpus.stream import blocks_of_shard, slots_of_blocks
from pipeline.errors import CheckpointError
from pipeline.evaluation.evaluate import baseline_metrics
from pipeline.evaluation.heldout import heldout_batches
from pipeline.files import storage
from pipeline.files.shared_output import unshared_output
from pipeline.model.encoder import encoders_in
from pipeline.model.float8 import to_float8
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.objectives.utilisation import device_peak
from pipeline.optim.build import build_optimizer
from pipeline.reporting import Report, no_op
from pipeline.saved import checkpoints
from pipeline.saved.run import forget_setting, read_run
from pipeline.saved.tensors import read_tensors
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.tracking.failures import failure_of
from pipeline.tracking.points import Points
from pipeline.train import checkpoint
from pipeline.train.automatic import GRAPHS, without_dropped_graphs
from pipeline.train.building import build_module, set_word_embeddings
from pipeline.train.checkpoint import State
from pipeline.train.compiling import compiled, compiles
from pipeline.train.hardware import (
    autocast_of,
    chosen_precision,
    cores,
    out_of_memory_as_config_error,
    slower_precision,
)
from pipeline.train.initial import extended_state, load_initial
from pipeline.train.job import Job
from pipeline.train.loop import train_phases
from pipeline.train.work import Work
from pipeline.train.worker_summary import heldout_baselines, measure_words, summarise

STREAM = "train"  # key, in the Ray Train trainer's `datasets`, of the stream with which the workers start


def stream_of(phase: Phase) -> str:
    """Return the key of the stream of a phase that begins while the workers run."""
    return f"{STREAM}-from-{phase.first}"


def run(settings: dict[str, Job]) -> None:
    """Train; report every error to the tracker. If a restart cannot fix the error, the tracker ends the run."""
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
    """Build or load the model, train to the end of the run, and send the summary to the tracker."""
    if (recorded := read_run(job.folder)) is None:  # the driver wrote the file, but this machine does not see it
        raise unshared_output(job.config.output, f"run.json of this run is missing on {ray.util.get_node_ip_address()}")
    if job.graphs_automatic:
        job = dataclasses.replace(job, config=without_dropped_graphs(job.config, recorded["identity"]))
    config, stream = job.config, job.stream
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    blocks = blocks_of_shard(ray.train.get_dataset_shard(STREAM))
    torch.set_num_threads(config.placement.threads or max(1, cores() // context.get_local_world_size()))
    say = (lambda text: ray.get(job.tracker.say.remote(text))) if rank == 0 else no_op
    precision = chosen_precision(config.placement, device)
    if line := slower_precision(config.placement, device):
        say(line)
    size = len(stream.vocabulary.tokens)
    module = build_module(config, size, device, precision, job.teacher)
    optimizer = build_optimizer(config.optimizer, module)
    folder = checkpoints.newest_sound(job.folder, say)
    state = checkpoint.load(folder, module, optimizer) if folder else State()
    if config.worker_range.elastic:
        say(f"training on {world} worker{'s' * (world > 1)} of {config.worker_range}")
    if folder:
        say(f"continuing after step {state.step}")
    tokenizer = CachedTokenizer(stream.vocabulary, stream.table_chunks)
    inputs = PhaseInputs(
        job=job,
        device=device,
        precision=precision,
        module=module,
        tokenizer=tokenizer,
        say=say,
        phase=config.phase_at(state.step),
        blocks=blocks,
    )
    if not folder:
        state = _initial_state(job, inputs.work, module, tokenizer, precision)
    compiling = compiles(config, size, device, state.step, say)
    with compiled(module, world, overlaps=config.placement.graphs != "on") if compiling else nullcontext():
        state = train_phases(config, inputs.opened, module, optimizer, state)
    summary = summarise(job, inputs.work, module, state, inputs.phase, tokenizer)
    if rank == 0:
        ray.get(job.tracker.result.remote(summary))


@dataclass(kw_only=True)
class PhaseInputs:
    """Inputs of one phase after another on a worker: its work, which has the phase's held-out rows, and its blocks."""

    job: Job
    device: torch.device
    precision: str
    module: Pretraining
    tokenizer: CachedTokenizer
    say: Report
    phase: Phase
    """At first, the phase in which the workers start."""
    blocks: Generator[pa.Table]
    work: Work = field(init=False)

    def __post_init__(self) -> None:
        self.work = self._begun(self.job.config)

    @contextmanager
    def opened(self, config: Pretrain, phase: Phase, state: State) -> Generator[tuple[Work, Iterator[pa.Table]]]:
        """Open a phase for `train_phases`: the one in which the workers started, or the next one."""
        if phase != self.phase:
            shard = ray.train.get_dataset_shard(stream_of(phase))  # every rank must ask for it
            self.phase, self.blocks = phase, blocks_of_shard(shard)
            self.work = self._begun(config)
        if state.step == phase.first:
            values = heldout_baselines(self.job.stream, self.work, self.module, self.tokenizer)
            self.work.log(state.step, baseline_metrics(values))
        yield self.work, slots_of_blocks(self.blocks, phase.batch.slot_rows)
        self.blocks.close()  # ends this stream, so that the next one has its CPUs and memory

    def _begun(self, config: Pretrain) -> Work:
        """Report the phase, and return its work."""
        phase, phases = self.phase, config.all_phases
        if len(phases) > 1:
            length = f"sequences of at most {phase.sampling.maximum_length} tokens"
            self.say(f"steps {phase.first + 1:,} to {phase.end:,}: {length}{share_of_masks(phase, phases)}")
        job = dataclasses.replace(self.job, config=config)
        return _work_of(job, self.device, self.precision, phase, self.tokenizer, self.say)


def _work_of(
    job: Job, device: torch.device, precision: str, phase: Phase, tokenizer: CachedTokenizer, say: Report
) -> Work:
    """Return the inputs of the training loop on this worker."""
    config, points, context = job.config, Points(job.tracker), ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    return Work(
        config=config,
        folder=job.folder,
        attempt=job.attempt,
        vocabulary=job.stream.vocabulary,
        rank=rank,
        world=world,
        device=device,
        autocast=autocast_of(precision, device),
        heldout=heldout_batches(
            job.stream.corpus,
            tokenizer,
            phase.sampling,
            rows=config.evaluation.rows,
            rows_per_batch=phase.batch.slot_rows,
            rank=rank,
            world=world,
        ),
        blimp=job.blimp,
        peak_flops=device_peak(device, precision),
        log=points.log if rank == 0 else no_op,
        flush=points.flush if rank == 0 else no_op,
        say=say,
        leaving=lambda: ray.train.get_preemption_info() is not None,
        worker_name=worker_name(),
        drop_graphs=partial(forget_setting, job.folder, GRAPHS) if job.graphs_automatic else None,
    )


def _initial_state(job: Job, work: Work, module: Pretraining, tokenizer: CachedTokenizer, precision: str) -> State:
    """Return the state before the first step.

    Also set the module's initial weights. A published model is evaluated with its own vocabulary. Every rank must call
    this function.
    """
    if job.config.word_embeddings == "cooccurrence":
        if job.words is None:
            raise CheckpointError(
                "the checkpoints from which this run continued are gone: the same command starts the run at step 0"
            )
        set_word_embeddings(module, read_tensors(storage.join(job.words, WORDS))["words"])
    if job.initial is None:
        if job.config.objective.starts_from_teacher:
            work.say(module.start_from_teacher())
        return State(heldout_before=measure_words(job, work, module, tokenizer, 0))
    config, size = job.config, job.initial.vocabulary.size
    published = build_objective(config.objective, config.sampling, config.model, size)
    load_initial(job.initial, published)
    published.to(work.device)
    if precision == "float8":
        for encoder in encoders_in(published):
            to_float8(encoder.layers)
    before = measure_words(job, work, published, CachedTokenizer(job.initial.vocabulary), 0)
    module.load_state_dict(extended_state(published.state_dict(), job.initial.vocabulary, job.stream.vocabulary))
    return State(heldout_before=before)
