"""Measure encoders by pairs of texts that were held out: given one text of a pair, is the other one found?"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa

from pipeline.adapt.documents import own_id
from pipeline.adapt.pairs import Pairs
from pipeline.config.data import TitleParagraph, TwoCrops
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import own_titles, window_lines
from pipeline.text.pairs import PAIRINGS
from pipeline.text.randomness import generator
from pipeline.text.single_texts import strings_of

MOST_PAIRS = 300
"""Pairs that are measured; their vectors take a laptop a minute."""
READ_WINDOWS = 20
"""Training windows that are searched for held-out texts, which they may repeat."""
PASSAGE = 60
"""Minimum characters of a text that must not stand within a training text. Shorter ones must be no title or line."""
HALF_CHARACTERS = 400
"""Maximum characters of a half of a text, for text without paragraphs."""


@dataclass(frozen=True, kw_only=True)
class TextPair:
    """Two texts of one document."""

    query: str
    text: str
    document: str
    """Id of the document in the user's file."""


def pairs_of(windows: Iterable[pa.Table], pairs: Pairs, tokenizer: CachedTokenizer, length: int) -> list[TextPair]:
    """Return pairs of texts of documents (schema DOCUMENT), in random order, with different queries.

    At most 2 MOST_PAIRS are returned. They are made as for training, but two halves of a text stand in for two crops,
    because crops may overlap.
    """
    made: dict[str, TextPair] = {}
    for number, documents in enumerate(windows):
        for pair in _pairs_of_window(documents, pairs, tokenizer, length, number):
            if pair.query != pair.text:
                made.setdefault(pair.query, pair)
        if len(made) >= 2 * MOST_PAIRS:
            break
    order = generator(0, 0, 0, "held-out pairs").permutation(len(made))[: 2 * MOST_PAIRS]
    every = list(made.values())
    return [every[index] for index in order.tolist()]


def _pairs_of_window(
    documents: pa.Table, pairs: Pairs, tokenizer: CachedTokenizer, length: int, window: int
) -> Iterator[TextPair]:
    """Yield the pairs of the documents of a window, whose number is `window`."""
    parents = documents["parent"].to_pylist()
    if not parents:
        return
    if isinstance(pairs, TwoCrops):
        for parent, text in zip(parents, documents["text"].to_pylist(), strict=True):
            yield from (TextPair(query=first, text=second, document=own_id(parent)) for first, second in halves(text))
        return
    lines, document_offsets = window_lines(documents, titles=isinstance(pairs, TitleParagraph))
    _, offsets = tokenizer.encode(lines)
    rng = generator(0, 0, window, "held-out pairs of a window")
    sequences = PAIRINGS[type(pairs)](pairs, offsets, document_offsets, np.arange(len(parents)), length, rng)
    texts = strings_of(lines, offsets, sequences, keep_spaces=False)
    for query, text, document in zip(texts[::2], texts[1::2], sequences.document_a.tolist(), strict=True):
        yield TextPair(query=query, text=text, document=own_id(parents[document]))


def halves(text: str) -> Iterator[tuple[str, str]]:
    """Yield both halves of each stretch of a text, cut between words if there is white space near."""
    text = " ".join(text.split())
    stretches = -(-len(text) // (2 * HALF_CHARACTERS))
    edges = [len(text) * edge // (2 * stretches) for edge in range(2 * stretches + 1)] if text else []
    edges = [edge if (space := text.find(" ", edge, edge + 30)) < 0 or edge == 0 else space for edge in edges]
    pieces = [text[start:end].strip() for start, end in zip(edges, edges[1:])]
    yield from ((first, second) for first, second in zip(pieces[::2], pieces[1::2]) if first and second)


def unseen(pairs: Sequence[TextPair], training: Iterable[pa.Table]) -> list[TextPair]:
    """Return the pairs of which no text stands in training documents (schema DOCUMENT), nor is the title of one."""
    wanted = {text for pair in pairs for text in (pair.query, pair.text)}
    for documents in islice(training, READ_WINDOWS):
        texts = documents["text"].to_pylist()
        known = {*own_titles(documents), *(line for text in texts for line in text.split("\n"))}
        whole = " ".join(" ".join(text.split()) for text in texts)
        wanted = {text for text in wanted - known if len(text) < PASSAGE or text not in whole}
    return [pair for pair in pairs if {pair.query, pair.text} <= wanted]
