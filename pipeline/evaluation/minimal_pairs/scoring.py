"""Pseudo-log-likelihoods of sentences by a model with a masked-token head."""

import numpy as np
import torch
import torch.distributed as dist

from pipeline.evaluation.minimal_pairs.rows import Rows, SentenceRows, make_batch, make_rows, split
from pipeline.objectives.table import Pretraining
from pipeline.text.vocabulary import Vocabulary

TOKENS = 8_192
"""Maximum tokens per batch."""
PLL, WORD_L2R = "PLL", "PLL-word-l2r"


def pseudo_log_likelihoods(
    module: Pretraining,
    vocabulary: Vocabulary,
    sentences: SentenceRows,
    *,
    device: torch.device,
    autocast: torch.autocast,
    rank: int = 0,
    world: int = 1,
) -> dict[str, np.ndarray]:
    """Return {PLL: scores, WORD_L2R: scores}. Scores are in nats at temperature 1, float64 (S,).

    The module must be on `device` and in evaluation mode. Every rank must call this function: each rank computes some
    batches, and then the scores of all ranks are added up. Batches and scores are the same for any number of ranks.
    """
    rows = make_rows(sentences)
    nats = _row_log_probabilities(module, vocabulary, sentences, rows, device, autocast, rank, world)
    return {
        name: np.bincount(rows.sentence[counted], nats[counted], minlength=len(sentences.offsets) - 1)
        for name, counted in ((PLL, rows.in_pll), (WORD_L2R, rows.in_word_l2r))
    }


def _row_log_probabilities(
    module: Pretraining,
    vocabulary: Vocabulary,
    sentences: SentenceRows,
    rows: Rows,
    device: torch.device,
    autocast: torch.autocast,
    rank: int,
    world: int,
) -> np.ndarray:
    """Return the log-probability of each row's label in nats, float64 (R,)."""
    nats_R = torch.zeros(len(rows.sentence), device=device)
    with torch.inference_mode(), autocast:
        for part in split(sentences, rows, TOKENS)[rank::world]:
            batch = make_batch(sentences, rows, part, vocabulary).to(device)
            nats_R[part] = module.log_probabilities(batch)
    nats_R = nats_R.cpu()
    if world > 1:
        dist.all_reduce(nats_R)  # a row has a value on one rank, and is 0 on all other ranks, so the sum is exact
    return nats_R.double().numpy()
