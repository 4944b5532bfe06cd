"""Score an embedding model on a retrieval collection, next to BM25 and the untrained encoder."""

from collections.abc import Mapping

import numpy as np

from pipeline.columns import aligned
from pipeline.config.predict import Score
from pipeline.finetune.paired import format_difference, over_rows
from pipeline.predict.encoders import MODEL, load_encoders, named
from pipeline.reporting import Report
from pipeline.retrieval import bm25
from pipeline.retrieval.measures import MEASURES, measure
from pipeline.retrieval.ranking import rank_by_cosine, tie_ranks
from pipeline.retrieval.reading import read_collection

FIRST = next(iter(MEASURES))
"""Measure whose difference between two systems is reported with an interval."""
Measured = Mapping[str, Mapping[str, np.ndarray]]
"""System -> measure -> value of each query, float64 (queries,)."""


def score_retrieval(config: Score, report: Report) -> dict[str, float]:
    """Report the measures of each system, and return them as shares of 1.

    The keys are MEASURE for the model and "SYSTEM MEASURE" for other systems. An encoder ranks documents by the cosine
    of their vectors with the query's vector. Raises PipelineError if config.retrieval is not a collection, or a
    checkpoint has no encoder.
    """
    assert config.retrieval is not None
    collection = read_collection(config.retrieval, config.split, skip=config.on_bad_rows == "skip")
    encoders = load_encoders(config)
    ids, documents, queries = (
        list(collection.documents), list(collection.documents.values()), list(collection.queries.values())
    )  # fmt: skip
    counts = f"{len(documents):,} documents, {len(queries):,} queries, {collection.relevant:,} relevant judgements"
    report(", ".join([f"{collection.name}: {counts}", *collection.notes]))
    ties, own = tie_ranks(ids), collection.own_indices()
    rankings = {bm25.NAME: bm25.rank_by_bm25(queries, documents, ties, own)} | {
        name: rank_by_cosine(encoder.embed(queries), encoder.embed(documents), ties, own)
        for name, encoder in encoders.items()
    }
    grades = list(collection.grades.values())
    measured = {system: measure(ranked, ids, grades) for system, ranked in rankings.items()}
    for line in (named(config), bm25.DESCRIPTION, *table_lines(measured), *difference_lines(measured, MODEL)):
        report(line)
    return {
        name if system == MODEL else f"{system} {name}": float(values.mean())
        for system, by_name in measured.items()
        for name, values in by_name.items()
    }


def table_lines(measured: Measured) -> list[str]:
    """Return the lines of a table: the mean of each measure over queries in percent, for each system."""
    rows = [[system, *(f"{100 * values.mean():.1f}" for values in by.values())] for system, by in measured.items()]
    return aligned(["%", *MEASURES], rows)


def difference_lines(measured: Measured, tested: str) -> list[str]:
    """Return a line per other system: FIRST of the system `tested` minus its own, with the interval over queries."""
    model = measured[tested][FIRST]
    differences = {
        system: over_rows(
            lambda rows, other=by_name[FIRST]: float(other[rows].mean()),
            lambda rows: float(model[rows].mean()),
            len(model),
        )
        for system, by_name in measured.items()
        if system != tested
    }
    lines = [
        f"{FIRST} of {tested} minus {system}: {format_difference(difference, percent=True)}"
        for system, difference in differences.items()
    ]
    return [*lines, "in brackets: 95% interval, paired bootstrap over queries"]
