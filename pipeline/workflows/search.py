"""Search vectors: embed the queries, compare them with the vectors, and show or write what was found."""

from collections.abc import Sequence

from pipeline.config.embed import Search
from pipeline.config.locations import with_absolute_locations
from pipeline.embed.index import index_hits, wants_index
from pipeline.embed.queries import Query, query_vectors, read_queries
from pipeline.embed.results import require_output, result_table, write_results
from pipeline.embed.search import Found, exact_hits, found_of, require_similarity
from pipeline.embed.vectors import Vectors, open_vectors
from pipeline.reporting import Report


def search(config: Search, report: Report) -> None:
    """Find the most similar texts of each query, and print or write them.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    config = with_absolute_locations(config)
    require_output(config.output, config.replace)
    vectors, queries = open_vectors(config.vectors), read_queries(config)
    found = find(config, vectors, queries, report)
    if config.output:
        write_results(config.output, queries, found)
        report(f"{len(queries):,} queries in {vectors.count:,} vectors: {config.output}")
        return
    for query, of_query in zip(queries, found, strict=True):
        report(result_table(query, of_query))


def find(config: Search, vectors: Vectors, queries: Sequence[Query], report: Report) -> list[list[Found]]:
    """Return the texts that are most similar to each query; `config.queries` is not read."""
    require_similarity(vectors.model.similarity)
    with_index = wants_index(config.index, vectors)
    embedded = query_vectors(config, vectors, queries)
    hits = (
        index_hits(vectors, embedded, config.top, report) if with_index else exact_hits(vectors, embedded, config.top)
    )
    return found_of(vectors, hits)
