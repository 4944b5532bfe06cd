"""Minimal pairs during a run: accuracy on a fifth of them at each evaluation, with a unigram baseline."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.evaluation.minimal_pairs.figures import METRICS
from pipeline.evaluation.minimal_pairs.ngrams import UNIGRAM, unigram_scores
from pipeline.evaluation.minimal_pairs.pairs import EncodedPairs, encode_pairs, score_pairs
from pipeline.evaluation.minimal_pairs.paradigms import Paradigm, read_blimp, select
from pipeline.evaluation.minimal_pairs.results import mean_accuracies, score_paradigms
from pipeline.objectives.table import Pretraining
from pipeline.reporting import Report
from pipeline.text.vocabulary import Vocabulary

SETTING, SELECTION = "evaluation.blimp", "fifth"


@dataclass(frozen=True, kw_only=True)
class Blimp:
    """The minimal pairs that a run is evaluated on, and the accuracy of a unigram model on these pairs."""

    pairs: EncodedPairs
    unigram_accuracy: float
    """Accuracy of scoring by unigram counts from the first training windows (`heldout.unigram_counts`)."""


def read_pairs(folder: str | None, report: Report) -> list[Paradigm]:
    """Return a fifth of the pairs in evaluation.blimp; empty without a folder.

    Raises the errors of `read_blimp` and `select`.
    """
    return [] if folder is None else select(read_blimp(folder, report, SETTING), SELECTION)


def prepare_pairs(
    paradigms: Sequence[Paradigm], counts: Callable[[], np.ndarray], vocabulary: Vocabulary, maximum_positions: int
) -> Blimp | None:
    """Encode the pairs and score them with a unigram model; None without pairs.

    `counts` returns the occurrences of each vocabulary entry (V,); it is called only if there are pairs. Raises
    DataError if a sentence has more pieces than the model has positions for.
    """
    if not paradigms:
        return None
    remedy = f"raise model.maximum_positions ({maximum_positions}), or leave out {SETTING}"
    pairs = encode_pairs(paradigms, vocabulary, maximum_positions, remedy)
    nats = {UNIGRAM: unigram_scores(pairs.sentences.ids, pairs.sentences.offsets, counts())}
    return Blimp(pairs=pairs, unigram_accuracy=_accuracies(pairs, nats)[UNIGRAM])


def _accuracies(pairs: EncodedPairs, nats: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return {scorer: mean accuracy over paradigms}; `nats` has the scores of the sentences, float64 (S,)."""
    return mean_accuracies(score_paradigms(pairs.paradigms, pairs.texts, nats))


def evaluate_pairs(
    module: Pretraining,
    blimp: Blimp,
    vocabulary: Vocabulary,
    *,
    rank: int,
    world: int,
    device: torch.device,
    autocast: torch.autocast,
    again: bool,
) -> dict[str, float]:
    """Return {metric: accuracy} of the module in evaluation mode; every rank must call it.

    `again`: see `score_pairs`.
    """
    was_training = module.training
    module.eval()
    nats = score_pairs(
        module, vocabulary, blimp.pairs, device=device, autocast=autocast, rank=rank, world=world, again=again
    )
    module.train(was_training)
    return {METRICS[scoring]: mean for scoring, mean in _accuracies(blimp.pairs, nats).items()}
