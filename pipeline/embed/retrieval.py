"""Score an embedding model on a retrieval collection, next to BM25, the untrained encoder and a cross-encoder."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from pipeline.command_line.columns import aligned
from pipeline.config.measurements import RetrievalScore
from pipeline.embed.encoders import MODEL, load_encoders, named
from pipeline.embed.loaded import LoadedEncoder
from pipeline.evaluation.paired import format_difference, over_rows
from pipeline.evaluation.retrieval import bm25
from pipeline.evaluation.retrieval.measures import MEASURES, measure
from pipeline.evaluation.retrieval.ranking import rank_by_cosine, tie_ranks
from pipeline.evaluation.retrieval.reading import read_collection
from pipeline.predict import cross_encoder
from pipeline.predict.cross_encoder import CrossEncoder, score_pairs
from pipeline.reporting import Report
from pipeline.saved.prompts import OF_DOCUMENTS, OF_QUERIES

RERANKED = "reranked"
"""The model, with its best documents in the order of the cross-encoder's scores."""
FIRST = next(iter(MEASURES))
"""Measure whose difference between two systems is reported with an interval."""
Measured = Mapping[str, Mapping[str, np.ndarray]]
"""System -> measure -> value of each query, float64 (queries,)."""


def score_retrieval(config: RetrievalScore, report: Report) -> dict[str, float]:
    """Report the measures of each system, and return them as shares of 1.

    The keys are MEASURE for the model and "SYSTEM MEASURE" for other systems. An encoder ranks documents by the cosine
    of their vectors with the query's vector; both have the model's prompts for their side. Raises PipelineError if
    config.retrieval is not a collection, or a checkpoint has no encoder, or config.rerank does not score pairs.
    """
    collection = read_collection(config.retrieval, config.split, skip=config.on_bad_rows == "skip")
    encoders, second = load_encoders(config), config.reranker
    reranker = None if second is None else cross_encoder.load(second.checkpoint, second.label, config.placement)
    ids, documents, queries = (
        list(collection.documents), list(collection.documents.values()), list(collection.queries.values())
    )  # fmt: skip
    counts = f"{len(documents):,} documents, {len(queries):,} queries, {collection.relevant:,} relevant judgements"
    report(", ".join([f"{collection.name}: {counts}", *collection.notes]))
    ties, own = tie_ranks(ids), collection.own_indices()
    rankings = {bm25.NAME: bm25.rank_by_bm25(queries, documents, ties, own)} | {
        name: rank_by_cosine(
            vectors_with(encoder, OF_QUERIES, queries), vectors_with(encoder, OF_DOCUMENTS, documents), ties, own
        )
        for name, encoder in encoders.items()
    }
    if second is not None and reranker is not None:
        rankings[RERANKED] = reranked(reranker, queries, documents, rankings[MODEL], second.top, report)
    grades = list(collection.grades.values())
    measured = {system: measure(ranked, ids, grades) for system, ranked in rankings.items()}
    for line in (*_name_lines(config), *table_lines(measured), *difference_lines(measured, _compared(measured))):
        report(line)
    return {
        name if system == MODEL else f"{system} {name}": float(values.mean())
        for system, by_name in measured.items()
        for name, values in by_name.items()
    }


def vectors_with(encoder: LoadedEncoder, prompts: tuple[str, ...], texts: Sequence[str]) -> np.ndarray:
    """Return the vectors of texts, float32 (texts, dimension), with the model's first prompt that has a name in
    `prompts`, or else its default prompt.
    """
    words = encoder.recipe.prompt(None, prompts)
    return encoder.embed([words + text for text in texts], prompt="")


def reranked(
    encoder: CrossEncoder,
    queries: Sequence[str],
    documents: Sequence[str],
    rankings: Sequence[np.ndarray],
    top: int,
    report: Report,
) -> list[np.ndarray]:
    """Return rankings whose first `top` documents are sorted by the scores of the cross-encoder.

    Documents with equal scores keep their order. The documents after the first `top` keep their ranks.
    """
    pairs = [
        (query, documents[index]) for query, ranked in zip(queries, rankings, strict=True) for index in ranked[:top]
    ]
    ends = accumulate(len(ranked[:top]) for ranked in rankings)
    scores = np.split(score_pairs(encoder, pairs, report), list(ends)[:-1])
    orders = [np.argsort(-of_query, kind="stable") for of_query in scores]
    return [np.concatenate([ranked[:top][order], ranked[top:]]) for ranked, order in zip(rankings, orders, strict=True)]


def _name_lines(config: RetrievalScore) -> list[str]:
    """Return the lines that say what the systems of the table are."""
    lines, second = [named(config)], config.reranker
    if second is not None:
        lines.append(f"{RERANKED}: the first {second.top:,} documents of {MODEL}, in the order of {second.checkpoint}")
    return [*lines, bm25.DESCRIPTION]


def _compared(measured: Measured) -> list[tuple[str, str]]:
    """Return the pairs of systems to compare: the model with the others, and the reranked model with the model."""
    others = [(MODEL, system) for system in measured if system not in (MODEL, RERANKED)]
    return others + [(RERANKED, MODEL)] * (RERANKED in measured)


def table_lines(measured: Measured) -> list[str]:
    """Return the lines of a table: the mean of each measure over queries in percent, for each system."""
    rows = [[system, *(f"{100 * values.mean():.1f}" for values in by.values())] for system, by in measured.items()]
    return aligned(["%", *next(iter(measured.values()))], rows)


def difference_lines(
    measured: Measured, compared: Sequence[tuple[str, str]], measures: Sequence[str] = (FIRST,)
) -> list[str]:
    """Return a line per measure and pair (system, other): the system's minus that of the other, with the interval."""
    return [
        *(_difference_line(measured, name, system, other) for name in measures for system, other in compared),
        "in brackets: 95% interval, paired bootstrap over queries",
    ]


def _difference_line(measured: Measured, name: str, system: str, other: str) -> str:
    """Return the line of a measure of a system minus that of another one, with the interval over queries."""
    values, of_other = measured[system][name], measured[other][name]
    difference = over_rows(
        lambda rows: float(of_other[rows].mean()), lambda rows: float(values[rows].mean()), len(values)
    )
    return f"{name} of {system} minus {other}: {format_difference(difference, percent=True)}"
