"""Next-sentence prediction: does segment B follow segment A, or does B come from another document?"""

import numpy as np

from pipeline.config.data import NextSentence
from pipeline.text.chunks import draw_chunks, sentence_reaching, truncate
from pipeline.text.sequences import Sequences, follow_chain, pairs_of_segments
from pipeline.text.template import ONE_SEPARATOR, Template


class OtherParents:
    """Uniform draws of documents with another parent.

    The documents are sorted by parent, so the documents of one parent form a range, and a draw can skip this range.
    """

    def __init__(self, parents: np.ndarray) -> None:
        self.documents = np.argsort(parents, kind="stable")
        ranked = parents[self.documents]
        self.first = np.searchsorted(ranked, parents, side="left")
        self.last = np.searchsorted(ranked, parents, side="right")

    def draw(self, documents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw for each of `documents` a document with another parent, int64 (len(documents),).

        The window must have at least two parents.
        """
        first, last = self.first[documents], self.last[documents]
        index = rng.integers(0, len(self.documents) - (last - first))
        return self.documents[np.where(index < first, index, index + last - first)]


def next_sentence_pairs(
    settings: NextSentence,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
    template: Template = ONE_SEPARATOR,
) -> Sequences:
    """Sample segment pairs as google-research/bert's create_instances_from_document does; arguments as in `Pairing`.

    Unlike in google-research/bert, segment B of a NotNext pair never comes from A's own parent. So in a window with a
    single parent, all pairs are IsNext, and a chunk of a single sentence gives no pair. Source: Devlin et al. 2019,
    section A.2.
    """
    maximum = maximum_length - template.specials_of_pair
    chunks = draw_chunks(settings.short_probability, sentence_offsets, document_offsets, maximum, rng)
    is_next = rng.random(len(chunks.owner)) < 0.5
    parents = parents[chunks.documents]
    several_parents = len(np.unique(parents)) > 1
    not_next = chunks.single | ~is_next if several_parents else np.zeros(len(is_next), bool)
    # The sentences after A in a NotNext chunk are not used as B, so they begin the next chunk.
    first = follow_chain(np.where(not_next, chunks.a_ends, chunks.chunk_ends))
    first = first[not_next[first] | ~chunks.single[first]]
    not_next, a_end, owner = not_next[first], chunks.a_ends[first], chunks.owner[first]
    b_first, b_end, b_owner = a_end.copy(), chunks.chunk_ends[first], owner.copy()
    if several_parents:
        b_owner[not_next] = others = OtherParents(parents).draw(owner[not_next], rng)
        b_first[not_next] = b = rng.integers(chunks.starts[others], chunks.ends[others])
        wanted = chunks.targets[owner] - (chunks.places[a_end] - chunks.places[first])
        # B gets a sentence even if A alone has reached the target length.
        b_end[not_next] = sentence_reaching(
            chunks.places, chunks.places[b] + np.maximum(wanted[not_next], 1), chunks.ends[others]
        )
    ranges = truncate(
        *(chunks.places[sentence] for sentence in (first, a_end, b_first, b_end)), maximum=maximum, rng=rng
    )
    return pairs_of_segments(
        ranges[:2], ranges[2:], (chunks.documents[owner], chunks.documents[b_owner]), not_next=not_next
    )
