"""Sentence-order prediction: which of two consecutive segments came first?"""

import numpy as np

from pipeline.config.data import SentenceOrder
from pipeline.text.chunks import draw_chunks, truncate
from pipeline.text.sequences import Sequences, follow_chain, pairs_of_segments
from pipeline.text.template import ONE_SEPARATOR, Template


def sentence_order_pairs(
    settings: SentenceOrder,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
    template: Template = ONE_SEPARATOR,
) -> Sequences:
    """Sample pairs of consecutive segments of a document, each swapped by a fair coin; arguments as in `Pairing`.

    Chunks and truncation are those of next-sentence prediction. A chunk of a single sentence gives no pair. (For such a
    chunk, google-research/albert takes B from another document and labels the pair as swapped.) Source: Lan et al.
    2020, section 3.1.
    """
    maximum = maximum_length - template.specials_of_pair
    chunks = draw_chunks(settings.short_probability, sentence_offsets, document_offsets, maximum, rng)
    first = follow_chain(chunks.chunk_ends)
    first = first[~chunks.single[first]]
    start, middle, end = (
        chunks.places[sentence] for sentence in (first, chunks.a_ends[first], chunks.chunk_ends[first])
    )
    swapped = rng.random(len(first)) < 0.5
    a = np.where(swapped, (middle, end), (start, middle))
    b = np.where(swapped, (start, middle), (middle, end))
    ranges = truncate(*a, *b, maximum=maximum, rng=rng)
    documents = chunks.documents[chunks.owner[first]]
    return pairs_of_segments(ranges[:2], ranges[2:], (documents, documents), swapped=swapped)
