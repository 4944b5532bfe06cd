"""The words of sentences, encoded one by one, as NumPy arrays."""

from dataclasses import dataclass

import numpy as np


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
