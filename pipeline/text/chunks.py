"""Cut the sentences of a window into chunks and chunks into segments A and B, for both pair tasks.

S sentences, D documents, N pairs.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.text.sequences import target_lengths, without_empty_sentences


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """The chunk that would begin at each sentence.

    All of it is drawn before the chain of chunks shows which sentences do begin one.

    Empty sentences and documents are left out.
    """

    places: np.ndarray  # int64 (S + 1,), token offsets of the sentences in the window's flat ids
    starts: np.ndarray  # int64 (D,), first sentence of each document
    ends: np.ndarray  # int64 (D,), one past its last sentence
    documents: np.ndarray  # int64 (D,), index of the document in the window
    targets: np.ndarray  # int64 (D,), target length of its chunks in tokens
    owner: np.ndarray  # int64 (S,), index into the D documents of each sentence's document
    chunk_ends: np.ndarray  # int64 (S,), one past the last sentence of the chunk that begins here
    # One past the last sentence of segment A, int64 (S,); A never takes all of a chunk of several sentences.
    a_ends: np.ndarray

    @property
    def single(self) -> np.ndarray:
        """Whether a chunk is a single sentence and so has no segment B, bool (S,)."""
        return self.chunk_ends - np.arange(len(self.owner)) == 1


def draw_chunks(
    short_probability: float,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    maximum: int,
    rng: np.random.Generator,
) -> Chunks:
    """Draw chunks: sentences are added until a chunk has its document's target length.

    The number of sentences in segment A is drawn for each chunk. Offsets are as in PAIRINGS. No target exceeds
    `maximum` tokens. Source: google-research/bert, create_instances_from_document.
    """
    token_offsets, bounds = without_empty_sentences(sentence_offsets, document_offsets)
    documents = np.flatnonzero(np.diff(bounds))
    starts, ends = bounds[documents], bounds[documents + 1]
    targets = target_lengths(len(documents), short_probability, maximum, rng)
    owner = np.repeat(np.arange(len(documents)), ends - starts)
    chunk_ends = sentence_reaching(token_offsets, token_offsets[:-1] + targets[owner], ends[owner])
    first = np.arange(len(owner))
    a_ends = first + 1 + (rng.random(len(owner)) * (chunk_ends - first - 1)).astype(np.int64)
    return Chunks(
        places=token_offsets,
        starts=starts,
        ends=ends,
        documents=documents,
        targets=targets,
        owner=owner,
        chunk_ends=chunk_ends,
        a_ends=a_ends,
    )


def sentence_reaching(token_offsets: np.ndarray, reached: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return one past the sentence that reaches token offset `reached`, int64, or the limit (a sentence) if lower."""
    return np.minimum(np.searchsorted(token_offsets, reached, side="left"), limits)


def truncate(
    a_start: np.ndarray,
    a_end: np.ndarray,
    b_start: np.ndarray,
    b_end: np.ndarray,
    *,
    maximum: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Truncate each pair to `maximum` tokens.

    Token by token, the longer segment (B if they are equal) loses its first or last token by a fair coin. This is a
    closed form of google's truncate_seq_pair: the remaining lengths are determined, and the number of tokens that a
    segment loses at its front is Binomial(lost, 1/2).
    """
    a, b = a_end - a_start, b_end - b_start
    shorter = np.minimum(a, b)
    kept_a = np.where(shorter > maximum // 2, (maximum + 1) // 2, np.where(a > b, maximum - shorter, a))
    kept_b = np.where(shorter > maximum // 2, maximum // 2, np.where(a > b, b, maximum - shorter))
    fits = a + b <= maximum
    lost_a, lost_b = np.where(fits, 0, a - kept_a), np.where(fits, 0, b - kept_b)
    front_a, front_b = rng.binomial(lost_a, 0.5), rng.binomial(lost_b, 0.5)
    return a_start + front_a, a_end - (lost_a - front_a), b_start + front_b, b_end - (lost_b - front_b)
