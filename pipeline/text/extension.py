"""Extend a published WordPiece vocabulary by frequent words of a corpus."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.text.cached_tokenizer import encode_directly
from pipeline.text.splitting import Splitting
from pipeline.text.vocabulary import UNUSED, Vocabulary

LEAST_PIECES = 3
"""Minimum number of pieces of an added word; a word of two pieces is usually a known word with an ending."""
LEAST_COUNT = 5
"""Minimum number of occurrences of an added word; the embeddings of rarer words would hardly be trained."""
WORDS_AT_ONCE = 65_536


def splitting_of(vocabulary: Vocabulary) -> Splitting:
    """Return the rules by which a WordPiece vocabulary splits text into words."""
    return Splitting(
        lowercase=vocabulary.lowercase,
        strip_accents=vocabulary.strip_accents,
        chinese_characters=vocabulary.chinese_characters,
    )


def new_words(counts: pa.Table, vocabulary: Vocabulary, most: int) -> list[str]:
    """Return at most `most` words of three or more pieces, the most frequent first; ties are in code point order.

    `counts` has schema COUNTS. Words without a letter, and words that occur fewer than 5 times, are left out. A word
    with a character that is not in the vocabulary is left out too: such a word is encoded as [UNK], so its embedding
    cannot be initialised from pieces.
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
    """Return the vocabulary with new words: the first words replace its [unused] entries, the others are appended."""
    tokens = list(vocabulary.tokens)
    free = [index for index, token in enumerate(tokens) if UNUSED.fullmatch(token)]
    for index, word in zip(free, words):
        tokens[index] = word
    # The new words have ids after those of added tokens, so added tokens become entries of the model.
    return replace(vocabulary, tokens=(*tokens, *words[len(free) :]), model_entries=None)


def pieces_of_new_words(vocabulary: Vocabulary, longer: Vocabulary) -> dict[int, list[int]]:
    """Return {id of a word that only `longer` has: ids of the word's pieces in `vocabulary`}."""
    added_ids = [
        id for id, token in enumerate(longer.tokens) if id >= vocabulary.size or token != vocabulary.tokens[id]
    ]
    return dict(zip(added_ids, _pieces_of(vocabulary, [longer.tokens[id] for id in added_ids]), strict=True))


def _pieces_of(vocabulary: Vocabulary, words: list[str]) -> list[list[int]]:
    """Return the ids of the pieces of each word."""
    ids, offsets = encode_directly(vocabulary.tokenizer(), words)
    return [ids[start:end].tolist() for start, end in zip(offsets[:-1], offsets[1:])]
