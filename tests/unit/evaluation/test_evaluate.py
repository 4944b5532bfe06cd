"""Held-out metrics and their baselines, with each pair task and without one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline.batch import NextSentenceBatch, SentenceOrderBatch
from pipeline.config.data import FullSentences, NextSentence, Sampling, SentenceOrder, SingleSegment
from pipeline.config.model import Model
from pipeline.config.training import EVALUATED_WINDOWS
from pipeline.corpus.prepared import Corpus
from pipeline.evaluation.evaluate import baselines, evaluate, heldout_shares
from pipeline.evaluation.heldout import heldout_batches
from pipeline.objectives.masked import MaskedTokens
from pipeline.text.cached_tokenizer import CachedTokenizer
from tests.unit.objectives.batches import without_pairs

CPU = torch.device("cpu")
MLM = {"heldout/mlm_loss", "heldout/mlm_accuracy"}
UNIGRAM = {"baseline/unigram_mlm_loss", "baseline/unigram_mlm_accuracy"}

BATCH = NextSentenceBatch(
    ids_T=torch.tensor([2, 4, 3, 4, 3, 2, 4, 3, 4, 3, 2, 4, 3, 4, 3]),
    segments_T=torch.tensor([0, 0, 0, 1, 1] * 3),
    positions_T=torch.arange(5).repeat(3),
    offsets=torch.tensor([0, 5, 10, 15], dtype=torch.int32),
    maximum_length=5,
    masked_positions_M=torch.tensor([1, 6, 11]),
    masked_labels_M=torch.tensor([5, 5, 6]),
    not_next_N=torch.tensor([1, 0, 1]),
)


def test_ranks_share_the_heldout_windows() -> None:
    of_ranks = [list(heldout_shares("abc", 7, rank, 2)) for rank in range(2)]
    assert of_ranks == [[(0, "a", 3), (2, "c", 3)], [(1, "b", 3)]]
    assert list(heldout_shares("abc", 2, 0, 1)) == [(0, "a", 1), (1, "b", 1)]
    assert list(heldout_shares("", 7, 0, 1)) == []
    assert len(list(heldout_shares(range(1_000), 2_048, 0, 1))) == EVALUATED_WINDOWS


@pytest.mark.parametrize(
    ("pairs", "term"),
    [(NextSentence(), "nsp"), (SentenceOrder(), "sop"), (FullSentences(), None), (SingleSegment(), None)],
    ids=lambda value: str(value)[:9],
)
def test_what_the_held_out_rows_ask_is_what_is_reported(
    training, tiny_corpus: Corpus, tiny_config, pairs, term: str | None
) -> None:
    sampling = Sampling(maximum_length=32, pairs=pairs)
    batches = heldout_batches(
        tiny_corpus, CachedTokenizer(training.vocabulary), sampling, rows=40, rows_per_batch=8, rank=0, world=1
    )
    module = training.module(replace(tiny_config, sampling=sampling))
    metrics = evaluate(module, batches, world=1, device=CPU, autocast=torch.autocast("cpu", enabled=False))
    assert set(metrics) == (MLM | {f"heldout/{term}_loss", f"heldout/{term}_accuracy"} if term else MLM)
    assert all(0 <= metrics[name] < 10 for name in metrics)
    beside = baselines(module, batches, np.ones(training.vocabulary.size), world=1)
    assert set(beside) == (UNIGRAM | {f"baseline/majority_{term}_accuracy"} if term else UNIGRAM)


@pytest.mark.parametrize("answer", [0, 1])
def test_a_pair_task_with_one_answer_is_not_measured(training, tiny_config, answer: int) -> None:
    module, plain = training.module(tiny_config), torch.autocast("cpu", enabled=False)
    alike = replace(BATCH, not_next_N=torch.full((3,), answer))
    assert set(evaluate(module, [alike], world=1, device=CPU, autocast=plain)) == MLM
    assert set(evaluate(module, [alike, BATCH], world=1, device=CPU, autocast=plain)) == MLM | {
        "heldout/nsp_loss",
        "heldout/nsp_accuracy",
    }


MODULE = MaskedTokens(Model(layers=1, width=4, heads=1, feed_forward=4), 7)


def test_baselines_by_hand() -> None:
    """Add-one counts of 3, 2 and five times 1: the labels 5, 5 and 6 have the shares 3/10, 3/10 and 2/10; of the pairs
    two in three are NotNext.
    """
    counts = np.array([0, 0, 0, 0, 0, 2, 1])
    expected = {
        "baseline/unigram_mlm_loss": -(2 * np.log(0.3) + np.log(0.2)) / 3,
        "baseline/unigram_mlm_accuracy": 2 / 3,
    }
    assert baselines(MODULE, [BATCH], counts, world=1) == pytest.approx(
        expected | {"baseline/majority_nsp_accuracy": 2 / 3}
    )
    swapped = SentenceOrderBatch(**vars(without_pairs(BATCH)), swapped_N=torch.tensor([0, 0, 0]))
    assert baselines(MODULE, [swapped], counts, world=1) == pytest.approx(
        expected | {"baseline/majority_sop_accuracy": 1.0}
    )
    assert baselines(MODULE, [without_pairs(BATCH)], counts, world=1) == pytest.approx(expected)
    assert baselines(MODULE, [], counts, world=1) == {}
