"""Train on a file of tokens without Ray and MLflow, in the step and loop of the job `pretrain`.

    python jobs/bench.py tokens --corpus CORPUS --vocabulary.path vocab.txt --vocabulary.lowercase --file tokens.arrow
    python jobs/bench.py train encoder-s --token-file tokens.arrow --epochs 10
    torchrun --nproc-per-node 8 jobs/bench.py train bert-base --token-file tokens.arrow

Options are those of the job `pretrain`. There is one phase unless phases:KIND is given; then a preset's phases of that
kind. Checkpoints are written to OUTPUT/runs/NAME/checkpoints, in the published format. There is no MLflow run, and a
stopped run cannot be continued. A clone of the repository, torch, NumPy, pyarrow, safetensors, tokenizers and
requests are enough.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
import torch
import torch.distributed as dist

from pipeline.batch import Batch
from pipeline.bench.heldout import heldout_batches, heldout_words_of
from pipeline.bench.rows_ahead import rows_ahead
from pipeline.bench.token_steps import TOKEN_FILE, token_file_of, with_steps_on
from pipeline.command_line.command import Command
from pipeline.command_line.options import flag_of
from pipeline.command_line.stopping import interrupt_on_sigterm
from pipeline.config.checks import require
from pipeline.config.data import VocabularySettings
from pipeline.config.jobs import COMMON, Pretrain, with_words_rate
from pipeline.config.locations import with_absolute_locations
from pipeline.config.phases import OnePhase, Phase, split
from pipeline.corpus import token_file
from pipeline.corpus.order import cursor_for_phase, row_after
from pipeline.corpus.token_file import TokenFile, unigram_counts_of_tokens
from pipeline.evaluation.blimp import Blimp, prepare_pairs, read_pairs
from pipeline.evaluation.evaluate import UNIGRAM_CHARACTERS, baselines, evaluate
from pipeline.evaluation.heldout_words import word_metrics
from pipeline.evaluation.minimal_pairs.figures import UNIGRAM_ACCURACY
from pipeline.evaluation.minimal_pairs.paradigms import Paradigm
from pipeline.files import storage
from pipeline.files.locations import absolute
from pipeline.objectives.masked import HELDOUT_LOSS
from pipeline.objectives.pretraining import Teacher
from pipeline.objectives.table import Pretraining
from pipeline.objectives.utilisation import device_peak
from pipeline.optim.build import build_optimizer
from pipeline.presets.table import (
    ABOUT_PRESETS,
    require_init,
    split_preset,
    starting_point,
    unnamed_note,
    with_given_length,
)
from pipeline.reporting import Report, no_op, print_line
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.naming import with_name
from pipeline.saved.run import run_folder
from pipeline.train.automatic import Where, free_memory, with_choices
from pipeline.train.building import build_module, set_word_embeddings
from pipeline.train.checkpoint import State
from pipeline.train.compiling import compiled, compiles
from pipeline.train.hardware import (
    autocast_of,
    chosen_precision,
    cores,
    out_of_memory_as_config_error,
    required_device,
    slower_precision,
)
from pipeline.train.loop import accuracies_on_pairs, train_phases
from pipeline.train.outcome import outcome
from pipeline.train.summary import figures, progress_reporter
from pipeline.train.work import Work

RESULT = "result.json"
"""File in a run's folder: what the run measured."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """This process among those that train together."""

    rank: int
    world: int
    device: torch.device


def slots(tables: Iterator[pa.Table], rows_per_slot: int) -> Iterator[pa.Table]:
    """Yield slots of `rows_per_slot` rows, cut from the rows of all `tables`. Drop an incomplete last slot."""
    held: list[pa.Table] = []
    for table in tables:
        rows = pa.concat_tables([*held, table])
        whole = rows.num_rows // rows_per_slot * rows_per_slot
        yield from (rows.slice(start, rows_per_slot) for start in range(0, whole, rows_per_slot))
        held = [rows.slice(whole, rows_per_slot)]


