"""Examples as token ranges into a window's flat ids, as every pairing returns them.

S sentences, D documents, N examples, R ranges.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """N examples, each [CLS] and then its ranges with a [SEP] after each (in some templates two between the ranges of a
    pair).

    Pair tasks have two ranges per example and one of the two labels; the others have no label.
    """

    starts: np.ndarray  # int64 (R,), first token of each range in the window's flat ids
    ends: np.ndarray  # int64 (R,), one past its last token
    offsets: np.ndarray  # int64 (N + 1,), offsets of each example's ranges
    document_a: np.ndarray  # int32 (N,), index in the window of the first range's document
    # Of the last range's document, int32 (N,); a sequence over several documents has all those between, in window
    # order.
    document_b: np.ndarray
    not_next: np.ndarray | None = None  # bool (N,), the second range is from another parent
    swapped: np.ndarray | None = None  # bool (N,), the second range comes before the first in its document

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def paired(self) -> bool:
        """Whether an example is a pair of segments."""
        return self.not_next is not None or self.swapped is not None

    def take(self, order: np.ndarray) -> "Sequences":
        """Return the examples at the indices `order`, in that order."""
        counts = np.diff(self.offsets)[order]
        offsets = _offsets_of_counts(counts)
        ranges = np.arange(offsets[-1]) + np.repeat(self.offsets[order] - offsets[:-1], counts)
        return Sequences(
            starts=self.starts[ranges],
            ends=self.ends[ranges],
            offsets=offsets,
            document_a=self.document_a[order],
            document_b=self.document_b[order],
            not_next=None if self.not_next is None else self.not_next[order],
            swapped=None if self.swapped is None else self.swapped[order],
        )


def _offsets_of_counts(counts: np.ndarray) -> np.ndarray:
    """Return the offsets of runs of these lengths, int64 (len + 1,)."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def pairs_of_segments(
    a: tuple[np.ndarray, np.ndarray],
    b: tuple[np.ndarray, np.ndarray],
    documents: tuple[np.ndarray, np.ndarray],
    not_next: np.ndarray | None = None,
    swapped: np.ndarray | None = None,
) -> Sequences:
    """Build sequences of two ranges each: `a` and `b` are (starts, ends); all arrays are (N,)."""
    return Sequences(
        starts=np.stack((a[0], b[0]), axis=1).ravel(),
        ends=np.stack((a[1], b[1]), axis=1).ravel(),
        offsets=2 * np.arange(len(a[0]) + 1),
        document_a=documents[0].astype(np.int32),
        document_b=documents[1].astype(np.int32),
        not_next=not_next,
        swapped=swapped,
    )


def without_empty_sentences(
    sentence_offsets: np.ndarray, document_offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return both offsets with empty sentences left out."""
    filled = np.diff(sentence_offsets) > 0
    kept_before = np.concatenate(([0], np.cumsum(filled)))
    return np.concatenate((sentence_offsets[:-1][filled], sentence_offsets[-1:])), kept_before[document_offsets]


def target_lengths(documents: int, short_probability: float, maximum: int, rng: np.random.Generator) -> np.ndarray:
    """Draw each document's target length, int64 (D,): `maximum`, or for a share of them uniform from 2 to `maximum`.

    Source: google-research/bert, create_instances_from_document.
    """
    is_short = rng.random(documents) < short_probability
    return np.where(is_short, rng.integers(2, maximum + 1, documents), maximum)


def follow_chain(following: np.ndarray) -> np.ndarray:
    """Return the indices visited from 0 on when each index names its successor, which is greater; int64.

    The successor of an index must not depend on the path to it. The chain ends at the first index out of range.
    """
    # The only sequential work in a window: on a list it is fastest.
    successors = following.tolist()
    index, visited = 0, []
    while index < len(successors):
        visited.append(index)
        index = successors[index]
    return np.array(visited, np.int64)
