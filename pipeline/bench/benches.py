"""Run the benches: measure, print the results, and compare ratios with their floors."""

import statistics
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import ray

from pipeline.bench import checkpoint, embed, job, scale, serve, stream, text, wikitext
from pipeline.bench.windows import split_corpora
from pipeline.config import bench as settings
from pipeline.config.checks import require
from pipeline.config.data import Preparation, Sampling, VocabularySettings
from pipeline.config.locations import BUILTIN
from pipeline.config.training import Batch
from pipeline.corpus.given_vocabulary import given_vocabulary
from pipeline.corpus.prepare import prepare
from pipeline.corpus.prepared import Corpus, load_corpus, read_window
from pipeline.corpus.stream import StreamSettings
from pipeline.corpus.token_file_saving import save_tokens
from pipeline.corpus.vocabulary import splitting_of
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.on_ray import cluster
from pipeline.presets.table import PRESETS, require_preset
from pipeline.reporting import Report
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.hardware import cores

AIMS = {
    "wordpiece warm / encode_batch_fast": 10.0,
    "wordpiece cold / encode_batch_fast": 5.0,
    "wordpiece whole path / usual preparation": 10.0,
    "wordpiece whole path, M tokens/s": 3.0,
    "byte-bpe warm / encode_batch_fast": 8.0,
    "byte-bpe cold / encode_batch_fast": 4.0,
    "Ray Data / the same work without it": 0.7,
    "under Ray Train / the loop alone": 0.97,
}
"""Name of a ratio, or of a rate in millions of tokens per second -> value to aim for."""
FLOORS = {
    "wordpiece warm / encode_batch_fast": 8.6,
    "wordpiece cold / encode_batch_fast": 5.5,
    "wordpiece whole path / usual preparation": 11.1,
    "byte-bpe warm / encode_batch_fast": 9.0,
    "byte-bpe cold / encode_batch_fast": 4.0,
    "unigram warm / encode_batch_fast": 3.8,
    "unigram cold / encode_batch_fast": 2.0,
    "Ray Data / the same work without it": 0.56,
    "under Ray Train / the loop alone": 0.64,
}
"""Ratio -> value below which a bench fails: 80% of a measured ratio. Rates depend on the machine and have no floor."""


def _run_text(config: settings.Text, report: Report) -> int:
    specs = config.corpus or (BUILTIN,)
    with _temporary_folder() as folder:
        vocabulary = _vocabulary_of(specs, config.vocabulary, folder)
        measured = text.measure(specs, vocabulary, config.sampling, config.windows, folder)
    print(text.table(measured))
    return verdict(text.ratios(measured, vocabulary.kind))


def _run_stream(config: settings.Stream, report: Report) -> int:
    rows_per_slot, rows = config.rows_per_slot, config.rows
    with _prepared(config, report) as (corpus, vocabulary):
        # Start new Ray workers: the old workers keep memory from the preparation, so the measured peak would be higher.
        ray.shutdown()
        cluster.connect(None)
        wanted = StreamSettings(
            corpus=corpus,
            vocabulary=vocabulary,
            sampling=config.sampling,
            batch=Batch(rows_per_step=rows_per_slot, rows_per_slot=rows_per_slot),
            seed=0,
        )
        before = stream.plain_rate(wanted, rows)
        through, peak = stream.stream_rate(wanted, rows)
        after = stream.plain_rate(wanted, rows)
    alone = (before.tokens_per_second + after.tokens_per_second) / 2
    print(
        f"one plain process      {alone / 1e6:>8.2f} M tokens/s (before {before.tokens_per_second / 1e6:.2f}, "
        f"after {after.tokens_per_second / 1e6:.2f})"
    )
    print(f"through Ray Data       {through.tokens_per_second / 1e6:>8.2f} M tokens/s")
    print(
        f"largest worker         {peak['worker']:>8.0f} MB without shared memory; object store at most "
        f"{peak['object store']:.0f} MB"
    )
    return verdict({"Ray Data / the same work without it": through.tokens_per_second / alone})


