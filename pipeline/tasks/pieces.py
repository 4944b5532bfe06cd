"""Split texts and words into a vocabulary's pieces, with their positions in the input.

Shapes: T pieces of one text or sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from pipeline.text.vocabulary import Vocabulary

AT_ONCE = 512
"""Texts per batch. The batch bounds memory, because an Encoding takes a hundred times the memory of its ids."""


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """The pieces of a text or of a list of words, without special tokens."""

    ids: np.ndarray  # int32 (T,)
    starts: np.ndarray  # int32 (T,), index of the piece's first character in the text; for a list of words, in the word
    ends: np.ndarray  # int32 (T,), one past the index of the piece's last character
    # int32 (T,), index of the piece's word in the list of words; for a text, in the list of pre-tokenized words
    words: np.ndarray


class Tokenization:
    """A vocabulary's tokenizer. Special tokens that a text spells out are plain text; all added tokens match.

    A Tokenization can be pickled: its `tokenizer` is built on first use, and is not part of the pickle.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def __getstate__(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return self.vocabulary.tokenizer(self.vocabulary.added)

    def of_texts(self, texts: Sequence[str]) -> list[Pieces]:
        """Return the pieces of each text."""
        batches = (texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE))
        return [
            pieces
            for batch in batches
            for pieces in map(_pieces_of, self.tokenizer.encode_batch(list(batch), add_special_tokens=False))
        ]

    def of_words(self, sentences: Sequence[Sequence[str]]) -> list[Pieces]:
        """Return the pieces of each sentence. `sentences` are lists of words; words are encoded as if after a space."""
        spaced = [_words_after_spaces(words) for words in sentences] if self.vocabulary.keeps_spaces else sentences
        batches = (spaced[start : start + AT_ONCE] for start in range(0, len(spaced), AT_ONCE))
        encodings = chain.from_iterable(
            self.tokenizer.encode_batch(batch, is_pretokenized=True, add_special_tokens=False) for batch in batches
        )
        return [_pieces_of(encoding) for encoding in encodings]


def _words_after_spaces(words: Sequence[str]) -> list[str]:
    """Return the words; a non-empty word without a leading space gets one, as with add_prefix_space in transformers."""
    return [word if word == "" or word.startswith(" ") else f" {word}" for word in words]


def _pieces_of(encoding: Encoding) -> Pieces:
    """Convert an encoding to arrays."""
    offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
    return Pieces(
        ids=np.array(encoding.ids, np.int32),
        starts=offsets[:, 0],
        ends=offsets[:, 1],
        words=np.array(encoding.word_ids, np.int32),
    )
