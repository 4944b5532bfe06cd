"""BLiMP during a run: accuracy on a fifth of the minimal pairs at each evaluation, next to that of unigrams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.corpus.prepared import Corpus
from pipeline.minimal_pairs.figures import METRICS
from pipeline.minimal_pairs.ngrams import UNIGRAM, unigram_scores
from pipeline.minimal_pairs.paradigms import Paradigm, read_blimp, select, sentences_of
from pipeline.minimal_pairs.results import mean_and_half_width, score_paradigms
from pipeline.minimal_pairs.rows import Sentences, encode
from pipeline.minimal_pairs.scoring import pseudo_log_likelihoods
from pipeline.objectives.table import Pretraining
from pipeline.reporting import Report
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.evaluate import unigram_counts

SETTING, SELECTION = "evaluation.blimp", "fifth"


@dataclass(frozen=True, kw_only=True)
class Blimp:
    """The pairs that a run is evaluated on, and their sentences in the run's vocabulary."""

    paradigms: Sequence[Paradigm]
    texts: Sequence[str]
    """The S sentences, each once."""
    sentences: Sentences
    unigram_accuracy: float
    """Accuracy of unigrams, counted in the first training windows (`unigram_counts`)."""


def read_pairs(folder: str | None, report: Report) -> list[Paradigm]:
    """Return the pairs in evaluation.blimp; empty without a folder. Raises PipelineError as `read_blimp` does."""
    return [] if folder is None else select(read_blimp(folder, report, SETTING), SELECTION)


def encode_pairs(
    paradigms: Sequence[Paradigm], corpus: Corpus, vocabulary: Vocabulary, maximum_positions: int
) -> Blimp | None:
    """Encode the pairs and score them by unigrams; None without pairs.

    Raises DataError if a sentence has more pieces than the model has positions for.
    """
    if not paradigms:
        return None
    texts = sentences_of(paradigms)
    remedy = f"raise model.maximum_positions ({maximum_positions}), or leave out {SETTING}"
    sentences = encode(texts, vocabulary, maximum_positions, remedy)
    counts = unigram_counts(corpus, CachedTokenizer(vocabulary), vocabulary.size)
    unigram = {UNIGRAM: unigram_scores(sentences.ids, sentences.offsets, counts)}
    accuracy = _accuracies(paradigms, texts, unigram)[UNIGRAM]
    return Blimp(paradigms=paradigms, texts=texts, sentences=sentences, unigram_accuracy=accuracy)


def _accuracies(
    paradigms: Sequence[Paradigm], texts: Sequence[str], nats: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Return {scorer: mean accuracy over paradigms}; `nats` has the scores of the texts, float64 (S,)."""
    by_sentence = {scorer: dict(zip(texts, values.tolist(), strict=True)) for scorer, values in nats.items()}
    scores = score_paradigms(paradigms, by_sentence)
    return {scorer: mean_and_half_width(list(values.values()))[0] for scorer, values in scores.items()}


def evaluate_pairs(
    module: Pretraining,
    blimp: Blimp,
    vocabulary: Vocabulary,
    *,
    rank: int,
    world: int,
    device: torch.device,
    autocast: torch.autocast,
) -> dict[str, float]:
    """Return {metric: accuracy} of the module in evaluation mode; every rank must call it."""
    was_training = module.training
    module.eval()
    nats = pseudo_log_likelihoods(
        module, vocabulary, blimp.sentences, device=device, autocast=autocast, rank=rank, world=world
    )
    module.train(was_training)
    return {METRICS[scoring]: mean for scoring, mean in _accuracies(blimp.paradigms, blimp.texts, nats).items()}
