"""Rows of one sentence each, without a pair task.

Shapes: S sentences, D documents.
"""

import numpy as np

from pipeline.config.data import LoneSentences
from pipeline.text.sequences import Sequences
from pipeline.text.template import ONE_SEPARATOR, SPECIALS_OF_ONE, Template


def lone_sentences(
    settings: LoneSentences,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
    template: Template = ONE_SEPARATOR,
) -> Sequences:
    """Return the sentences of `shortest` tokens or more, cut to the maximum length; arguments as in `Pairing`."""
    starts, lengths = sentence_offsets[:-1], np.diff(sentence_offsets)
    kept = np.flatnonzero(lengths >= settings.shortest)
    owner = (np.searchsorted(document_offsets, kept, side="right") - 1).astype(np.int32)
    ends = starts[kept] + np.minimum(lengths[kept], maximum_length - SPECIALS_OF_ONE)
    return Sequences(
        starts=starts[kept], ends=ends, offsets=np.arange(len(kept) + 1), document_a=owner, document_b=owner
    )
