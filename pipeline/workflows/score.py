"""Score a model or a file of answers.

A fine-tuned model is scored on labelled examples, a pretrained model on BLiMP, an embedding model on retrieval or
similarity, and a file of answers on SQuAD's questions. Or measure what a model forgot in fine-tuning.
"""

from collections.abc import Callable
from typing import Any

from pipeline.config.locations import with_absolute_locations
from pipeline.config.measurements import (
    AnswerScore,
    BlimpScore,
    ExampleScore,
    ForgettingScore,
    RetrievalScore,
    SimilarityScore,
    TripletScore,
)
from pipeline.config.predict import Score
from pipeline.embed.retrieval import score_retrieval
from pipeline.embed.similarity import score_similarity, score_triplets
from pipeline.predict.blimp import score_blimp
from pipeline.predict.forgetting import score_forgetting
from pipeline.predict.model_score import score_model
from pipeline.predict.score import score_answers
from pipeline.reporting import Report

SCORES: dict[type, Callable[[Any, Report], dict[str, float]]] = {
    ExampleScore: score_model,
    AnswerScore: score_answers,
    BlimpScore: score_blimp,
    ForgettingScore: score_forgetting,
    SimilarityScore: score_similarity,
    RetrievalScore: score_retrieval,
    TripletScore: score_triplets,
}
"""Measurement -> function of (measurement, report) that computes the scores."""


def score(config: Score, report: Report) -> dict[str, float]:
    """Report the scores and return them: fractions of 1 for a model, percent for a file of answers, losses in nats.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    measurement = with_absolute_locations(config).measurement
    return SCORES[type(measurement)](measurement, report)
