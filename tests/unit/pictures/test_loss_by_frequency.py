"""Losses in groups of frequency, on numbers made by hand and read from the figure."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.config.jobs import Pretrain
from pipeline.errors import DataError
from pipeline.pictures.loss_by_frequency import draw, lines, loss_by_frequency, position_losses
from tests.conftest import Training

COUNTS = np.array([0, 5, 50, 999_945])  # occurrences of four entries in a million tokens
LABELS = np.array([0, 1, 1, 2, 3])
LOSSES = np.array([9.0, 8.0, 6.0, 5.0, 0.5])
RIGHT = np.array([False, True, False, False, True])


def test_losses_are_means_of_their_group() -> None:
    found = loss_by_frequency(LOSSES, RIGHT, LABELS, COUNTS)
    assert found.groups == ("below 1", "1 to 10", "10 to 100", "above 10,000")
    assert found.counts.tolist() == [1, 2, 1, 1] and found.model.tolist() == [9, 7, 5, 0.5]
    assert found.accuracy.tolist() == [0, 0.5, 0, 1]
    assert found.unigram == pytest.approx(-np.log(np.array([1, 6, 51, 999_946]) / 1_000_004))


def test_the_figure_shows_the_numbers() -> None:
    found = loss_by_frequency(LOSSES, RIGHT, LABELS, COUNTS)
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
    losses, right, labels = position_losses(module, batches)
    scores = [module.scores(batch) for batch in batches]
    total, count = (sum(float(score["mlm"][index]) for score in scores) for index in (0, 1))
    assert len(losses) == len(right) == len(labels) == count and losses.mean() == pytest.approx(total / count, rel=1e-5)


def test_no_held_out_part_is_one_line(training: Training, tiny_config: Pretrain) -> None:
    with pytest.raises(DataError, match=r"^the corpus has no held-out part: prepare it with prepare\.heldout_share"):
        position_losses(training.module(tiny_config), [])
