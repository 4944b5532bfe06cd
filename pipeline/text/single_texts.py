"""Single texts of documents, and their strings, for the distillation of text vectors.

Shapes: S sentences, N texts.
"""

from collections.abc import Sequence

import numpy as np

from pipeline.config.data import Sentences
from pipeline.text.sequences import Sequences, follow_chain, without_empty_sentences
from pipeline.text.template import ONE_SEPARATOR, SPECIALS_OF_ONE, Template


def sentence_texts(
    settings: Sentences,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
    template: Template = ONE_SEPARATOR,
) -> Sequences:
    """Cut documents into texts of consecutive whole sentences, in order; arguments as in `Pairing` (pairs.py).

    The number of sentences of a text is drawn; a text has fewer if more do not fit or the document ends. A sentence
    that does not fit alone is left out.
    """
    maximum = maximum_length - SPECIALS_OF_ONE
    offsets, bounds = without_empty_sentences(sentence_offsets, document_offsets)
    owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    number = np.arange(len(owner))
    wanted = np.minimum(number + rng.integers(1, settings.most + 1, len(number)), bounds[owner + 1])
    fitting = np.searchsorted(offsets, offsets[:-1] + maximum, side="right") - 1
    following = np.maximum(np.minimum(wanted, fitting), number + 1)
    first = follow_chain(following)
    first = first[offsets[following[first]] - offsets[first] <= maximum]
    documents = owner[first].astype(np.int32)
    return Sequences(
        starts=offsets[first],
        ends=offsets[following[first]],
        offsets=np.arange(len(first) + 1),
        document_a=documents,
        document_b=documents,
    )


def strings_of(
    sentences: Sequence[str], sentence_offsets: np.ndarray, sequences: Sequences, *, keep_spaces: bool
) -> list[str]:
    """Return the string of each text, N strings: its sentences, joined by spaces.

    The texts begin and end at sentences. `keep_spaces`: the sentences have their own spaces, as in split_sentences with
    `join_lines`.
    """
    firsts = np.searchsorted(sentence_offsets, sequences.starts, side="right") - 1
    ends = np.searchsorted(sentence_offsets, sequences.ends, side="left")
    between = "" if keep_spaces else " "
    return [between.join(sentences[first:end]).strip() for first, end in zip(firsts.tolist(), ends.tolist())]
