"""Held-out examples from the text of a corpus, and the occurrences of vocabulary entries in its training text."""

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from pipeline.batch import AnyBatch, collate
from pipeline.config.data import Sampling
from pipeline.config.jobs import Pretrain
from pipeline.config.training import EVALUATED_WINDOWS
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.evaluation.evaluate import SEED, UNIGRAM_CHARACTERS, heldout_shares
from pipeline.evaluation.heldout_words import TOKENS_A_WORD, HeldoutWords, masked_words, sample_words
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import encode_words, make_examples, window_sentences


def heldout_batches(
    corpus: Corpus,
    tokenizer: CachedTokenizer,
    sampling: Sampling,
    *,
    rows: int,
    rows_per_batch: int,
    rank: int,
    world: int,
    language: str | None = None,
) -> list[AnyBatch]:
    """Return this rank's share of about `rows` held-out examples, in batches of at most `rows_per_batch`.

    The windows of a rank are those of `heldout_shares`. Only text in `language` is used; default: all text. Empty if
    the corpus has no held-out part.
    """
    batches = []
    for index, window, share in heldout_shares(corpus.heldout, rows, rank, world):
        documents = read_window(corpus, window)
        if language is not None:
            documents = documents.filter(pc.equal(documents["language"], language))
        examples = make_examples(documents, tokenizer, sampling, seed=SEED, epoch=0, window=index).slice(0, share)
        batches += [
            collate(examples.slice(start, rows_per_batch)) for start in range(0, examples.num_rows, rows_per_batch)
        ]
    return batches


def heldout_languages(corpus: Corpus, rows: int) -> list[str]:
    """Return the languages of the held-out text that evaluation reads, sorted; the same on every rank."""
    windows = corpus.heldout[: min(rows, EVALUATED_WINDOWS)]
    return sorted({code for window in windows for code in read_window(corpus, window)["language"].to_pylist()})


def heldout_words_of(
    config: Pretrain, corpus: Corpus, tokenizer: CachedTokenizer, rank: int, world: int
) -> HeldoutWords:
    """Return the rank's share of the held-out sentences on which a run is evaluated."""
    return heldout_words(
        corpus,
        tokenizer,
        maximum_length=config.sampling.maximum_length,
        sentences=config.evaluation.rows,
        rows_per_batch=config.batch.slot_rows,
        rank=rank,
        world=world,
    )


def heldout_words(
    corpus: Corpus,
    tokenizer: CachedTokenizer,
    *,
    maximum_length: int,
    sentences: int,
    rows_per_batch: int,
    rank: int,
    world: int,
) -> HeldoutWords:
    """Return this rank's share of about `sentences` held-out sentences, in batches of at most `rows_per_batch`.

    The windows of a rank are those of `heldout_shares`. Sentences that do not fit in `maximum_length` tokens are
    skipped.
    """
    drawn = sampled_sentences(corpus, maximum_length // TOKENS_A_WORD, sentences, rank, world)
    sampled = ((encode_words([words], tokenizer), masked) for words, masked in drawn)
    return masked_words(sampled, tokenizer.vocabulary, maximum_length=maximum_length, rows_per_batch=rows_per_batch)


def sampled_sentences(
    corpus: Corpus, longest: int, sentences: int, rank: int, world: int
) -> Iterator[tuple[list[str], list[int]]]:
    """Yield (words, ascending indices of the words to mask) for sampled sentences of this rank's windows.

    Only the first `longest` words of a sentence are used.
    """
    for index, window, share in heldout_shares(corpus.heldout, sentences, rank, world):
        split = [sentence.split()[:longest] for sentence in window_sentences(read_window(corpus, window))[0]]
        for number, masked in sample_words([len(words) for words in split], index, share):
            yield split[number], masked


def unigram_counts(corpus: Corpus, tokenizer: CachedTokenizer, size: int) -> np.ndarray:
    """Return the number of occurrences of each vocabulary entry in the first training windows, int64 (V,).

    `size` is V.
    """
    counts = np.zeros(size, dtype=np.int64)
    characters = 0
    for window in corpus.train:
        sentences, _ = window_sentences(read_window(corpus, window), keep_spaces=tokenizer.vocabulary.keeps_spaces)
        counts += np.bincount(tokenizer.encode(sentences)[0], minlength=size)
        characters += window.characters
        if characters >= UNIGRAM_CHARACTERS:
            break
    return counts
