"""Rerank the texts that a search found by the scores of a cross-encoder.

A cross-encoder is more exact than the vectors' similarity, and too slow for all texts.
"""

from collections.abc import Sequence
from dataclasses import replace

from pipeline.config.embed import Search
from pipeline.embed.query_files import Query
from pipeline.embed.search import Found
from pipeline.embed.vectors import Vectors
from pipeline.errors import DataError
from pipeline.predict import cross_encoder
from pipeline.predict.cross_encoder import CrossEncoder, score_pairs
from pipeline.reporting import Report


def load_cross_encoder(config: Search, vectors: Vectors) -> CrossEncoder:
    """Load the model of `rerank` on this process's device.

    Raises DataError if the vectors have no texts, CheckpointError if there is no model, and ConfigError for a model
    that does not score pairs.
    """
    assert config.rerank is not None
    if not vectors.keeps_texts:
        raise DataError(
            f"rerank ({config.rerank}) reads texts, and vectors ({config.vectors}) has none: embed them again without "
            "--no-keep-text, or leave --rerank out"
        )
    return cross_encoder.load(config.rerank, config.rerank_label, config.placement)


def reranked(
    encoder: CrossEncoder, queries: Sequence[Query], found: Sequence[Sequence[Found]], top: int, report: Report
) -> list[list[Found]]:
    """Return the `top` texts of each query with the highest scores of the cross-encoder.

    Texts with equal scores keep their order.
    """
    pairs = [(query.text, one.text or "") for query, of_query in zip(queries, found, strict=True) for one in of_query]
    of_pairs = iter(score_pairs(encoder, pairs, report).tolist())
    rescored = [[replace(one, rerank_score=next(of_pairs)) for one in of_query] for of_query in found]
    return [sorted(of_query, key=_by_rerank_score)[:top] for of_query in rescored]


def _by_rerank_score(found: Found) -> float:
    """Return the key that sorts the highest score first."""
    assert found.rerank_score is not None
    return -found.rerank_score
