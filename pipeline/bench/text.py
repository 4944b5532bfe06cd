"""Measure the path from text to masked Arrow blocks on one core, stage by stage.

Baselines: encode_batch_fast of `tokenizers`, and the usual Python preparation (`pipeline.bench.usual`).
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from pipeline.bench.usual import usual_batches
from pipeline.bench.windows import split_corpora
from pipeline.config.data import Sampling
from pipeline.corpus.prepared import Corpus, Window, read_window
from pipeline.errors import ConfigError
from pipeline.text.cached_tokenizer import TABLE_CHUNKS, CachedTokenizer, encode_directly
from pipeline.text.encoded_window import assemble, sentence_begins
from pipeline.text.example_table import example_table
from pipeline.text.examples import make_examples, window_sentences
from pipeline.text.masking import mask
from pipeline.text.pairs import PAIRINGS
from pipeline.text.randomness import generator
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary


@dataclass(kw_only=True)
class Clock:
    """Seconds spent, by name of a stage or method."""

    seconds: dict[str, float] = field(default_factory=dict)

    def time(self, name: str, work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """Call `work` with the arguments and return the result; add the call's time to the seconds of `name`."""
        start = time.perf_counter()
        result = work(*arguments, **more)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return result


@dataclass(frozen=True, kw_only=True)
class MeasuredStage:
    """Amounts processed, and seconds per stage or method."""

    bytes: int
    """Bytes of sentences in UTF-8."""
    tokens: int
    rows: int
    seconds: dict[str, float]
    """Stage or method -> seconds; also "usual tokens" -> number of tokens that the usual preparation made."""


def measure(
    specs: Sequence[str], vocabulary: Vocabulary, sampling: Sampling, windows: int, folder: str
) -> MeasuredStage:
    """Run each window through every method in turn, so that changes in machine speed affect all methods equally.

    At the start of the measurement, the "warm" tokenizer has a chunk table filled from windows of other files, and the
    "cold" tokenizer has an empty chunk table. The ids of both tokenizers must equal those of the library `tokenizers`.
    `folder` is for temporary files. Raises ConfigError if transformers is not installed.
    """
    collator = _transformers_collator(vocabulary, folder)
    others, measured = split_corpora(specs, folder, windows)
    warm, cold = (
        CachedTokenizer(vocabulary),
        CachedTokenizer(vocabulary, table_chunks=TABLE_CHUNKS + 1),
    )  # tokenizers with equal table sizes would share one table
    for window in others.train:
        warm.encode(window_sentences(read_window(others, window), keep_spaces=vocabulary.keeps_spaces)[0])
    clock = Clock()
    sums = np.zeros(4, np.int64)
    for number, window in enumerate(measured.train):
        sums += _measure_window(clock, measured, window, number, warm, cold, sampling, collator)
    return MeasuredStage(
        bytes=int(sums[0]),
        tokens=int(sums[1]),
        rows=int(sums[2]),
        seconds=clock.seconds | {"usual tokens": float(sums[3])},
    )


