"""Score a fine-tuned model on labelled examples, a pretrained model on BLiMP, or a file of answers to SQuAD's
questions; or measure what a model forgot in fine-tuning.
"""

from pipeline.config.locations import with_absolute_locations
from pipeline.config.predict import Score
from pipeline.predict.blimp import score_blimp
from pipeline.predict.forgetting import score_forgetting
from pipeline.predict.score import score_answers, score_model
from pipeline.reporting import Report


def score(config: Score, report: Report) -> dict[str, float]:
    """Report the scores and return them: fractions of 1 for a model, percent for a file of answers, losses in nats.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    config = with_absolute_locations(config)
    if config.blimp is not None:
        return score_blimp(config, report)
    if config.heldout is not None:
        return score_forgetting(config, report)
    if config.predictions is not None:
        return score_answers(config, config.predictions, report)
    return score_model(config, report)
