"""Sentences to WordPiece ids."""

from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline.text.vocabulary import Vocabulary


class WordPiece:
    """The ids that `tokenizers` gives for a vocabulary, special tokens in the text being text.

    It can be pickled: each process builds its own tokenizer at the first use.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def __getstate__(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary}

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return self.vocabulary.tokenizer()

    def encode(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all sentences in one run, int32 (T,), and where each begins and the last ends, int64 (len + 1,).

        No special tokens are added. A sentence may have no ids (nothing but control characters).
        """
        encodings = self._tokenizer.encode_batch_fast(sentences, add_special_tokens=False)
        offsets = np.zeros(len(sentences) + 1, np.int64)
        np.cumsum([len(encoding) for encoding in encodings], out=offsets[1:])
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int32, count=offsets[-1])
        return ids, offsets