def _measure_window(
    clock: Clock,
    corpus: Corpus,
    window: Window,
    number: int,
    warm: CachedTokenizer,
    cold: CachedTokenizer,
    sampling: Sampling,
    collator: Any,
) -> tuple[int, int, int, int]:
    """Time every method on one window. Return the window's bytes, tokens, rows, and tokens of the usual preparation."""
    vocabulary = warm.vocabulary
    documents = clock.time("read the shard", read_window, corpus, window)
    sentences, document_offsets = clock.time(
        "sentences", window_sentences, documents, keep_spaces=vocabulary.keeps_spaces
    )
    expected = clock.time("encode_batch_fast", encode_directly, warm.tokenizer, sentences)
    for name, tokenizer in (("ids, cold", cold), ("ids, warm", warm)):
        tokens, sentence_offsets = clock.time(name, tokenizer.encode, sentences)
        assert all(map(np.array_equal, expected, (tokens, sentence_offsets))), "the ids differ from those of tokenizers"
    parents = documents["parent"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    rng = generator(0, 0, number, "pairs")
    pairs = clock.time(
        "pairs",
        PAIRINGS[type(sampling.pairs)],
        sampling.pairs,
        sentence_offsets,
        document_offsets,
        parents,
        sampling.maximum_length,
        rng,
        vocabulary.template,
    )
    pairs = pairs.take(generator(0, 0, number, "rows").permutation(len(pairs)))
    ids, offsets = clock.time("sequences", assemble, tokens, pairs, vocabulary)
    begins = clock.time("sequences", sentence_begins, sentence_offsets, pairs, vocabulary)
    masked = clock.time(
        "masks", mask, sampling.masking, ids, offsets, vocabulary, generator(0, 0, number, "masks"), begins
    )
    block = clock.time("Arrow block", example_table, pairs, offsets, masked, vocabulary.template)
    whole = clock.time(
        "whole path", lambda: make_examples(read_window(corpus, window), warm, sampling, seed=0, epoch=0, window=number)
    )
    assert whole.equals(block), "the stages and the whole path give different blocks"
    special = (vocabulary.cls_id, vocabulary.sep_id)
    usual = clock.time(
        "usual preparation",
        lambda: usual_batches(
            read_window(corpus, window), warm.tokenizer, collator, special, sampling.maximum_length, Random(number)
        ),
    )
    return sum(len(sentence.encode()) + 1 for sentence in sentences), len(ids), block.num_rows, usual[1]


def _transformers_collator(vocabulary: Vocabulary, folder: str) -> Any:
    """Return transformers' masking collator for a vocabulary. Raises ConfigError if transformers is not installed."""
    try:
        from transformers import AutoTokenizer, DataCollatorForLanguageModeling
        from transformers import logging as their_logging
    except ImportError as error:
        raise ConfigError("the usual preparation needs transformers: pip install 'bertstream[test]'") from error
    from pathlib import Path

    their_logging.set_verbosity_error()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    (Path(folder) / "tokenizer").mkdir(parents=True)
    save_vocabulary(vocabulary, Path(folder) / "tokenizer", 512)
    return DataCollatorForLanguageModeling(
        AutoTokenizer.from_pretrained(f"{folder}/tokenizer"), mlm=True, mlm_probability=0.15
    )


def table(measured: MeasuredStage) -> str:
    """Return a table with a line per stage or method: MB/s, million tokens per second, milliseconds per MB."""
    lines = [
        f"{measured.bytes / 1e6:.1f} MB of sentences, {measured.tokens:,} tokens, {measured.rows:,} rows, one core",
        f"{'':22}{'MB/s':>10}{'M tokens/s':>14}{'ms/MB':>10}",
    ]
    for name, seconds in measured.seconds.items():
        if name != "usual tokens":
            tokens = measured.seconds["usual tokens"] if name == "usual preparation" else measured.tokens
            lines.append(
                f"{name:22}{measured.bytes / 1e6 / seconds:>10.1f}{tokens / 1e6 / seconds:>14.2f}"
                f"{seconds * 1e9 / measured.bytes:>10.2f}"
            )
    return "\n".join(lines)


def ratios(measured: MeasuredStage, kind: str) -> dict[str, float]:
    """Return name -> value: the speed-ups over both baselines, and the million tokens per second of the whole path.

    Every name begins with `kind`, the kind of the vocabulary.
    """
    seconds = measured.seconds
    ours = measured.tokens / seconds["whole path"]
    return {
        f"{kind} warm / encode_batch_fast": seconds["encode_batch_fast"] / seconds["ids, warm"],
        f"{kind} cold / encode_batch_fast": seconds["encode_batch_fast"] / seconds["ids, cold"],
        f"{kind} whole path / usual preparation": ours / (seconds["usual tokens"] / seconds["usual preparation"]),
        f"{kind} whole path, M tokens/s": ours / 1e6,
    }
