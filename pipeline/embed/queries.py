"""Compute the vectors of queries with the model that made the vectors of texts."""

from collections.abc import Sequence

import numpy as np

from pipeline.config.embed import Search
from pipeline.config.mine import Mine
from pipeline.embed import model
from pipeline.embed.query_files import Query
from pipeline.embed.vectors import Vectors
from pipeline.errors import CheckpointError, ConfigError
from pipeline.saved.prompts import OF_QUERIES


def query_vectors(config: Search, vectors: Vectors, queries: Sequence[Query]) -> np.ndarray:
    """Return one vector per query, float32 (queries, D). Raises errors as `load_query_model` does."""
    return load_query_model(config, vectors).vectors([query.text for query in queries])


def load_query_model(config: Search | Mine, vectors: Vectors) -> model.VectorModel:
    """Load the model that made the vectors, with the prompt of queries.

    Raises ConfigError if the settings name a different model, and CheckpointError if the model cannot be loaded.
    """
    made = vectors.model
    model.use_threads(config.placement.threads)
    try:
        loaded = model.load(config.checkpoint or made.checkpoint, config.placement, config.prompt, OF_QUERIES)
    except (ConfigError, CheckpointError) as error:
        if config.checkpoint or config.prompt:
            raise
        raise CheckpointError(
            f"{error}; {config.vectors} needs its model there, but jobs/search.py and jobs/mine.py read it elsewhere "
            "with --checkpoint"
        ) from error
    described = model.describe(loaded)
    for name in ("dimension", "pooling", "normalized", "digest"):
        before, now = getattr(made, name), getattr(described, name)
        if before != now:
            again = f"give --checkpoint {made.checkpoint}" if config.checkpoint else "put the model back"
            raise ConfigError(
                f"vectors ({config.vectors}) have {name} {before}, and checkpoint ({described.checkpoint}) gives "
                f"{name} {now} to the queries: {again}, or embed the texts again"
            )
    return loaded
