"""Extend a published WordPiece vocabulary by the words of a corpus."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.text.cached_tokenizer import encode_directly
from pipeline.text.splitting import Splitting
from pipeline.text.vocabulary import UNUSED, Vocabulary

LEAST_PIECES = 3
"""A word of two pieces is mostly a known word with an ending."""
LEAST_COUNT = 5
"""The embeddings of rarer words would hardly be trained."""
WORDS_AT_ONCE = 65_536


def splitting_of(vocabulary: Vocabulary) -> Splitting:
    """Return how a WordPiece vocabulary splits text into words."""
    return Splitting(
        lowercase=vocabulary.lowercase,
        strip_accents=vocabulary.strip_accents,
        chinese_characters=vocabulary.chinese_characters,
    )


def new_words(counts: pa.Table, vocabulary: Vocabulary, most: int) -> list[str]:
    """Return the `most` most frequent words (schema COUNTS) of three or more pieces, ties in code point order.

    Words without a letter, words that occur fewer than 5 times, and words with a character that is not in the
    vocabulary ([UNK]: no piece to initialise from) are left out.
    """
    frequent = counts.filter(pc.greater_equal(counts["count"], LEAST_COUNT)).sort_by(
        [("count", "descending"), ("word", "ascending")]
    )
    added: list[str] = []
    for batch in frequent.to_batches(max_chunksize=WORDS_AT_ONCE):
        words = [word for word in batch["word"].to_pylist() if any(map(str.isalpha, word))]
        pieces = _pieces_of(vocabulary, words)
        added += [
            word
            for word, ids in zip(words, pieces, strict=True)
            if len(ids) >= LEAST_PIECES and vocabulary.unk_id not in ids
        ]
        if len(added) >= most:
            break
    return added[:most]


def extend_vocabulary(vocabulary: Vocabulary, words: list[str]) -> Vocabulary:
    """Return the vocabulary with these words in place of its [unused] entries, in order, and then after all others."""
    tokens = list(vocabulary.tokens)
    free = [index for index, token in enumerate(tokens) if UNUSED.fullmatch(token)]
    for index, word in zip(free, words):
        tokens[index] = word
    return replace(vocabulary, tokens=(*tokens, *words[len(free) :]))


def pieces_of_new_words(vocabulary: Vocabulary, longer: Vocabulary) -> dict[int, list[int]]:
    """Map the id of each word that only the extended vocabulary has to the ids of its pieces in the original one."""
    added_ids = [
        id for id, token in enumerate(longer.tokens) if id >= vocabulary.size or token != vocabulary.tokens[id]
    ]
    return dict(zip(added_ids, _pieces_of(vocabulary, [longer.tokens[id] for id in added_ids]), strict=True))


def _pieces_of(vocabulary: Vocabulary, words: list[str]) -> list[list[int]]:
    """Return the ids of the pieces of each word."""
    ids, offsets = encode_directly(vocabulary.tokenizer(), words)
    return [ids[start:end].tolist() for start, end in zip(offsets[:-1], offsets[1:])]
