"""Search vectors: embed the queries, compare them with the vectors, rerank the texts found, and print or write them."""

from pipeline.config.embed import Search
from pipeline.config.locations import with_absolute_locations
from pipeline.embed.index import index_hits, wants_index
from pipeline.embed.queries import query_vectors, read_queries
from pipeline.embed.rerank import load_cross_encoder, reranked
from pipeline.embed.results import report_results, require_output
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
    encoder = load_cross_encoder(config, vectors) if config.rerank else None
    queries = read_queries(config)
    embedded = query_vectors(config, vectors, queries)
    count = config.candidates
    hits = index_hits(vectors, embedded, count, report) if with_index else exact_hits(vectors, embedded, count)
    found = found_of(vectors, hits)
    if encoder is not None:
        found = reranked(encoder, queries, found, config.top, report)
    report_results(config, vectors, queries, found, report)
