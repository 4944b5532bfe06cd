"""Search vectors: embed the queries, compare them with the vectors, rerank the texts found, and print or write them."""

from collections.abc import Sequence

from pipeline.config.embed import Search
from pipeline.config.locations import with_absolute_locations
from pipeline.embed.index import index_hits, wants_index
from pipeline.embed.queries import query_vectors
from pipeline.embed.query_files import Query, read_queries
from pipeline.embed.results import report_results, require_output
from pipeline.embed.search import Found, exact_hits, found_of, require_similarity
from pipeline.embed.vectors import Vectors, open_vectors
from pipeline.reporting import Report


def search(config: Search, report: Report) -> None:
    """Find the texts that are most similar to each query, and print or write them.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    config = with_absolute_locations(config)
    require_output(config.output, config.replace)
    vectors, queries = open_vectors(config.vectors), read_queries(config)
    found = find(config, vectors, queries, report)
    report_results(config, vectors, queries, found, report)


def find(config: Search, vectors: Vectors, queries: Sequence[Query], report: Report) -> list[list[Found]]:
    """Return the texts that are most similar to each query; `config.queries` is not read."""
    require_similarity(vectors.model.similarity)
    if config.rerank:
        return _find_and_rerank(config, vectors, queries, report)
    return _find(config, vectors, queries, report)


def _find_and_rerank(config: Search, vectors: Vectors, queries: Sequence[Query], report: Report) -> list[list[Found]]:
    """Return the texts with the highest scores of the cross-encoder, of those that are most similar to each query."""
    from pipeline.embed.rerank import load_cross_encoder, reranked  # tasks are loaded only where it reranks

    encoder = load_cross_encoder(config, vectors)
    return reranked(encoder, queries, _find(config, vectors, queries, report), config.top, report)


def _find(config: Search, vectors: Vectors, queries: Sequence[Query], report: Report) -> list[list[Found]]:
    """Return `config.candidates` texts by the similarity of vectors, most similar first."""
    with_index = wants_index(config.index, vectors)
    embedded = query_vectors(config, vectors, queries)
    count = config.candidates
    hits = index_hits(vectors, embedded, count, report) if with_index else exact_hits(vectors, embedded, count)
    return found_of(vectors, hits)