@contextmanager
def _joined(config: Pretrain) -> Generator[Rank]:
    """Join the process group that torchrun's variables name; without them, train alone."""
    rank, world, local = (int(os.environ.get(name, default)) for name, default in RANK_VARIABLES)
    for phase in split(config.phases, config.steps, config.sampling, config.batch, world):
        batch, names = phase.batch, phase.names
        require(
            world <= batch.fewest_slots,
            f"torchrun started {world} processes, but a step has {batch.fewest_slots} slots ({names.rows_per_step} "
            f"{batch.rows_per_step} / {names.rows_per_slot} {batch.slot_rows}): start fewer processes, or use smaller "
            "slots",
        )
    device = required_device(config.placement)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        require(local < count, f"torchrun started a process for GPU {local}, but this machine has {count}")
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    if world > 1:  # the loop reduces tensors on the CPU too
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Rank(rank=rank, world=world, device=device)
    finally:
        if world > 1:
            dist.destroy_process_group()


RANK_VARIABLES = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
"""Environment variables of torchrun, and their values without torchrun."""


def _require_trainable(config: Pretrain, tokens: TokenFile, location: str) -> None:
    """Raise ConfigError for settings that training on a file of tokens does not support."""
    usual = VocabularySettings()
    given = [
        f"{name} ({value})"
        for name, value, default in (
            ("corpus", ", ".join(config.corpus), ""),
            ("init", config.init, None),
            ("vocabulary.path", config.vocabulary.path, usual.path),
            ("vocabulary.extend", config.vocabulary.extend, usual.extend),
            ("workers", config.workers, 1),
        )
        if value != default
    ]
    require(not given, f"{given and given[0]} cannot be set together with token-file ({location}): leave it out")
    require(config.sampling.masks, "token-file has no texts, which objective contrastive and distilled-vectors need")
    if config.word_embeddings == "cooccurrence":
        width = None if tokens.words is None else tokens.words.shape[1]
        require(
            width == config.model.width,
            f"word_embeddings (cooccurrence) needs vectors of width {config.model.width}, but {location} has "
            f"{'none' if width is None else f'width {width}'}: write it with --words {config.model.width}",
        )
    folder = run_folder(config)
    require(not storage.children(folder), f"name ({config.name}) is in use: {folder} has files; choose another --name")


def _with_teacher(config: Pretrain, tokens: TokenFile, report: Report) -> tuple[Pretrain, Teacher | None]:
    """Return the settings, completed from a teacher if the objective has one, and the teacher."""
    if not config.objective.teacher_gives:
        return config, None
    # Imported here because reading a teacher needs more packages than training on tokens.
    from pipeline.train.teacher import with_teacher

    completed, teacher = with_teacher(config, None, report)
    require(
        teacher.initial.vocabulary.fingerprint == tokens.vocabulary.fingerprint,
        "objective.teacher has another vocabulary than the file of tokens: choose a teacher that was trained with it",
    )
    return replace(completed, vocabulary=config.vocabulary), teacher


