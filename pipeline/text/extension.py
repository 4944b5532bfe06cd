"""Extend a published vocabulary: by frequent words of a corpus, or by entries for the padding of its embeddings."""

from dataclasses import replace
from itertools import count, islice

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.text.added_tokens import AddedToken
from pipeline.text.cached_tokenizer import encode_directly
from pipeline.text.splitting import SPECIALS, Splitting
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
    free = [index for index, token in enumerate(tokens) if UNUSED.fullmatch(token) and token not in vocabulary.specials]
    for index, word in zip(free, words):
        tokens[index] = word
    # The new words have ids after those of added tokens, so added tokens become entries of the model.
    return replace(vocabulary, tokens=(*tokens, *words[len(free) :]), model_entries=None)


def pad_vocabulary(vocabulary: Vocabulary, size: int) -> Vocabulary:
    """Return the vocabulary with [unused] entries up to `size`, one for each row that only fills up the embeddings.

    The ids of texts do not change: WordPiece splits the brackets off, and other kinds list the entries as special
    tokens, which match in no text.
    """
    names = (f"[unused{number}]" for number in count(vocabulary.size))
    fillers = tuple(islice((name for name in names if name not in vocabulary.ids), size - vocabulary.size))
    tokens = (*vocabulary.tokens, *fillers)
    if vocabulary.kind == "wordpiece" and not vocabulary.added:
        return replace(vocabulary, tokens=tokens)
    roles, others = vocabulary.specials[: len(SPECIALS)], vocabulary.specials[len(SPECIALS) :]
    return replace(
        vocabulary,
        tokens=tokens,
        specials=(*roles, *sorted({*others, *fillers})),
        added=(*vocabulary.added, *(AddedToken(content=name, normalized=False, special=True) for name in fillers)),
    )


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
