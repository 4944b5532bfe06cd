"""Steps that are counted from epochs or tokens; literals are worked out by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.data import Sampling
from pipeline.config.jobs import Pretrain
from pipeline.config.phases import FallingMasks, TwoPhases
from pipeline.config.training import Batch, LinearDecay, WarmupStableDecay
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.errors import ConfigError
from pipeline.saved.naming import default_name
from pipeline.saved.run import recorded_steps, run_folder, write_run
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.counted_steps import RowLengths, with_counted_steps
from pipeline.train.run_data import with_known_steps
from tests.conftest import Training
from tests.refusals import refusal

BATCH = Batch(rows_per_step=8, rows_per_slot=4)


def counted(config: Pretrain, sizes: tuple[int, ...] = (20, 30), tokens: int = 50) -> int:
    """Return the steps on a text whose windows have so many rows of so many tokens, in each epoch again."""

    def lengths(number: int) -> np.ndarray:
        return np.full(sizes[number % len(sizes)], tokens)

    return with_counted_steps(config, lambda sampling: RowLengths(lengths, "text", len(sizes)), len(sizes)).steps


def test_epochs_are_the_whole_steps_in_their_rows() -> None:
    """An epoch has 50 rows, and a step 8."""
    found = {epochs: counted(Pretrain(batch=BATCH, epochs=epochs)) for epochs in (0.5, 1, 2, 3.5, 1_000)}
    assert found == {0.5: 2, 1: 6, 2: 12, 3.5: 21, 1_000: 6_250}
    warm = Pretrain(epochs=1, batch=replace(BATCH, warmup_steps=2, warmup_rows=4))  # 4 + 4 + 5 * 8 are 48
    assert counted(warm) == 7
    assert counted(Pretrain(batch=BATCH, tokens="4_900")) == 12  # a step has 400 tokens


def test_each_phase_reads_whole_windows() -> None:
    """Windows have 40 rows; the second phase, a half of the steps, has 4 rows per step and begins in a new window."""
    phases = TwoPhases(share=0.5, maximum_length=64, rows_per_step=4, rows_per_slot=4)
    config = Pretrain(batch=BATCH, epochs=1, phases=phases, sampling=Sampling(maximum_length=32))
    # 10 + 10 steps: 80 rows are windows 0 and 1, and 40 rows window 2; one step more would read window 3
    assert counted(config, (40, 40, 40)) == 20


def test_phases_that_differ_in_masks_alone_are_read_once() -> None:
    asked = list[Sampling]()

    def lengths(sampling: Sampling) -> RowLengths:
        asked.append(sampling)
        return RowLengths(lambda number: np.full(48, 50), "text", 2)

    config = Pretrain(batch=BATCH, epochs=3, phases=FallingMasks())  # 12 steps in each epoch
    assert with_counted_steps(config, lengths, 2).steps == 36 and len(asked) == 1


def test_too_few_tokens_or_epochs_are_one_line() -> None:
    decaying = Pretrain(batch=BATCH, epochs=2, schedule=WarmupStableDecay(warmup_steps=10, decay_share=0.2))
    assert counted(decaying) == 12 and refusal(counted, replace(decaying, epochs=1)) == (
        "epochs (1) are 6 steps on this text: schedule.warmup_steps (10) must be at most 5, the step at which the "
        "decay begins with steps (6) and schedule.decay_share (0.2)"
    )
    assert refusal(counted, Pretrain(batch=BATCH, epochs=0.1)) == (
        "epochs (0.1) are less than a step of 8 rows on this text: give more text or epochs, or a smaller "
        "batch.rows_per_step"
    )
    assert refusal(counted, Pretrain(batch=BATCH, tokens="199")) == (
        "tokens (199) are less than a step, which has about 400 in 8 rows: give more tokens, or a smaller "
        "batch.rows_per_step"
    )
    assert counted(Pretrain(batch=BATCH, tokens="200")) == 1


def test_a_long_warm_up_is_no_problem_before_the_steps_are_known() -> None:
    config = Pretrain(steps=8, tokens="1M", batch=BATCH, schedule=WarmupStableDecay(warmup_steps=500))
    assert counted(config) == 2_500
    with pytest.raises(ConfigError, match=r"^schedule.warmup_steps \(500\) must be at most"):
        replace(config, tokens=None)


def test_a_name_holds_tokens_and_epochs_as_given() -> None:
    """A run whose steps may grow has no steps in its name; that of other schedules has."""
    for schedule in (LinearDecay(), WarmupStableDecay()):
        config = Pretrain(schedule=schedule)
        names = [
            default_name("p", changed)
            for changed in (
                config,
                replace(config, tokens="100M"),
                replace(config, tokens="100_000_000"),
                replace(config, epochs=10.0),
            )
        ]
        assert len(set(names)) == 4
        assert default_name("p", replace(config, steps=7, tokens="100M")) == names[1]
    assert default_name("p", Pretrain()) == "p-a9989148"


def test_rows_that_are_drawn_anew_in_each_epoch_are_counted_in_each(
    training: Training, tiny_config: Pretrain, tmp_path: Path
) -> None:
    config = replace(tiny_config, output=str(tmp_path), batch=Batch(rows_per_step=2), epochs=20.0)
    stream = StreamSettings(
        corpus=training.corpus, vocabulary=training.vocabulary, sampling=config.sampling, batch=config.batch, seed=0
    )
    tokenizer, windows = CachedTokenizer(stream.vocabulary), stream.corpus.train
    rows = [
        sum(window_rows(stream, tokenizer, windows, epoch, number).num_rows for number in range(len(windows)))
        for epoch in range(20)
    ]
    assert sum(rows) // 2 != 20 * rows[0] // 2
    assert with_known_steps(config, stream, lambda line: None).steps == sum(rows) // 2


def test_a_run_keeps_the_steps_that_it_began_with(training: Training, tiny_config: Pretrain, tmp_path: Path) -> None:
    config, lines = replace(tiny_config, output=str(tmp_path), epochs=1.0), list[str]()
    stream = StreamSettings(
        corpus=training.corpus, vocabulary=training.vocabulary, sampling=config.sampling, batch=config.batch, seed=0
    )
    tokenizer, windows = CachedTokenizer(stream.vocabulary), stream.corpus.train
    rows = sum(window_rows(stream, tokenizer, windows, 0, number).num_rows for number in range(len(windows)))
    begun = with_known_steps(config, stream, lines.append)
    assert begun.steps == rows // config.batch.rows_per_step
    assert lines == ["counting the rows of the text for epochs (1)", f"epochs (1): {begun.steps:,} steps"]
    write_run(run_folder(config), {}, 5, "id", "corpus", config.steps_from)
    assert with_known_steps(config, stream, pytest.fail).steps == 5
    assert with_known_steps(replace(config, epochs=2.0), stream, lines.append).steps > begun.steps
    assert recorded_steps(replace(config, epochs=None, tokens="9k"), {"epochs": 1.0, "steps": 5}) is None
    assert with_known_steps(tiny_config, stream, pytest.fail) == tiny_config
