"""Score rankings of a corpus by judged queries: BM25, the untouched encoder and the adapted one."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pipeline.adapt.documents import documents_of, own_id
from pipeline.adapt.steps import ADAPTED
from pipeline.corpus.prepared import Corpus
from pipeline.embed.query_files import Query
from pipeline.embed.retrieval import difference_lines, table_lines
from pipeline.embed.search import exact_hits
from pipeline.embed.vectors import Vectors
from pipeline.errors import DataError, shown
from pipeline.evaluation.retrieval import bm25
from pipeline.evaluation.retrieval.beir import read_judgements
from pipeline.evaluation.retrieval.collection import Collection, build_collection
from pipeline.evaluation.retrieval.measures import measure
from pipeline.evaluation.retrieval.ranking import DEPTH, rank, tie_ranks
from pipeline.tables.bad_rows import BadRows

EmbedQueries = Callable[[Vectors, Sequence[Query]], np.ndarray]
"""Function that computes one vector per query, float32 (queries, D), with the model of vectors."""


def judged_lines(
    corpus: Corpus, queries: Sequence[Query], judgements: str, vectors: Mapping[str, Vectors], embed: EmbedQueries
) -> list[str]:
    """Return the lines of a table: the measures of each system, and the differences to the adapted encoder.

    `vectors` are {UNTOUCHED: …, ADAPTED: …}. Documents are the texts of the corpus under the ids of the user's files,
    without titles, which are not embedded either; a document has the similarity of its best chunk. Raises DataError if
    no query has a relevant document in the corpus.
    """
    texts, parents = documents_of(corpus)
    collection = collection_of(texts, queries, judgements)
    ids = list(collection.documents)
    ties, asked = tie_ranks(ids), [Query(id=id, text=text) for id, text in collection.queries.items()]
    words = [query.text for query in asked]
    rankings = {bm25.NAME: bm25.rank_by_bm25(words, list(collection.documents.values()), ties, [None] * len(words))}
    for system, of_system in vectors.items():
        rankings[system] = rank_by_vectors(of_system, embed(of_system, asked), parents, ids, ties)
    grades = list(collection.grades.values())
    measured = {system: measure(ranked, ids, grades) for system, ranked in rankings.items()}
    counts = f"{len(ids):,} documents, {len(asked):,} queries, {collection.relevant:,} relevant judgements"
    head = ", ".join([f"{judgements}: {counts}", *collection.notes])
    compared = [(ADAPTED, system) for system in measured if system != ADAPTED]
    return [head, bm25.DESCRIPTION, *table_lines(measured), *difference_lines(measured, compared)]


def collection_of(texts: Mapping[str, str], queries: Sequence[Query], judgements: str) -> Collection:
    """Return the collection of texts {parent: text}; judgements of documents that the corpus lacks are counted.

    Raises DataError if no query has a relevant document.
    """
    bad = BadRows(skip=True)
    documents = ((parent, own_id(parent), text) for parent, text in texts.items())
    asked = ((judgements, query.id, query.text) for query in queries)
    try:
        return build_collection(judgements, documents, asked, read_judgements(judgements, bad), bad)
    except DataError as error:
        known = ", ".join(shown(own_id(parent)) for parent in list(texts)[:3])
        raise DataError(f"{error}; ids in the corpus are such as {known}") from None


def rank_by_vectors(
    vectors: Vectors, queries: np.ndarray, parents: Mapping[str, str], ids: Sequence[str], ties: np.ndarray
) -> list[np.ndarray]:
    """Return the ranking of each query, as indices of `ids`; `parents` are {id of an embedded piece: its parent}."""
    index, depth = {id: number for number, id in enumerate(ids)}, DEPTH
    while True:
        hits = exact_hits(vectors, queries, depth)
        found = vectors.rows_of(hits.rows.ravel().tolist())
        rows = {row: index[own_id(parents[about["id"]])] for row, about in found.items()}
        documents = min(len({rows[row] for row in of_query}) for of_query in hits.rows.tolist())
        if documents >= DEPTH or hits.rows.shape[1] < depth:
            break
        depth *= 4  # several hits are pieces of one document
    rankings = []
    for of_query, similarities in zip(hits.rows, hits.scores):
        scores = np.full(len(ids), -np.inf, np.float32)
        np.maximum.at(scores, [rows[row] for row in of_query.tolist()], similarities)
        rankings.append(rank(scores, ties))
    return rankings
