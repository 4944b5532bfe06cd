"""Mine hard negatives: read pairs twice, search their queries, choose negative texts, and write the rows."""

from pipeline.config.locations import with_absolute_locations
from pipeline.config.mine import Mine
from pipeline.embed.index import wants_index
from pipeline.embed.mining import Miner, schema_of
from pipeline.embed.pairs import Matches, open_pairs
from pipeline.embed.queries import load_query_model
from pipeline.embed.results import require_output
from pipeline.embed.search import require_similarity
from pipeline.embed.vectors import open_vectors
from pipeline.predict.output import write_stream
from pipeline.reporting import Report


def mine(config: Mine, report: Report) -> None:
    """Write each pair with texts that are similar to its query and do not match it.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    config = with_absolute_locations(config)
    require_output(config.output, config.replace)
    vectors, pairs = open_vectors(config.vectors), open_pairs(config)
    require_similarity(vectors.model.similarity)
    vectors.require_texts()
    miner = Miner(
        config=config,
        vectors=vectors,
        model=load_query_model(config, vectors),
        matches=Matches.of(pairs.blocks()),
        with_index=wants_index(config.index, vectors),
        report=report,
    )
    write_stream(miner.tables(pairs), schema_of(pairs), config.output)
    report(miner.counts.line(config.output))
