"""What every pairing gives: examples as token ranges into a window's flat ids.

S sentences, D documents, N examples, R ranges.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """N examples: [CLS], and then each of an example's ranges with a [SEP] after it.

    A pairing that asks something of two segments has two ranges an example and one of the two labels; the others have no label.
    """

    starts: np.ndarray  # int64 (R,), first token of each range in the window's flat ids
    ends: np.ndarray  # int64 (R,), one past its last token
    offsets: np.ndarray  # int64 (N + 1,), where each example's ranges begin, and the last's end
    document_a: np.ndarray  # int32 (N,), place of the first range's document in the window
    document_b: (
        np.ndarray
    )  # int32 (N,), of the last range's; the documents between, if any, are those between in the window
    not_next: np.ndarray | None = None  # bool (N,), the second range is from another parent
    swapped: np.ndarray | None = None  # bool (N,), the second range stands before the first in its document

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def paired(self) -> bool:
        """Whether an example is a pair of segments."""
        return self.not_next is not None or self.swapped is not None

    def take(self, order: np.ndarray) -> "Sequences":
        """The examples at the places `order` (int), in that order."""
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
        )


def offsets_of_counts(counts: np.ndarray) -> np.ndarray:
    """Where runs of so many things begin, and the last's end: int64 (len + 1,)."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def pairs_of_segments(
    a: tuple[np.ndarray, np.ndarray],
    b: tuple[np.ndarray, np.ndarray],
    documents: tuple[np.ndarray, np.ndarray],
    not_next: np.ndarray | None = None,
    swapped: np.ndarray | None = None,
) -> Sequences:
    """Sequences of two ranges each: `a` and `b` are (starts, ends), each (N,) as all other arrays."""
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
    """Both offsets as they are when the sentences that have no tokens are left out."""
    filled = np.diff(sentence_offsets) > 0
    kept_before = np.concatenate(([0], np.cumsum(filled)))
    return np.concatenate((sentence_offsets[:-1][filled], sentence_offsets[-1:])), kept_before[document_offsets]


def target_lengths(documents: int, short_probability: float, maximum: int, rng: np.random.Generator) -> np.ndarray:
    """How long each document's sequences should be, int64 (D,): `maximum`, or for a share of them from 2 to `maximum`, all alike.

    Source: google-research/bert, create_instances_from_document.
    """
    is_short = rng.random(documents) < short_probability
    return np.where(is_short, rng.integers(2, maximum + 1, documents), maximum)


def follow_chain(following: np.ndarray) -> np.ndarray:
    """The places from 0 on that are reached when each place names the one that follows it, which is greater; int64.

    What a place is followed by must not depend on how it was reached. The chain ends at the first place outside.
    """
    following, place, reached = (
        following.tolist(),
        0,
        [],
    )  # of all the work in a window this alone has an order: a list is the fastest
    while place < len(following):
        reached.append(place)
        place = following[place]
    return np.array(reached, np.int64)
