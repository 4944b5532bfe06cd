"""Pseudo-log-likelihoods of sentences by a model with a masked-token head."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.minimal_pairs.rows import batches, encode, make_rows
from pipeline.objectives.table import Pretraining
from pipeline.text.vocabulary import Vocabulary

TOKENS = 8_192
"""Maximum tokens per batch."""
PLL, WORD_L2R = "PLL", "PLL-word-l2r"


def pseudo_log_likelihoods(
    module: Pretraining,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    *,
    maximum_positions: int,
    device: torch.device,
    autocast: torch.autocast,
) -> dict[str, np.ndarray]:
    """Return {PLL: scores, WORD_L2R: scores}, with the scores of the texts in nats at temperature 1, float64 (S,).

    The module must be on `device` and in evaluation mode. Raises DataError for a text that has no pieces, or more
    pieces than the model has positions for.
    """
    sentences = encode(texts, vocabulary, maximum_positions)
    rows = make_rows(sentences)
    nats = _row_log_probabilities(module, batches(sentences, rows, vocabulary, TOKENS), device, autocast)
    return {
        name: np.bincount(rows.sentence[counted], nats[counted], minlength=len(texts))
        for name, counted in ((PLL, rows.in_pll), (WORD_L2R, rows.in_word_l2r))
    }


def _row_log_probabilities(
    module: Pretraining, flat_batches: Iterator[Batch], device: torch.device, autocast: torch.autocast
) -> np.ndarray:
    """Return the log-probability of each row's label in nats, float64 (R,)."""
    parts = []
    with torch.inference_mode(), autocast:
        for batch in flat_batches:
            moved = batch.to(device)
            losses_M = F.cross_entropy(module.predict_masked(moved).float(), moved.masked_labels_M, reduction="none")
            parts.append(-losses_M)
    return torch.cat(parts).double().cpu().numpy()
