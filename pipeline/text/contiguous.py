"""Sequences without a pair task: the text of a window from beginning to end, each token once.

S sentences, D documents, N examples.
"""

import numpy as np

from pipeline.config.data import FullSentences, SingleSegment
from pipeline.text.sequences import Sequences, follow_chain, target_lengths

SPECIALS_OF_ONE = 2  # [CLS] text [SEP]


def full_sentences(
    settings: FullSentences,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
) -> Sequences:
    """As many full sentences a sequence as have room, in order; arguments as in PAIRINGS, and nothing is drawn.

    A sequence ends with its document, or goes on into the next of the window after a [SEP], which takes room too. A sentence that is
    longer than a sequence is cut into parts. Source: Liu et al. 2019, 4.2 (DOC-SENTENCES and FULL-SENTENCES).
    """
    maximum = maximum_length - SPECIALS_OF_ONE
    documents, starts, _ = filled_documents(sentence_offsets, document_offsets)
    bounds = np.unique(sentence_offsets)
    begins = split_evenly(bounds[:-1], np.diff(bounds), maximum)
    ends = np.append(begins, bounds[-1])[1:]
    owner = np.searchsorted(starts, begins, side="right") - 1
    if settings.across_documents:
        # From one sentence to another there are the tokens between and a [SEP] for each bound of documents.
        following = np.searchsorted(ends + owner, begins + owner + maximum, side="right")
    else:
        last = np.append(np.searchsorted(begins, starts), len(begins))[1:]
        following = np.minimum(np.searchsorted(ends, begins + maximum, side="right"), last[owner])
    return sequences_from_starts(begins[follow_chain(following)], documents, starts, bounds[-1])


def single_segments(
    settings: SingleSegment,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
) -> Sequences:
    """Each document cut every so many tokens, wherever sentences end; arguments as in PAIRINGS. What is left at its end is a sequence too.

    Lengths are drawn for each document as for pairs.
    """
    documents, starts, lengths = filled_documents(sentence_offsets, document_offsets)
    targets = target_lengths(len(documents), settings.short_probability, maximum_length - SPECIALS_OF_ONE, rng)
    return sequences_from_starts(split_evenly(starts, lengths, targets), documents, starts, sentence_offsets[-1])


def filled_documents(
    sentence_offsets: np.ndarray, document_offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The documents that have tokens, as places in the window, where they begin in its flat ids, and how many they have; all int64."""
    bounds = sentence_offsets[document_offsets]
    lengths = np.diff(bounds)
    documents = np.flatnonzero(lengths)
    return documents, bounds[documents], lengths[documents]


def split_evenly(starts: np.ndarray, lengths: np.ndarray, size: np.ndarray | int) -> np.ndarray:
    """Where the parts of the runs begin when each is cut every `size` tokens; no run is empty."""
    counts = -(-lengths // size)
    part = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(starts, counts) + part * (size if np.isscalar(size) else np.repeat(size, counts))


def sequences_from_starts(begins: np.ndarray, documents: np.ndarray, starts: np.ndarray, tokens: int) -> Sequences:
    """Sequences from `begins` (N,) on, each to the next; where documents begin (`starts`), a range ends."""
    ranges = np.union1d(begins, starts)
    offsets = np.append(np.searchsorted(ranges, begins), len(ranges))
    owner = documents[np.searchsorted(starts, ranges, side="right") - 1].astype(np.int32)
    return Sequences(
        starts=ranges,
        ends=np.append(ranges, tokens)[1:],
        offsets=offsets,
        document_a=owner[offsets[:-1]],
        document_b=owner[offsets[1:] - 1],
    )
