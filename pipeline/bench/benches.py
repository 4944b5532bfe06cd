"""Run the benches: measure, print the results, and compare ratios with their floors."""

import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from pipeline.bench import serve, stream, text
from pipeline.bench.windows import split_corpora
from pipeline.command_line.stopping import interrupt_on_sigterm
from pipeline.config import bench as settings
from pipeline.config.checks import require
from pipeline.config.data import Preparation, VocabularySettings
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
}
"""Ratio -> value below which a bench fails: 80% of a measured ratio. Rates depend on the machine and have no floor."""


def _run_text(config: settings.Text, report: Report) -> int:
    specs = config.corpus or (BUILTIN,)
    with temporary_folder() as folder:
        vocabulary = _vocabulary_of(specs, config.vocabulary, folder)
        measured = text.measure(specs, vocabulary, config.sampling, config.windows, folder)
    print(text.table(measured))
    return verdict(text.ratios(measured, vocabulary.kind))


def _run_stream(config: settings.Stream, report: Report) -> int:
    rows_per_slot, rows = config.rows_per_slot, config.rows
    with prepared(config.corpus, config.vocabulary, report) as (corpus, vocabulary):
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


def _run_serve(config: settings.Serve, report: Report) -> int:
    interrupt_on_sigterm()  # so that the measured server is stopped
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


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bertstream-bench-")


@contextmanager
def prepared(corpus: Sequence[str], wanted: VocabularySettings, report: Report) -> Generator[tuple[Corpus, Vocabulary]]:
    """Connect to Ray, and prepare a bench's corpus and vocabulary in a folder that is deleted at the end."""
    specs = corpus or (BUILTIN,)
    cluster.connect(None)
    with temporary_folder() as folder:
        vocabulary = _vocabulary_of(specs, wanted, folder)
        yield prepare(specs, Preparation(), f"{folder}/corpus", report), vocabulary


def _vocabulary_of(specs: Sequence[str], wanted: VocabularySettings, folder: str) -> Vocabulary:
    """Return the vocabulary that the settings name. If they name none, train one on a few windows of the sources."""
    if named := given_vocabulary(wanted):
        return named
    corpus, _ = split_corpora(specs, f"{folder}/vocabulary", 4)
    texts = (row for window in corpus.train for row in read_window(corpus, window)["text"].to_pylist())
    splitting = splitting_of(wanted)
    return train_vocabulary(texts, size=wanted.most_entries, lowercase=splitting.lowercase, kind=splitting.kind)


def verdict(ratios: Mapping[str, float], aims: Mapping[str, float] = AIMS, floors: Mapping[str, float] = FLOORS) -> int:
    """Print the ratios with their aims; return 1 if any ratio is below its floor, else 0."""
    words = {name: f" (aim {aims[name]:g})" if name in aims else "" for name in ratios}
    print("; ".join(f"{name}: {value:.2f}{words[name]}" for name, value in ratios.items()))
    low = [name for name, value in ratios.items() if value < floors.get(name, 0)]
    for name in low:
        print(f"below its floor: {name}: {ratios[name]:.2f}, floor {floors[name]:g}")
    return 1 if low else 0


BENCHES: dict[type[settings.Bench], Callable[[Any, Report], int]] = {
    settings.Text: _run_text,
    settings.Stream: _run_stream,
    settings.Serve: _run_serve,
    settings.Tokens: _run_tokens,
}
"""Settings type -> function that runs the bench and returns the exit code."""
