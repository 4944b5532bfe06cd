"""Examples as ranges of a window's flat ids; every pairing returns its examples in this form.

Shapes: S sentences, D documents, N examples, R ranges.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """N examples: each is [CLS] and its ranges of tokens, with a [SEP] after each range.

    Some templates have two [SEP] between the ranges of a pair. In a pair task, each example has two ranges, and one of
    the labels `not_next` and `swapped` is set. In other tasks, both labels are None.
    """

    starts: np.ndarray  # int64 (R,), first token of each range in the window's flat ids
    ends: np.ndarray  # int64 (R,), one past the last token of each range
    offsets: np.ndarray  # int64 (N + 1,), example i has the ranges offsets[i] : offsets[i + 1]
    document_a: np.ndarray  # int32 (N,), index in the window of the first range's document
    # int32 (N,), index in the window of the last range's document; a sequence over several documents contains all
    # documents between document_a and document_b, in window order
    document_b: np.ndarray
    not_next: np.ndarray | None = None  # bool (N,), whether the second range is from another parent
    swapped: np.ndarray | None = None  # bool (N,), whether the second range stands before the first in the text
    two_texts: bool = False  # whether each example is two texts, of one range each, that the encoder reads separately
    negatives: int = 0  # maximum number of ranges after the two texts; each is a hard negative of the example

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def paired(self) -> bool:
        """Whether the examples are pairs of segments."""
        return self.not_next is not None or self.swapped is not None

    def take(self, order: np.ndarray) -> "Sequences":
        """Return the examples at the indices `order`, in that order."""
        counts = np.diff(self.offsets)[order]
        offsets = offsets_of_counts(counts)
        ranges = np.arange(offsets[-1]) + np.repeat(self.offsets[order] - offsets[:-1], counts)
        return Sequences(
            starts=self.starts[ranges],
            ends=self.ends[ranges],
            offsets=offsets,
            document_a=self.document_a[order],
            document_b=self.document_b[order],
            not_next=None if self.not_next is None else self.not_next[order],
            swapped=None if self.swapped is None else self.swapped[order],
            two_texts=self.two_texts,
            negatives=self.negatives,
        )


def offsets_of_counts(counts: np.ndarray) -> np.ndarray:
    """Return the offsets of runs of these lengths, int64 (len(counts) + 1,)."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def pairs_of_segments(
    a: tuple[np.ndarray, np.ndarray],
    b: tuple[np.ndarray, np.ndarray],
    documents: tuple[np.ndarray, np.ndarray],
    not_next: np.ndarray | None = None,
    swapped: np.ndarray | None = None,
    *,
    two_texts: bool = False,
) -> Sequences:
    """Build sequences of two ranges each, from arrays (N,).

    `a` and `b` are (starts, ends) of the segments in the window's flat ids; `documents` are the document indices of
    `a` and of `b`.
    """
    return Sequences(
        starts=np.stack((a[0], b[0]), axis=1).ravel(),
        ends=np.stack((a[1], b[1]), axis=1).ravel(),
        offsets=2 * np.arange(len(a[0]) + 1),
        document_a=documents[0].astype(np.int32),
        document_b=documents[1].astype(np.int32),
        not_next=not_next,
        swapped=swapped,
        two_texts=two_texts,
    )


def without_empty_sentences(
    sentence_offsets: np.ndarray, document_offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return both arrays of offsets without the empty sentences."""
    filled = np.diff(sentence_offsets) > 0
    kept_before = np.concatenate(([0], np.cumsum(filled)))
    return np.concatenate((sentence_offsets[:-1][filled], sentence_offsets[-1:])), kept_before[document_offsets]


def target_lengths(documents: int, short_probability: float, maximum: int, rng: np.random.Generator) -> np.ndarray:
    """Draw for each document a target length in tokens, int64 (D,).

    The target is `maximum`, except for a share `short_probability` of the documents: their targets are uniform from 2
    to `maximum`. Source: google-research/bert, create_instances_from_document.
    """
    is_short = rng.random(documents) < short_probability
    return np.where(is_short, rng.integers(2, maximum + 1, documents), maximum)


def follow_chain(following: np.ndarray) -> np.ndarray:
    """Return the indices visited from 0 on, int64, where `following` holds the successor of each index.

    Each successor must be greater than its index. The chain ends at the first successor that is out of range.
    """
    # This loop is the only sequential work in a window, and it is fastest on a Python list.
    successors = following.tolist()
    index, visited = 0, []
    while index < len(successors):
        visited.append(index)
        index = successors[index]
    return np.array(visited, np.int64)
