"""Train on a file of tokens without Ray: the training step and loop of the job `pretrain`, on the same rows.

    python jobs/bench.py tokens --corpus CORPUS --vocabulary.path vocab.txt --vocabulary.lowercase --file tokens.npz
    python jobs/bench.py train bert-small --tokens tokens.npz --steps 2000
    torchrun --nproc-per-node 8 jobs/bench.py train bert-base --tokens tokens.npz

Options are those of the job `pretrain`. Checkpoints are written to OUTPUT/runs/NAME/checkpoints, in the published
format; there is no MLflow run, and a stopped run cannot be continued.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from typing import Any

import pyarrow as pa
import torch
import torch.distributed as dist

from pipeline import storage
from pipeline.config.arguments import Extra, extras
from pipeline.config.checks import require
from pipeline.config.command import Command
from pipeline.config.data import Sampling, VocabularySettings
from pipeline.config.jobs import COMMON, Pretrain, with_words_rate
from pipeline.config.locations import with_absolute_locations
from pipeline.config.objective import Distilled
from pipeline.corpus import token_file
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.token_file import Tokens, heldout_corpus, rows_of_window, unigram_counts
from pipeline.errors import ConfigError
from pipeline.local_files import scratch_folder
from pipeline.locations import absolute
from pipeline.minimal_pairs.figures import UNIGRAM_ACCURACY
from pipeline.objectives.distilled import DistilledTokens
from pipeline.objectives.table import FillsBlanks, Pretraining, build_objective
from pipeline.presets import PRESETS, require_init, split_preset, starting_point
from pipeline.reporting import Report, print_line
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.blimp import prepare_pairs, read_pairs
from pipeline.train.checkpoint import State, folder_of
from pipeline.train.compiling import compiled, compiles
from pipeline.train.evaluate import UNIGRAM_CHARACTERS, baselines, evaluate, heldout_batches
from pipeline.train.hardware import autocast_of, chosen_precision, cores, device_peak
from pipeline.train.heldout_words import heldout_words_of, word_metrics
from pipeline.train.initial import set_word_embeddings
from pipeline.train.loop import Work, train
from pipeline.train.naming import with_name
from pipeline.train.optim import build_optimizer
from pipeline.train.outcome import outcome
from pipeline.train.run import run_folder
from pipeline.train.slot_size import slot_advice
from pipeline.train.summary import figures, progress_reporter
from pipeline.train.teacher import load_teacher, start_from_teacher, with_teacher

EXTRA = (
    Extra(name="tokens", metavar="FILE", text="File of tokens, which `python jobs/bench.py tokens` writes. Required."),
)
MAKERS, AHEAD = 2, 4
"""Processes that make rows, and windows that are made ahead by all of them."""
RESULT = "result.json"
"""File in a run's folder: what the run measured."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """This process among those that train together."""

    rank: int
    world: int
    device: torch.device


def slots(tables: Iterator[pa.Table], rows_per_slot: int) -> Iterator[pa.Table]:
    """Yield slots: tables of `rows_per_slot` rows, cut from the concatenated `tables`. Drop an incomplete last slot."""
    held: list[pa.Table] = []
    for table in tables:
        held = [pa.concat_tables([*held, table])]
        whole = held[0].num_rows // rows_per_slot * rows_per_slot
        yield from (held[0].slice(start, rows_per_slot).combine_chunks() for start in range(0, whole, rows_per_slot))
        held = [held[0].slice(whole)]


