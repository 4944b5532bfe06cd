"""The words of sentences, encoded one by one, as NumPy arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # this import loads Arrow and tokenizers, which reading words from a file does not need
    from pipeline.text.cached_tokenizer import CachedTokenizer


@dataclass(frozen=True, kw_only=True)
class EncodedWords:
    """S sentences of W words, split at white space, with T tokens."""

    tokens: np.ndarray
    """int (T,): the ids of all words, without special tokens."""
    word_offsets: np.ndarray
    """int64 (W + 1,): offsets of the words in the tokens."""
    sentence_offsets: np.ndarray
    """int64 (S + 1,): offsets of the sentences, counted in words."""
    sizes: np.ndarray
    """int (W,): UTF-8 bytes of each word in the text."""

    def lengths(self, most: int) -> list[int]:
        """Return the number of words of each sentence, at most `most`."""
        return np.minimum(np.diff(self.sentence_offsets), most).tolist()

    def sentence(self, number: int, most: int) -> "EncodedWords":
        """Return a sentence alone, with at most `most` words."""
        first, end = self.sentence_offsets[number : number + 2]
        end = min(end, first + most)
        offsets = self.word_offsets[first : end + 1]
        return EncodedWords(
            tokens=self.tokens[offsets[0] : offsets[-1]],
            word_offsets=offsets - offsets[0],
            sentence_offsets=np.array([0, end - first]),
            sizes=self.sizes[first:end],
        )


def encode_words(sentences: Sequence[Sequence[str]], tokenizer: "CachedTokenizer") -> EncodedWords:
    """Encode the words of each sentence. In byte-level BPE, every word but a sentence's first has a space before it."""
    space = " " if tokenizer.vocabulary.keeps_spaces else ""
    words = [word for words in sentences for word in words]
    spaced = [f"{space * (number > 0)}{word}" for words in sentences for number, word in enumerate(words)]
    tokens, word_offsets = tokenizer.encode(spaced)
    return EncodedWords(
        tokens=tokens,
        word_offsets=word_offsets,
        sentence_offsets=np.cumsum([0, *map(len, sentences)], dtype=np.int64),
        sizes=np.array([len(word.encode()) for word in words], np.int32),
    )
