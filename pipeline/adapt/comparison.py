"""Compare encoders by held-out pairs: each query searches its other text among texts of the corpus.

OUTPUT/heldout.json    the printed lines, so that a later command need not measure again
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from pipeline.adapt.evidence import TextPair, pairs_of
from pipeline.adapt.heldout import LEAST_PAIRS, HeldOut, tables
from pipeline.adapt.start import AdaptStart
from pipeline.adapt.steps import ADAPTED, FOUND
from pipeline.config.data import TwoCrops
from pipeline.config.embed import Embed
from pipeline.embed import model
from pipeline.embed.query_files import Query
from pipeline.embed.results import result_table
from pipeline.embed.retrieval import difference_lines, table_lines
from pipeline.embed.search import Found, comparable
from pipeline.evaluation.retrieval import bm25
from pipeline.evaluation.retrieval.measures import OF_PAIRS, measure
from pipeline.evaluation.retrieval.ranking import rank, tie_ranks
from pipeline.files import storage
from pipeline.reporting import Report
from pipeline.saved.prompts import OF_DOCUMENTS, OF_QUERIES
from pipeline.text.cached_tokenizer import CachedTokenizer

RECORD = "heldout.json"
TEXTS = 1_000
"""Texts that are searched: those of the pairs, and others of the training text."""
SHOWN = 5
"""Queries that are shown with what they find."""
LONGEST_QUERY = 200
"""Characters of a query that are shown."""
HALVES = "both halves of a text"
NONE = (
    f"no numbers: the text is too small to keep {LEAST_PAIRS} pairs of texts out of the training. --queries, a query "
    "or a file of queries, shows what both encoders find; with --judgements, it is measured"
)
Encode = Callable[[Sequence[str], tuple[str, ...]], np.ndarray]
"""Function of texts and of the usual names of their prompt; returns vectors whose products are similarities, float32
(texts, D).
"""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Texts that are searched, each once: those of the pairs, then others of the training text."""

    texts: tuple[str, ...]
    documents: tuple[str, ...]
    """Id of the document of each text, in the user's file."""


def searched_texts(pairs: Sequence[TextPair], others: Sequence[TextPair], most: int) -> Texts:
    """Return the texts of the pairs, and so many texts of `others` that there are `most`."""
    documents = {pair.text: pair.document for pair in pairs}
    for other in others:
        if len(documents) >= most:
            break
        documents.setdefault(other.text, other.document)
    return Texts(texts=tuple(documents), documents=tuple(documents.values()))


def compare(pairs: Sequence[TextPair], texts: Texts, encoders: Mapping[str, Encode]) -> list[str]:
    """Return the lines of the table, and of the first queries with what they find.

    Measures are those of OF_PAIRS: one text is relevant for each query. The query itself is never found.
    """
    index = {text: number for number, text in enumerate(texts.texts)}
    ids = [f"{number:06d}" for number in range(len(texts.texts))]
    ties, own = tie_ranks(ids), [index.get(pair.query) for pair in pairs]
    queries = [pair.query for pair in pairs]
    rankings = {bm25.NAME: bm25.rank_by_bm25(queries, texts.texts, ties, own)}
    scores = {}
    for system, encode in encoders.items():
        scores[system] = encode(queries, OF_QUERIES) @ encode(texts.texts, OF_DOCUMENTS).T
        rankings[system] = [rank(row, ties, without=out) for row, out in zip(scores[system], own, strict=True)]
    grades = [{ids[index[pair.text]]: 1} for pair in pairs]
    measured = {system: measure(ranked, ids, grades, OF_PAIRS) for system, ranked in rankings.items()}
    compared = [(ADAPTED, system) for system in measured if system != ADAPTED]
    examples = [
        _example(pair, index[pair.text], texts, system, rankings[system][number], scores[system][number])
        for number, pair in enumerate(pairs[:SHOWN])
        for system in scores
    ]
    table = [*table_lines(measured), *difference_lines(measured, compared, list(OF_PAIRS))]
    return [bm25.DESCRIPTION, *table, *examples]


def _example(pair: TextPair, right: int, texts: Texts, system: str, ranked: np.ndarray, scores: np.ndarray) -> str:
    """Return a query, the rank of its text, and the first texts that an encoder finds."""
    place = np.flatnonzero(ranked == right)
    words = pair.query if len(pair.query) <= LONGEST_QUERY else f"{pair.query[:LONGEST_QUERY]}…"
    at = f"its text has rank {place[0] + 1:,}" if len(place) else "its text is not found"
    found = [
        Found(
            id=texts.documents[text], score=float(scores[text]), chunk=0, start=0, end=len(texts.texts[text]),
            title=None, text=texts.texts[text],
        )
        for text in ranked[:FOUND].tolist()
    ]  # fmt: skip
    return result_table(Query(id="", text=f"\n{words} ({system}: {at})"), found)


def heldout_lines(
    output: str, heldout: HeldOut, encoders: Mapping[str, Embed], start: AdaptStart, report: Report
) -> list[str]:
    """Return the lines of the comparison on held-out pairs, which is recorded in the output; `encoders` by system.

    Without held-out pairs, return a line that says why there is none, and what would work.
    """
    if not heldout.pairs:
        return [NONE]
    location = storage.join(output, RECORD)
    recorded = storage.read_object(location)
    if recorded is None:
        report(f"comparing the encoders on {len(heldout.pairs):,} held-out pairs")
        tokenizer = CachedTokenizer(start.vocabulary)
        others = pairs_of(tables(heldout.corpus, "train"), heldout.kind, tokenizer, start.reads)
        texts = searched_texts(heldout.pairs, others, TEXTS)
        recorded = {"lines": [_head(heldout, texts), *compare(heldout.pairs, texts, _functions(encoders))]}
        storage.write_json(location, recorded)
    return list(recorded["lines"])


def _head(heldout: HeldOut, texts: Texts) -> str:
    """Return the line that says what was held out, and what is searched."""
    made = HALVES if isinstance(heldout.kind, TwoCrops) else heldout.kind.in_words
    documents = len({pair.document for pair in heldout.pairs})
    others = len(texts.texts) - len({pair.text for pair in heldout.pairs})
    return (
        f"held out of the trainings: {heldout.unit}; from there, {len(heldout.pairs):,} pairs "
        f"({made}) of {documents:,} documents. The first text of each pair searches the "
        f"other one among {len(texts.texts):,} texts, {others:,} of them of the training text:"
    )


def _functions(encoders: Mapping[str, Embed]) -> dict[str, Encode]:
    """Return the function of each encoder."""

    def function(config: Embed) -> Encode:
        @cache
        def loaded() -> model.VectorModel:
            model.use_threads(config.placement.threads)
            return model.load(config.checkpoint, config.placement, None, OF_DOCUMENTS)

        def encode(texts: Sequence[str], prompts: tuple[str, ...]) -> np.ndarray:
            recipe = loaded().model.recipe
            encoder = replace(loaded(), prompt=recipe.prompt(None, prompts))
            return comparable(encoder.vectors(texts), recipe.similarity)

        return encode

    return {system: function(config) for system, config in encoders.items()}
