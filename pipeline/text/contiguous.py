"""Sequences without a pair task: they cover a window's text from beginning to end, each token once.

Shapes: S sentences, D documents, N examples.
"""

import numpy as np

from pipeline.config.data import FullSentences, SingleSegment
from pipeline.text.sequences import Sequences, follow_chain, target_lengths
from pipeline.text.template import ONE_SEPARATOR, SPECIALS_OF_ONE, Template


def full_sentences(
    settings: FullSentences,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
    template: Template = ONE_SEPARATOR,
) -> Sequences:
    """Pack full sentences into sequences, in order and without randomness; arguments as in `Pairing` (pairs.py).

    With `across_documents`, a sequence that reaches the end of a document continues in the next document after a [SEP].
    This [SEP] counts towards the maximum length. Without `across_documents`, a sequence ends where its document ends. A
    sentence that is longer than a whole sequence is split. Source: Liu et al. 2019, section 4.2 (FULL-SENTENCES and
    DOC-SENTENCES).
    """
    maximum = maximum_length - SPECIALS_OF_ONE
    documents, starts, _ = _filled_documents(sentence_offsets, document_offsets)
    bounds = np.unique(sentence_offsets)
    begins = _split_evenly(bounds[:-1], np.diff(bounds), maximum)
    ends = np.append(begins, bounds[-1])[1:]
    owner = np.searchsorted(starts, begins, side="right") - 1
    if settings.across_documents:
        # The length of a sequence counts its tokens and one [SEP] for each document boundary inside it.
        following = np.searchsorted(ends + owner, begins + owner + maximum, side="right")
    else:
        last = np.append(np.searchsorted(begins, starts), len(begins))[1:]
        following = np.minimum(np.searchsorted(ends, begins + maximum, side="right"), last[owner])
    return _sequences_from_starts(begins[follow_chain(following)], documents, starts, bounds[-1])


def single_segments(
    settings: SingleSegment,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
    template: Template = ONE_SEPARATOR,
) -> Sequences:
    """Cut each document into sequences of equal length, ignoring sentences; arguments as in `Pairing` (pairs.py).

    One length is drawn per document, as for pairs (target_lengths). The last sequence of a document may be shorter.
    """
    documents, starts, lengths = _filled_documents(sentence_offsets, document_offsets)
    targets = target_lengths(len(documents), settings.short_probability, maximum_length - SPECIALS_OF_ONE, rng)
    return _sequences_from_starts(_split_evenly(starts, lengths, targets), documents, starts, sentence_offsets[-1])


def _filled_documents(
    sentence_offsets: np.ndarray, document_offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for each document that has tokens: its index in the window, token offset and length; all int64."""
    bounds = sentence_offsets[document_offsets]
    lengths = np.diff(bounds)
    documents = np.flatnonzero(lengths)
    return documents, bounds[documents], lengths[documents]


def _split_evenly(starts: np.ndarray, lengths: np.ndarray, size: np.ndarray | int) -> np.ndarray:
    """Cut each run of tokens into parts of `size` tokens, and return the starts of the parts, int64.

    `size` is one number for all runs, or an array with one number per run. No run may be empty.
    """
    counts = -(-lengths // size)
    part = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(starts, counts) + part * (size if np.isscalar(size) else np.repeat(size, counts))


def _sequences_from_starts(begins: np.ndarray, documents: np.ndarray, starts: np.ndarray, tokens: int) -> Sequences:
    """Build N sequences: sequence i runs from begins[i] to begins[i + 1], and the last sequence ends at `tokens`.

    `begins` (N,) and `tokens` are token offsets. A sequence over several documents has one range per document.
    `documents` and `starts` (D,) are the indices and token offsets of the documents.
    """
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
