"""Search vectors: embed the queries, compare them with the vectors, and print or write the most similar texts."""

from pipeline.config.embed import Search
from pipeline.config.locations import with_absolute_locations
from pipeline.embed.index import index_hits, wants_index
from pipeline.embed.queries import query_vectors, read_queries
from pipeline.embed.results import require_output, result_table, write_results
from pipeline.embed.search import exact_hits, found_of, require_similarity
from pipeline.embed.vectors import open_vectors
from pipeline.reporting import Report


def search(config: Search, report: Report) -> None:
    """Find the texts that are most similar to each query, and print or write them.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    config = with_absolute_locations(config)
    require_output(config.output, config.replace)
    vectors = open_vectors(config.vectors)
    require_similarity(vectors.model.similarity)
    with_index = wants_index(config.index, vectors)
    queries = read_queries(config)
    embedded = query_vectors(config, vectors, queries)
    hits = (
        index_hits(vectors, embedded, config.top, report) if with_index else exact_hits(vectors, embedded, config.top)
    )
    found = found_of(vectors, hits)
    if config.output:
        write_results(config.output, queries, found)
        report(f"{len(queries):,} queries in {vectors.count:,} vectors: {config.output}")
        return
    for query, of_query in zip(queries, found, strict=True):
        report(result_table(query, of_query))