def _run_wikitext(config: settings.Wikitext, report: Report) -> int:
    print(wikitext.table(wikitext.measure(config.dump, config.extracted)))
    return 0


def _run_job(config: settings.Job, report: Report) -> int:
    corpus, preset, steps, compiled = config.corpus or (BUILTIN,), config.preset, config.steps, config.compile
    require_preset(preset)
    startable = not preset.startswith("continue")
    require(startable, f"preset ({preset}) continues from a published model: choose another preset")
    threads = config.threads or cores()
    print(f"{preset}, {threads} of {cores()} CPU threads, torch.compile {compiled}", flush=True)
    with _temporary_folder() as folder:
        words = [
            preset,
            "--corpus",
            job.prepare(folder, corpus),
            "--output",
            folder,
            "--placement.compile",
            compiled,
            "--placement.threads",
            str(threads),
        ]
        seconds = job.first_steps(words, folder, config.repetitions)
        print("submission to first step  " + "  ".join(f"{value:.1f} s" for value in seconds), flush=True)
        turns = job.rates(words, folder, steps=steps, compiled=compiled, threads=threads)
    if not turns:
        raise ConfigError(
            f"steps ({steps}) are too few: a run ended before both sides had logged in a turn of {job.TURN:g} seconds; "
            "give more steps"
        )
    print(f"{'tokens/s':<10}{'alone':>10}{'under Ray':>12}{'ratio':>8}")
    for number, turn in enumerate(turns, 1):
        print(f"{f'turn {number}':<10}{turn.alone:>10,.0f}{turn.under_ray:>12,.0f}{turn.under_ray / turn.alone:>8.3f}")
    ratio = statistics.median(turn.under_ray / turn.alone for turn in turns)
    return verdict({"under Ray Train / the loop alone": ratio})


def _run_scale(config: settings.Scale, report: Report) -> int:
    milliseconds, steps = config.milliseconds, config.steps
    with _prepared(config, report) as (corpus, vocabulary):
        batch = Batch(rows_per_step=128, rows_per_slot=32)
        wanted = StreamSettings(corpus=corpus, vocabulary=vocabulary, sampling=Sampling(), batch=batch, seed=0)
        paces = [
            scale.pace(
                wanted,
                scale.Sleeper(batch=batch, seconds=milliseconds / 1000, steps=steps, warm=scale.WARM_STEPS),
                world,
            )
            for world in scale.WORLDS
        ]
        without_sleep = [
            scale.pace(wanted, scale.Sleeper(batch=batch, seconds=0, steps=20 * steps, warm=10 * steps), world)
            for world in scale.WORLDS
        ]
        alone = [scale.read_dealt_blocks(wanted, world, rounds) for world, rounds in scale.ROUNDS.items()]
    print(f"4 slots of 32 rows per step, {milliseconds:g} ms of sleep per slot instead of training")
    print(scale.table(paces))
    print("without any sleep")
    print(scale.table(without_sleep))
    print("one stream read by one process, with rows made in advance")
    print(scale.dealt_table(alone))
    print(
        scale.estimate_for_many_gpus(
            min(reading.blocks / reading.seconds for reading in alone),
            without_sleep[0].tokens / without_sleep[0].slots / batch.slot_rows,
            wanted.sampling.maximum_length,
        )
    )
    return 0


def _run_checkpoint(config: settings.Checkpoint, report: Report) -> int:
    preset, step_milliseconds, repetitions = config.preset, config.step_milliseconds, config.repetitions
    require_preset(preset)
    costs = checkpoint.measure(PRESETS[preset], config.output, repetitions)
    still, written = (statistics.median(getattr(cost, name) for cost in costs) for name in ("still", "written"))
    every = PRESETS[preset].checkpoint.every
    between = every * step_milliseconds / 1000
    print(
        f"{preset}, {costs[0].parameters / 1e6:.1f} M parameters, median of {repetitions}: "
        f"training stops for {1000 * still:,.0f} ms; published after {written:.1f} s, while training continues"
    )
    print(
        f"with a checkpoint every {every} steps of {step_milliseconds:g} ms: training stops for {still / between:.3%} "
        f"of the time, and a checkpoint is being written for {written / between:.2%} of the time"
    )
    return 0


