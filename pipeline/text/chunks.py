"""Cut a window's sentences into chunks, and each chunk into segments A and B, for both pair tasks.

Shapes: S sentences, D documents, N pairs.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.text.sequences import target_lengths, without_empty_sentences


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """Candidate chunks: for each sentence, the chunk that would begin at this sentence.

    In the end, only some sentences begin a chunk (follow_chain). Which sentences these are is known only later, so a
    chunk is drawn for every sentence. Empty sentences and documents are left out.
    """

    places: np.ndarray  # int64 (S + 1,), token offsets of the sentences in the window's flat ids
    starts: np.ndarray  # int64 (D,), first sentence of each document
    ends: np.ndarray  # int64 (D,), one past the last sentence of each document
    documents: np.ndarray  # int64 (D,), index of each document in the window
    targets: np.ndarray  # int64 (D,), target length of each document's chunks, in tokens
    owner: np.ndarray  # int64 (S,), index of each sentence's document, 0 to D - 1
    chunk_ends: np.ndarray  # int64 (S,), one past the last sentence of each chunk
    # int64 (S,), one past the last sentence of segment A; a chunk of several sentences leaves at least one for B
    a_ends: np.ndarray

    @property
    def single(self) -> np.ndarray:
        """Whether each chunk is a single sentence and therefore has no segment B, bool (S,)."""
        return self.chunk_ends - np.arange(len(self.owner)) == 1


def draw_chunks(
    short_probability: float,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    maximum: int,
    rng: np.random.Generator,
) -> Chunks:
    """Draw a chunk for each sentence: add the following sentences until the chunk has its document's target length.

    A target length of at most `maximum` tokens is drawn for each document. The number of sentences in segment A is
    drawn for each chunk. The offsets are as in `Pairing` (pairs.py). Source: google-research/bert,
    create_instances_from_document.
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
    """Return for each token offset in `reached` one past the first sentence that ends at or after this offset, int64.

    The results are sentence indices, and are at most `limits`.
    """
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
    """Truncate each pair of segments to at most `maximum` tokens; return the new starts and ends, in the same order.

    Starts and ends are token offsets, int64 (N,). In google-research/bert, truncate_seq_pair removes single tokens from
    the longer segment (B if both are equally long) until the pair fits. A fair coin chooses between the segment's first
    and last token. This function is the closed form: the final lengths do not depend on the coins, and the number of
    tokens that a segment loses at its front is Binomial(lost, 1/2).
    """
    a, b = a_end - a_start, b_end - b_start
    shorter = np.minimum(a, b)
    kept_a = np.where(shorter > maximum // 2, (maximum + 1) // 2, np.where(a > b, maximum - shorter, a))
    kept_b = np.where(shorter > maximum // 2, maximum // 2, np.where(a > b, b, maximum - shorter))
    fits = a + b <= maximum
    lost_a, lost_b = np.where(fits, 0, a - kept_a), np.where(fits, 0, b - kept_b)
    front_a, front_b = rng.binomial(lost_a, 0.5), rng.binomial(lost_b, 0.5)
    return a_start + front_a, a_end - (lost_a - front_a), b_start + front_b, b_end - (lost_b - front_b)
