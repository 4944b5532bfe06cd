"""Held-out examples from a file of tokens: those that a run on the corpus is evaluated on."""

from collections.abc import Iterator

from pipeline.batch import Batch, collate
from pipeline.config.data import Sampling
from pipeline.config.jobs import Pretrain
from pipeline.corpus.token_file import TokenFile
from pipeline.evaluation.evaluate import SEED, heldout_shares
from pipeline.evaluation.heldout_words import TOKENS_A_WORD, HeldoutWords, masked_words, sample_words
from pipeline.text.encoded_words import EncodedWords
from pipeline.text.example_table import masked_examples


def heldout_batches(
    tokens: TokenFile, sampling: Sampling, *, rows: int, rows_per_batch: int, rank: int, world: int
) -> list[Batch]:
    """Return this rank's share of about `rows` held-out examples, in batches of at most `rows_per_batch`.

    The windows of a rank are those of `heldout_shares`. Empty if the file has no held-out windows.
    """
    batches = []
    for index, window, share in heldout_shares(tokens.heldout, rows, rank, world):
        made = masked_examples(
            tokens.encoded_window(window),
            tokens.vocabulary,
            sampling,
            seed=SEED,
            copy=sampling.copy_of_epoch(0),
            window=index,
        ).slice(0, share)
        batches += [collate(made.slice(start, rows_per_batch)) for start in range(0, made.num_rows, rows_per_batch)]
    return batches


def heldout_words_of(config: Pretrain, tokens: TokenFile, rank: int, world: int) -> HeldoutWords:
    """Return the rank's share of the held-out sentences on which a run is evaluated, with masked words."""
    maximum_length = config.sampling.maximum_length
    longest = maximum_length // TOKENS_A_WORD
    return masked_words(
        _sampled_sentences(tokens, longest, config.evaluation.rows, rank, world),
        tokens.vocabulary,
        maximum_length=maximum_length,
        rows_per_batch=config.batch.slot_rows,
    )


def _sampled_sentences(
    tokens: TokenFile, longest: int, sentences: int, rank: int, world: int
) -> Iterator[tuple[EncodedWords, list[int]]]:
    """Yield sampled sentences, cut to `longest` words, each with the indices of its words to mask."""
    for index, window, share in heldout_shares(tokens.heldout, sentences, rank, world):
        words = tokens.encoded_words(window)
        for number, masked in sample_words(words.lengths(longest), index, share):
            yield words.sentence(number, longest), masked
