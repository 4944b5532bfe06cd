"""Losses in groups of frequency, on numbers made by hand and read from the figure."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.config.jobs import Pretrain
from pipeline.evaluation.token_frequency import as_records, group_sums, heldout_loss_by_frequency, of_records, of_sums
from pipeline.show.loss_by_frequency import draw, lines
from tests.conftest import CPU, Training

COUNTS = np.array([0, 5, 50, 999_945])  # occurrences of four entries in a million tokens
LABELS = np.array([0, 1, 1, 2, 3])
LOSSES = np.array([9.0, 8.0, 6.0, 5.0, 0.5])
RIGHT = np.array([False, True, False, False, True])


def test_losses_are_means_of_their_group() -> None:
    found = of_sums(group_sums(LOSSES, RIGHT, LABELS, COUNTS))
    assert found.groups == ("below 1", "1 to 10", "10 to 100", "above 10,000")
    assert found.counts.tolist() == [1, 2, 1, 1] and found.model.tolist() == [9, 7, 5, 0.5]
    assert found.accuracy.tolist() == [0, 0.5, 0, 1]
    assert found.unigram == pytest.approx(-np.log(np.array([1, 6, 51, 999_946]) / 1_000_004))


def test_the_figure_shows_the_numbers() -> None:
    found = of_sums(group_sums(LOSSES, RIGHT, LABELS, COUNTS))
    (axes,) = draw(found, "a run").axes
    unigram, model = axes.containers[:2]
    assert [bar.get_height() for bar in model] == [9, 7, 5, 0.5]
    assert [bar.get_height() for bar in unigram] == pytest.approx(found.unigram.tolist())
    assert [text.get_text() for text in axes.texts] == ["0%", "50%", "0%", "100%"]
    assert axes.get_xticklabels()[1].get_text() == "1 to 10\n40% of tokens"
    assert lines(found)[0].startswith("held-out masked loss 5.700 nats over 5 tokens (by frequency alone ")


def test_the_groups_add_up_to_the_held_out_loss(training: Training, family_config: Pretrain) -> None:
    """For every family, the mean over positions is the loss that training logs; for ELECTRA, the generator's."""
    module = training.module(family_config).eval()
    batches = training.work(family_config, Path("/none"), {}).heldout
    counts = np.ones(training.vocabulary.size, dtype=np.int64)
    autocast = torch.autocast("cpu", enabled=False)
    measured = heldout_loss_by_frequency(module, batches, counts, world=1, device=CPU, autocast=autocast)
    scores = [module.scores(batch) for batch in batches]
    total, count = (sum(float(score["mlm"][index]) for score in scores) for index in (0, 1))
    assert measured.counts.sum() == count
    assert float(measured.model @ measured.counts) == pytest.approx(total, rel=1e-5)


def test_sums_of_two_ranks_add_up_to_the_sums_of_all_positions() -> None:
    both = [group_sums(LOSSES[part], RIGHT[part], LABELS[part], COUNTS) for part in (slice(0, 2), slice(2, 5))]
    assert sum(both) == pytest.approx(group_sums(LOSSES, RIGHT, LABELS, COUNTS))
    none = np.zeros(0, dtype=np.int64)
    assert not group_sums(none, none, none, COUNTS).any(), "a rank without held-out rows adds nothing"


def test_records_keep_the_numbers() -> None:
    measured = of_sums(group_sums(LOSSES, RIGHT, LABELS, COUNTS))
    kept = of_records(json.loads(json.dumps(as_records(measured))))
    assert kept.groups == measured.groups
    assert all((getattr(kept, name) == getattr(measured, name)).all() for name in ("counts", "model", "unigram"))
    assert as_records(measured)[1] == {
        "groups": "1 to 10",
        "counts": 2,
        "model": 7.0,
        "unigram": pytest.approx(-np.log(6 / 1_000_004)),
        "accuracy": 0.5,
    }
