"""Score the vectors of an encoder on scored pairs of texts, or on triplets, next to baselines.

Shapes: N pairs or triplets.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pipeline.command_line.columns import aligned
from pipeline.config.measurements import SimilarityScore, TripletScore, VectorScore
from pipeline.embed.encoders import MODEL, load_encoders, named
from pipeline.predict.score import pairs_of, triplets_of
from pipeline.reporting import Report
from pipeline.tables.bad_rows import OPTION, BadRows
from pipeline.tasks.metrics.label_metrics import pearson, spearman, triplet_accuracy
from pipeline.tasks.similarity import word_cosines

WORDS = "words"
DESCRIPTION = f"{WORDS}: cosine of the texts' word counts, in lower case"
Cosines = Callable[[Sequence[str], Sequence[str]], np.ndarray]
"""Returns the cosine of each pair of texts, float (N,)."""


def score_similarity(config: SimilarityScore, report: Report) -> dict[str, float]:
    """Report Pearson's and Spearman's correlation of cosines and given scores, for the model and the baselines.

    The keys of the result are METRIC for the model and "SYSTEM METRIC" for other systems. Raises PipelineError if the
    file cannot be read, or a checkpoint has no encoder.
    """
    bad = BadRows(skip=config.on_bad_rows == "skip", remedy=OPTION)
    pairs = pairs_of(config, bad)
    report(", ".join([f"{config.similarity}: {len(pairs.scores):,} pairs", *bad.words()]))
    scores = {}
    for system, cosines in _systems(config).items():
        found = cosines(pairs.first, pairs.second)
        scores[system] = {"pearson": pearson(found, pairs.scores), "spearman": spearman(found, pairs.scores)}
    return _report_scores(config, scores, report)


def score_triplets(config: TripletScore, report: Report) -> dict[str, float]:
    """Report in how many triplets the anchor is nearer to the positive than to the negative text; ties count one half.

    The keys of the result are "accuracy" for the model and "SYSTEM accuracy" for other systems. Raises PipelineError if
    the file cannot be read, or a checkpoint has no encoder.
    """
    bad = BadRows(skip=config.on_bad_rows == "skip", remedy=OPTION)
    triplets = triplets_of(config, bad)
    anchors, positives, negatives = map(list, zip(*triplets))
    report(", ".join([f"{config.triplets}: {len(triplets):,} triplets", *bad.words()]))
    scores = {}
    for system, cosines in _systems(config).items():
        # One call gives equal texts equal vectors. So a negative text that equals the positive text is a tie.
        near, far = np.split(cosines(anchors * 2, positives + negatives), 2)
        scores[system] = {"accuracy": triplet_accuracy(near, far)}
    return _report_scores(config, scores, report)


def _systems(config: VectorScore) -> dict[str, Cosines]:
    """Return the function of each system that is scored: the baseline of word counts, then the encoders."""
    encoders = load_encoders(config)
    return {WORDS: word_cosines} | {name: _cosines_of(encoder.embed) for name, encoder in encoders.items()}


def _cosines_of(embed: Callable[[Sequence[str]], np.ndarray]) -> Cosines:
    """Return a function that embeds each distinct text once and returns the cosines of the pairs."""

    def cosines(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
        index = {text: number for number, text in enumerate(dict.fromkeys([*first, *second]))}
        vectors = embed(list(index))
        left, right = (vectors[[index[text] for text in texts]] for texts in (first, second))
        return (left * right).sum(axis=1)

    return cosines


def _report_scores(config: VectorScore, scores: Mapping[str, Mapping[str, float]], report: Report) -> dict[str, float]:
    """Report the scores as a table in percent, and return them as shares; `scores` is {system: {metric: share}}.

    The keys of the result are METRIC for the model and "SYSTEM METRIC" for other systems.
    """
    metrics = list(scores[MODEL])
    rows = [[system, *(f"{100 * by_name[name]:.2f}" for name in metrics)] for system, by_name in scores.items()]
    for line in (named(config), DESCRIPTION, *aligned(["%", *metrics], rows)):
        report(line)
    return {
        name if system == MODEL else f"{system} {name}": value
        for system, by_name in scores.items()
        for name, value in by_name.items()
    }