def train_on_tokens(config: Pretrain, location: str, report: Report, pairs: Sequence[Paradigm] = ()) -> dict[str, Any]:
    """Train a run on a file of tokens; return its measurements, as in a run's summary.

    If there are minimal `pairs`, their accuracies after training replace those of evaluation.blimp. Raises
    PipelineError, with a one-line message, for everything that the user can fix.
    """
    location = absolute(location)
    tokens = token_file.read(location)
    config = with_absolute_locations(config)
    config = replace(config, model=config.model.for_padding(tokens.vocabulary.pad_id))
    _require_trainable(config, tokens, location)
    config = with_steps_on(config, tokens, location)
    storage.require_writable("output", config.output)
    with (
        _joined(config) as rank,
        out_of_memory_as_config_error(config, config.all_phases[0], None, rank.device),
    ):
        say = report if rank.rank == 0 else no_op
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        torch.set_num_threads(config.placement.threads or max(1, cores() // local))
        config, teacher = _with_teacher(config, tokens, say)
        automatic = config.placement.graphs == "auto"
        config = _with_choices(config, rank, say)
        measured = _trained(
            config, tokens, location, teacher, rank, say, pairs, drop_graphs=no_op if automatic else None
        )
        if rank.rank == 0:
            storage.write_json(storage.join(run_folder(config), RESULT), measured)
        return measured


def _trained(
    config: Pretrain,
    tokens: TokenFile,
    location: str,
    teacher: Teacher | None,
    rank: Rank,
    say: Report,
    pairs: Sequence[Paradigm],
    drop_graphs: Callable[[], None] | None,
) -> dict[str, Any]:
    """Train on this rank's slots, and return what was measured."""
    size = tokens.vocabulary.size
    precision = chosen_precision(config.placement, rank.device)
    if note := slower_precision(config.placement, rank.device):
        say(note)
    module = build_module(config, size, rank.device, precision, teacher)
    if config.objective.starts_from_teacher:
        say(module.start_from_teacher())
    if tokens.words is not None and config.word_embeddings == "cooccurrence":
        set_word_embeddings(module, torch.tensor(tokens.words))
    windows = len(tokens.train)
    work = replace(_work(config, tokens, rank, precision, say), drop_graphs=drop_graphs)
    state = State(heldout_before=_word_metrics(config, tokens, work, module))
    with rows_ahead(location, config.seed, windows) as rows:

        @contextmanager
        def opened(config: Pretrain, phase: Phase, state: State) -> Generator[tuple[Work, Iterator[pa.Table]]]:
            cursor = cursor_for_phase(state.cursor, phase, state.step)
            tables = rows(row_after(cursor, windows)[0] if cursor else 0, phase.sampling)
            own_slots = islice(slots(tables, phase.batch.slot_rows), rank.rank, None, rank.world)
            yield replace(work, config=config, heldout=_heldout(phase, config, tokens, rank)), own_slots

        compiling = compiles(config, size, rank.device, 0, say)
        with compiled(module, rank.world, overlaps=config.placement.graphs != "on") if compiling else nullcontext():
            state = train_phases(config, opened, module, build_optimizer(config.optimizer, module), state)
    phase = config.all_phases[-1]
    work = replace(work, heldout=_heldout(phase, config, tokens, rank))
    about = {"checkpoint": folder_of(work.folder, state.step), "name": config.name, "seed": config.seed}
    scores = _evaluated(config, tokens, work, module) | _scored_pairs(config, tokens, work, module, pairs)
    return outcome(work, state, phase) | scores | about


def _with_choices(config: Pretrain, rank: Rank, say: Report) -> Pretrain:
    """Return the settings without `auto`, chosen for the GPU with the least free memory, and report the choice."""
    where = Where(on_gpus=rank.device.type == "cuda")
    if where.on_gpus:
        memory = free_memory(rank.device)
        least = torch.tensor(memory.bytes)
        if rank.world > 1:
            dist.all_reduce(least, dist.ReduceOp.MIN)
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        where = Where(on_gpus=True, memory=replace(memory, bytes=int(least)), gpus=local)
    chosen, line = with_choices(replace(config, workers=rank.world), None, where, goes_on=False)
    if line is not None:
        say(line)
    return replace(chosen, workers=config.workers)


def _work(config: Pretrain, tokens: TokenFile, rank: Rank, precision: str, say: Report) -> Work:
    """Return the inputs of the training loop, without held-out rows, which depend on the phase."""
    show = progress_reporter(config.steps, 0, say)

    def log(step: int, metrics: dict[str, float]) -> None:
        if "speed/tokens_per_second" in metrics:
            show(step, metrics)
        elif loss := metrics.get(HELDOUT_LOSS):
            say(f"held-out loss after step {step:,}: {loss:.3f} nats")

    return Work(
        config=config,
        folder=run_folder(config),
        vocabulary=tokens.vocabulary,
        rank=rank.rank,
        world=rank.world,
        device=rank.device,
        autocast=autocast_of(precision, rank.device),
        heldout=(),
        blimp=_prepared(config, tokens, read_pairs(config.evaluation.blimp, say)),
        peak_flops=device_peak(rank.device, precision),
        log=log if rank.rank == 0 else no_op,
        flush=no_op,
        say=say,
        worker_name=f"rank {rank.rank}",
    )


def _heldout(phase: Phase, config: Pretrain, tokens: TokenFile, rank: Rank) -> list[Batch]:
    """Return this rank's held-out batches of a phase."""
    return heldout_batches(
        tokens,
        phase.sampling,
        rows=config.evaluation.rows,
        rows_per_batch=phase.batch.slot_rows,
        rank=rank.rank,
        world=rank.world,
    )


def _prepared(config: Pretrain, tokens: TokenFile, pairs: Sequence[Paradigm]) -> Blimp | None:
    counts = partial(unigram_counts_of_tokens, tokens, UNIGRAM_CHARACTERS)
    return prepare_pairs(pairs, counts, tokens.vocabulary, config.model.maximum_positions)


def _scored_pairs(
    config: Pretrain, tokens: TokenFile, work: Work, module: Pretraining, pairs: Sequence[Paradigm]
) -> dict[str, Any]:
    """Return the accuracies on the pairs as an entry of the summary; every rank must call this function."""
    prepared = _prepared(config, tokens, pairs)
    return {} if prepared is None else {"blimp": accuracies_on_pairs(replace(work, blimp=prepared), module)}


def _evaluated(config: Pretrain, tokens: TokenFile, work: Work, module: Pretraining) -> dict[str, Any]:
    """Return the held-out metrics and baselines after training; every rank must call this function."""
    values = {UNIGRAM_ACCURACY: work.blimp.unigram_accuracy} if work.blimp else {}
    if not tokens.heldout:
        return {"heldout_after": {}, "baselines": values}
    after = evaluate(module, work.heldout, world=work.world, device=work.device, autocast=work.autocast)
    after |= _word_metrics(config, tokens, work, module)
    counts = unigram_counts_of_tokens(tokens, UNIGRAM_CHARACTERS)
    return {"heldout_after": after, "baselines": baselines(module, work.heldout, counts, work.world) | values}


def _word_metrics(config: Pretrain, tokens: TokenFile, work: Work, module: Pretraining) -> dict[str, float]:
    """Return the held-out loss per word and per byte; empty if the module does not predict words."""
    if not (tokens.heldout and module.fills_blanks):
        return {}
    held = heldout_words_of(config, tokens, work.rank, work.world)
    return word_metrics(module, held, world=work.world, device=work.device, autocast=work.autocast)


def table_of(measured: Mapping[str, Any]) -> str:
    """Return what a run measured, as lines for a terminal."""
    rows = [*figures(dict(measured)), ("checkpoint", measured["checkpoint"])]
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join([f"\nrun {measured['name']}", *(f"  {name:<{width}}{value}" for name, value in rows)])


def main(arguments: Sequence[str]) -> int:
    """Parse, train and print what was measured."""
    preset, rest = split_preset(arguments)
    prog, about = "jobs/bench.py train [PRESET]", f"{__doc__}\n{ABOUT_PRESETS}"
    command = Command(prog=prog, about=about, settings=Pretrain, common=COMMON, extra=(TOKEN_FILE,))
    note = unnamed_note(preset, None)
    preset, default = starting_point(preset, None)
    single = replace(default, phases=OnePhase())
    words = command.words(rest, single)
    location = token_file_of(words)
    interrupt_on_sigterm()
    chosen = any(word.kind is not None and word.kind[0] == "phases" for word in words)
    say = print_line if os.environ.get("RANK", "0") == "0" else no_op
    if not chosen and default.phases != single.phases:
        say(f"note: one phase, although preset {preset} has more: phases:{flag_of(type(default.phases))} trains them")
    default = with_given_length(default if chosen else single, words)
    config = with_name(with_words_rate(command.parse(words, default)), preset)
    require_init(preset, config)
    if note is not None:
        say(note)
    say(table_of(train_on_tokens(config, location, print_line)))
    return 0