def _run_embed(config: settings.Embed, report: Report) -> int:
    require(hasattr(psutil.Process().memory_full_info(), "pss"), "the bench embed needs Linux, which measures PSS")
    with _temporary_folder() as folder:
        measured = embed.measure([config.texts, config.texts * config.times], config.checkpoint, folder)
    print("\n".join(embed.table(measured)))
    return embed.verdict(measured)


def _run_serve(config: settings.Serve, report: Report) -> int:
    ours = "float32 with onnxruntime" if config.onnx else config.precision
    print(f"{serve.OURS}: {ours}; {serve.PEER}: float32; {config.threads or cores()} threads each")
    print(serve.table(serve.measure(config)))
    return 0


def _run_tokens(config: settings.Tokens, report: Report) -> int:
    require(not storage.exists(config.file), f"file ({config.file}) exists already: choose another file, or delete it")
    vocabulary = given_vocabulary(config.vocabulary)
    if vocabulary is None:
        raise ConfigError(
            "vocabulary.path is missing: give the vocabulary of a run, such as OUTPUT/runs/NAME/vocabulary"
        )
    corpus = load_corpus(config.corpus)
    tokens = save_tokens(config.file, corpus, CachedTokenizer(vocabulary), config.windows, config.words)
    windows = min(config.windows or len(corpus.train), len(corpus.train))
    report(f"{config.file}: {tokens:,} tokens of {windows} of {len(corpus.train)} training windows")
    return 0


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bertstream-bench-")


@contextmanager
def _prepared(config: settings.Stream | settings.Scale, report: Report) -> Generator[tuple[Corpus, Vocabulary]]:
    """Connect to Ray, and prepare a bench's corpus and vocabulary in a folder that is deleted at the end."""
    specs = config.corpus or (BUILTIN,)
    cluster.connect(None)
    with _temporary_folder() as folder:
        vocabulary = _vocabulary_of(specs, config.vocabulary, folder)
        yield prepare(specs, Preparation(), f"{folder}/corpus", report), vocabulary


def _vocabulary_of(specs: Sequence[str], wanted: VocabularySettings, folder: str) -> Vocabulary:
    """Return the vocabulary that the settings name. If they name none, train one on a few windows of the sources."""
    if named := given_vocabulary(wanted):
        return named
    corpus, _ = split_corpora(specs, f"{folder}/vocabulary", 4)
    texts = (row for window in corpus.train for row in read_window(corpus, window)["text"].to_pylist())
    splitting = splitting_of(wanted)
    return train_vocabulary(texts, size=wanted.most_entries, lowercase=splitting.lowercase, kind=splitting.kind)


def verdict(ratios: dict[str, float]) -> int:
    """Print the ratios with their aims; return 1 if any ratio is below its floor, else 0."""
    aims = {name: f" (aim {AIMS[name]:g})" if name in AIMS else "" for name in ratios}
    print("; ".join(f"{name}: {value:.2f}{aims[name]}" for name, value in ratios.items()))
    low = [name for name, value in ratios.items() if value < FLOORS.get(name, 0)]
    for name in low:
        print(f"below its floor: {name}: {ratios[name]:.2f}, floor {FLOORS[name]:g}")
    return 1 if low else 0


BENCHES: dict[type[settings.Bench], Callable[[Any, Report], int]] = {
    settings.Text: _run_text,
    settings.Stream: _run_stream,
    settings.Wikitext: _run_wikitext,
    settings.Job: _run_job,
    settings.Scale: _run_scale,
    settings.Checkpoint: _run_checkpoint,
    settings.Embed: _run_embed,
    settings.Serve: _run_serve,
    settings.Tokens: _run_tokens,
}
"""Settings type -> function that runs the bench and returns the exit code."""
