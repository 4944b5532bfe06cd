"""The special tokens around a text and between the two texts of a pair, as the published models have them."""

from dataclasses import dataclass

import numpy as np

SPECIALS_OF_ONE = 2  # [CLS] text [SEP]


@dataclass(frozen=True, kw_only=True)
class Template:
    """Positions of the special tokens: [CLS] text [SEP] around one text; [CLS] A, separators, B [SEP] for a pair."""

    pair_separators: int = 1
    """Number of [SEP] between A and B: 1 in BERT's `[CLS] A [SEP] B [SEP]`, 2 in RoBERTa's `<s> A </s></s> B </s>`."""

    @property
    def specials_of_pair(self) -> int:
        """Number of special tokens in a pair."""
        return SPECIALS_OF_ONE + self.pair_separators

    def first_length(self, length: np.ndarray) -> np.ndarray:
        """Return the index of the first token of B in a pair whose A has `length` tokens; both are int64 (N,)."""
        return length + 1 + self.pair_separators


ONE_SEPARATOR = Template()
TWO_SEPARATORS = Template(pair_separators=2)