@contextmanager
def _place(config: Pretrain) -> Generator[Place]:
    """Join the process group that torchrun's variables name; without them, train alone."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_RANK", 0))
    gpu = config.placement.device != "cpu" and torch.cuda.is_available()
    require(gpu or config.placement.device != "cuda", "placement.device cuda needs a GPU, and this process sees none")
    device = torch.device("cuda", local) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if gpu else "gloo")
    try:
        yield Place(rank=rank, world=world, device=device)
    finally:
        if world > 1:
            dist.destroy_process_group()


@contextmanager
def _rows(location: str, sampling: Sampling, seed: int) -> Generator[Iterator[pa.Table]]:
    """Yield an endless iterator of tables of rows (schema ROW), in the global order, made ahead by other processes."""
    with ProcessPoolExecutor(MAKERS, get_context("spawn"), _open, (location, sampling, seed)) as makers:

        def tables() -> Iterator[pa.Table]:
            coming: deque[Future[pa.Table]] = deque()
            for number in count():
                coming.append(makers.submit(_make, number))
                if len(coming) > AHEAD:
                    yield coming.popleft().result()

        try:
            yield (table for table in tables() if table.num_rows)
        finally:
            makers.shutdown(wait=True, cancel_futures=True)


_made: Callable[[int], pa.Table]


def _open(location: str, sampling: Sampling, seed: int) -> None:
    """Read the file of tokens in a process that makes rows."""
    global _made
    tokens = token_file.read(location)
    _made = lambda number: rows_of_window(tokens, sampling, seed, number)  # noqa: E731


def _make(number: int) -> pa.Table:
    return _made(number)


def _require_trainable(config: Pretrain, tokens: Tokens, location: str) -> None:
    """Raise ConfigError for settings that training on a file of tokens does not support."""
    preset = VocabularySettings()
    given = [
        name
        for name, value, usual in (
            ("corpus", config.corpus, ()),
            ("init", config.init, None),
            ("vocabulary.path", config.vocabulary.path, preset.path),
            ("vocabulary.extend", config.vocabulary.extend, preset.extend),
            ("workers", config.workers, 1),
            ("sampling.language_exponent", config.sampling.language_exponent, 1),
        )
        if value != usual
    ]
    require(not given, f"{given and given[0]} cannot be set together with tokens ({location}): leave it out")
    require(config.sampling.masks, "tokens has no texts, which objective contrastive and distilled-vectors need")
    require(
        len(config.all_phases) == 1, f"phases ({type(config.phases).__name__}) must be one-phase to train on tokens"
    )
    if config.word_embeddings == "cooccurrence":
        width = None if tokens.words is None else tokens.words.shape[1]
        require(
            width == config.model.width,
            f"word_embeddings (cooccurrence) needs vectors of width {config.model.width}, but {location} has "
            f"{'none' if width is None else f'width {width}'}: write it with --words {config.model.width}",
        )
    folder = run_folder(config)
    require(not storage.children(folder), f"name ({config.name}) is in use: {folder} has files; choose another --name")


def _module(config: Pretrain, tokens: Tokens, device: torch.device, report: Report) -> tuple[Pretrain, Pretraining]:
    """Return the settings, completed from a teacher if the objective has one, and the untrained module."""
    completed, teacher = with_teacher(config, None, report)
    config = replace(completed, vocabulary=config.vocabulary)
    torch.manual_seed(config.seed)
    module = build_objective(config.objective, config.sampling, config.model, tokens.vocabulary.size).to(device)
    if isinstance(config.objective, Distilled) and isinstance(module, DistilledTokens) and teacher:
        require(
            teacher.vocabulary.fingerprint == tokens.vocabulary.fingerprint,
            f"objective.teacher ({config.objective.teacher}) has another vocabulary than the file of tokens",
        )
        module.learn_from(load_teacher(teacher, device))
        if config.objective.start == "teacher":
            start_from_teacher(module, report)
    if tokens.words is not None and config.word_embeddings == "cooccurrence":
        set_word_embeddings(module, torch.from_numpy(tokens.words))
    return config, module


def train_on_tokens(config: Pretrain, location: str, report: Report) -> dict[str, Any]:
    """Train a run on a file of tokens; return its measurements (on rank 0), as in a run's summary.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    location = absolute(location)
    tokens = token_file.read(location)
    config = with_absolute_locations(config)
    config = replace(config, model=config.model.for_padding(tokens.vocabulary.pad_id))
    _require_trainable(config, tokens, location)
    with _place(config) as place, scratch_folder("heldout") as folder:
        say = report if place.rank == 0 else _no_op
        torch.set_num_threads(config.placement.threads or max(1, cores() // place.world))
        config, module = _module(config, tokens, place.device, say)
        corpus, tokenizer = heldout_corpus(tokens, str(folder)), CachedTokenizer(tokens.vocabulary)
        work = _work(config, tokens, corpus, tokenizer, place, say)
        phase = config.all_phases[0]
        if place.device.type == "cuda" and (line := slot_advice(replace(config, workers=place.world))):
            say(line)
        state = State(heldout_before=_word_metrics(config, corpus, tokenizer, work, module))
        with _rows(location, config.sampling, config.seed) as tables:
            mine = islice(slots(tables, phase.batch.rows_per_slot), place.rank, None, place.world)
            compiling = compiles(config, tokens.vocabulary.size, place.device, phase, say)
            with compiled(module) if compiling else nullcontext():
                state = train(work, mine, module, build_optimizer(config.optimizer, module), state)
        measured = outcome(work, state, phase) | _evaluated(config, tokens, corpus, tokenizer, work, module)
        measured |= {"checkpoint": folder_of(work.folder, state.step), "name": config.name, "seed": config.seed}
        if place.rank == 0:
            storage.write_json(storage.join(work.folder, RESULT), measured)
        return measured


def _work(
    config: Pretrain, tokens: Tokens, corpus: Corpus, tokenizer: CachedTokenizer, place: Place, say: Report
) -> Work:
    """Return the inputs of the training loop."""
    precision, phase = chosen_precision(config.placement, place.device), config.all_phases[0]
    show = progress_reporter(config.steps, 0, say)

    def log(step: int, metrics: dict[str, float]) -> None:
        if "speed/tokens_per_second" in metrics:
            show(step, metrics)
        elif loss := metrics.get("heldout/mlm_loss"):
            say(f"held-out loss after step {step:,}: {loss:.3f} nats")

    return Work(
        config=config,
        folder=run_folder(config),
        vocabulary=tokens.vocabulary,
        rank=place.rank,
        world=place.world,
        device=place.device,
        autocast=autocast_of(precision, place.device),
        heldout=heldout_batches(
            corpus,
            tokenizer,
            phase.sampling,
            rows=config.evaluation.rows,
            rows_per_batch=phase.batch.rows_per_slot,
            rank=place.rank,
            world=place.world,
        ),
        blimp=prepare_pairs(
            read_pairs(config.evaluation.blimp, say),
            partial(unigram_counts, tokens, UNIGRAM_CHARACTERS),
            tokens.vocabulary,
            config.model.maximum_positions,
        ),
        peak_flops=device_peak(place.device, precision),
        log=log if place.rank == 0 else _no_op,
        flush=_no_op,
        say=say,
        worker_name=f"rank {place.rank}",
    )


def _evaluated(
    config: Pretrain, tokens: Tokens, corpus: Corpus, tokenizer: CachedTokenizer, work: Work, module: Pretraining
) -> dict[str, Any]:
    """Return the held-out metrics and baselines after training; every rank must call this function."""
    values = {UNIGRAM_ACCURACY: work.blimp.unigram_accuracy} if work.blimp else {}
    if not corpus.heldout:
        return {"heldout_after": {}, "baselines": values}
    after = evaluate(module, work.heldout, world=work.world, device=work.device, autocast=work.autocast)
    after |= _word_metrics(config, corpus, tokenizer, work, module)
    counts = unigram_counts(tokens, UNIGRAM_CHARACTERS)
    return {"heldout_after": after, "baselines": baselines(module, work.heldout, counts, work.world) | values}


def _word_metrics(
    config: Pretrain, corpus: Corpus, tokenizer: CachedTokenizer, work: Work, module: Pretraining
) -> dict[str, float]:
    """Return the held-out loss per word and per byte; empty if the module does not predict words."""
    if not (corpus.heldout and isinstance(module, FillsBlanks)):
        return {}
    held = heldout_words_of(config, corpus, tokenizer, work.rank, work.world)
    return word_metrics(module, held, world=work.world, device=work.device, autocast=work.autocast)


def table_of(measured: Mapping[str, Any]) -> str:
    """Return what a run measured, as lines for a terminal."""
    rows = [*figures(dict(measured)), ("checkpoint", measured["checkpoint"])]
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join([f"\nrun {measured['name']}", *(f"  {name:<{width}}{value}" for name, value in rows)])


def _no_op(*_: Any) -> None:
    """Do nothing. Ranks other than 0 use this in place of functions that only rank 0 may call."""


def main(arguments: Sequence[str]) -> int:
    """Parse, train and print what was measured."""
    preset, rest = split_preset(arguments)
    about = f"{__doc__}\nPresets, one of which may be the first word (default: bert-tiny): {', '.join(PRESETS)}"
    command = Command(prog="jobs/bench.py train [PRESET]", about=about, settings=Pretrain, common=COMMON, extra=EXTRA)
    words = command.words(rest, starting_point(preset, None)[1])
    location = extras(words).get("tokens")
    if location is None:
        raise ConfigError(f"--tokens is missing: {EXTRA[0].text}")
    preset, default = starting_point(preset, None)
    config = with_name(with_words_rate(command.parse(words, default)), preset)
    require_init(preset, config)
    measured = train_on_tokens(config, location, print_line)
    if os.environ.get("RANK", "0") == "0":
        print_line(table_of(measured))
    return 0
