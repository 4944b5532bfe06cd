"""Sentences of a window to chunks of a target length, and chunks to segments A and B: what the two pair tasks have in common.

S sentences, D documents, N pairs.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.text.sequences import target_lengths, without_empty_sentences

SPECIALS_IN_A_PAIR = 3  # [CLS] A [SEP] B [SEP]


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """What a chunk would be, for every sentence that may begin one: all of it is drawn before it is known which sentences do.

    Sentences without tokens and documents without sentences are left out.
    """

    places: np.ndarray  # int64 (S + 1,), token places of the sentences in the window's flat ids
    starts: np.ndarray  # int64 (D,), first sentence of each document
    ends: np.ndarray  # int64 (D,), one past its last sentence
    documents: np.ndarray  # int64 (D,), place of the document in the window
    targets: np.ndarray  # int64 (D,), tokens that a chunk should have
    owner: np.ndarray  # int64 (S,), which of the D documents a sentence is in
    chunk_ends: np.ndarray  # int64 (S,), one past the last sentence of the chunk that begins here
    a_ends: (
        np.ndarray
    )  # int64 (S,), one past the last sentence of segment A, which never takes the whole of a chunk of several

    @property
    def single(self) -> np.ndarray:
        """Whether the chunk is one sentence, bool (S,): it has no segment B."""
        return self.chunk_ends - np.arange(len(self.owner)) == 1


def draw_chunks(
    short_probability: float,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    maximum: int,
    rng: np.random.Generator,
) -> Chunks:
    """Chunks of sentences up to the one with which they have their document's target length; A's share is drawn sentence by sentence.

    Offsets as in the pairings; no target is above `maximum` tokens. Source: google-research/bert, create_instances_from_document.
    """
    places, bounds = without_empty_sentences(sentence_offsets, document_offsets)
    documents = np.flatnonzero(np.diff(bounds))
    starts, ends = bounds[documents], bounds[documents + 1]
    targets = target_lengths(len(documents), short_probability, maximum, rng)
    owner = np.repeat(np.arange(len(documents)), ends - starts)
    chunk_ends = sentence_reaching(places, places[:-1] + targets[owner], ends[owner])
    first = np.arange(len(owner))
    a_ends = first + 1 + (rng.random(len(owner)) * (chunk_ends - first - 1)).astype(np.int64)
    return Chunks(
        places=places,
        starts=starts,
        ends=ends,
        documents=documents,
        targets=targets,
        owner=owner,
        chunk_ends=chunk_ends,
        a_ends=a_ends,
    )


def sentence_reaching(places: np.ndarray, reached: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """One past the sentence with which the token place `reached` is reached, int64, or the limit (a sentence) where that is before."""
    return np.minimum(np.searchsorted(places, reached, side="left"), limits)


def truncate(
    a_start: np.ndarray,
    a_end: np.ndarray,
    b_start: np.ndarray,
    b_end: np.ndarray,
    *,
    maximum: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The ranges cut to `maximum` tokens a pair: token by token the longer segment (B, when they are equal) loses its first or its
    last token, by a fair coin.

    Closed form of google's truncate_seq_pair: the lengths left are determined, and of the tokens that a segment loses a
    Binomial(lost, 1/2) number is from its front.
    """
    a, b = a_end - a_start, b_end - b_start
    shorter = np.minimum(a, b)
    kept_a = np.where(shorter > maximum // 2, (maximum + 1) // 2, np.where(a > b, maximum - shorter, a))
    kept_b = np.where(shorter > maximum // 2, maximum // 2, np.where(a > b, b, maximum - shorter))
    fits = a + b <= maximum
    lost_a, lost_b = np.where(fits, 0, a - kept_a), np.where(fits, 0, b - kept_b)
    front_a, front_b = rng.binomial(lost_a, 0.5), rng.binomial(lost_b, 0.5)
    return a_start + front_a, a_end - (lost_a - front_a), b_start + front_b, b_end - (lost_b - front_b)
