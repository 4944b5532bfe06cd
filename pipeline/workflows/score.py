"""Score a model or a file of answers.

A fine-tuned model is scored on labelled examples, a pretrained model on BLiMP, an embedding model on retrieval or
similarity, and a file of answers on SQuAD's questions. Or measure what a model forgot in fine-tuning.
"""

from collections.abc import Callable

from pipeline.config.locations import with_absolute_locations
from pipeline.config.predict import Score
from pipeline.embed.retrieval import score_retrieval
from pipeline.embed.similarity import score_similarity, score_triplets
from pipeline.predict.blimp import score_blimp
from pipeline.predict.forgetting import score_forgetting
from pipeline.predict.model_score import score_model
from pipeline.predict.score import score_answers
from pipeline.reporting import Report

SCORES: dict[str, Callable[[Score, Report], dict[str, float]]] = {
    "blimp": score_blimp,
    "heldout": score_forgetting,
    "similarity": score_similarity,
    "retrieval": score_retrieval,
    "triplets": score_triplets,
    "predictions": score_answers,
}
"""Setting -> function that computes the scores. If none of these settings is set, a model is scored on its task."""


def score(config: Score, report: Report) -> dict[str, float]:
    """Report the scores and return them: fractions of 1 for a model, percent for a file of answers, losses in nats.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    config = with_absolute_locations(config)
    for name, measure in SCORES.items():
        if getattr(config, name) is not None:
            return measure(config, report)
    return score_model(config, report)
