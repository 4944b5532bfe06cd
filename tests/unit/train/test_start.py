"""The start of a run, or its continuation, from the contents of its folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.jobs import Pretrain, with_words_rate
from pipeline.config.training import Batch, Checkpoints, ConstantRate, WarmupStableDecay
from pipeline.corpus.stream import StreamSettings
from pipeline.errors import ConfigError
from pipeline.saved.checkpoints import steps_saved
from pipeline.saved.run import run_folder, settings_of, write_run
from pipeline.train.automatic import GRAPHS, FreeMemory, Where, with_choices
from pipeline.train.run_identity import identity
from pipeline.train.start import Start, read_start, roll_back, word_embeddings
from tests.conftest import Training


def stream_of(training: Training, config: Pretrain) -> StreamSettings:
    return StreamSettings(
        corpus=training.corpus,
        vocabulary=training.vocabulary,
        sampling=config.sampling,
        batch=config.batch,
        seed=config.seed,
    )


def start_of(training: Training, config: Pretrain) -> Start:
    return read_start(config, stream_of(training, config), None)


def train(training: Training, config: Pretrain) -> None:
    """Train as a driver does, which records the run before the first step."""
    folder = run_folder(config)
    write_run(folder, identity(config, training.corpus, training.vocabulary), config.steps, "0a1b", "corpus")
    training.run(config, Path(folder), {})


def test_a_new_run_starts_and_another_continues_after_its_newest_checkpoint(
    training: Training, tiny_config: Pretrain, tmp_path: Path
) -> None:
    config = replace(tiny_config, output=str(tmp_path), steps=3)
    new = start_of(training, config)
    assert (new.continuing, new.done, new.recorded, new.mlflow_run_id) == (False, 0, None, None)
    train(training, config)
    again = start_of(training, config)
    assert (again.continuing, again.done, again.mlflow_run_id, again.summary) == (True, 3, "0a1b", None)
    with pytest.raises(ConfigError, match="^run tiny was started with other settings: seed was 0 and is now 1; "):
        start_of(training, replace(config, seed=1))


def test_a_run_goes_on_with_the_slots_and_the_graphs_in_its_run_json(
    training: Training, tiny_config: Pretrain, tmp_path: Path
) -> None:
    """A run begun with 4 rows per slot and CUDA graphs, continued by a command that leaves both to be chosen."""
    config = replace(tiny_config, output=str(tmp_path), steps=3, batch=Batch(rows_per_step=16))
    before = replace(config, batch=Batch(rows_per_step=16, rows_per_slot=4))
    recorded = identity(before, training.corpus, training.vocabulary) | {GRAPHS: "on"}
    write_run(run_folder(config), recorded, 3, "0a1b", "corpus")
    gpu = Where(on_gpus=True, memory=FreeMemory(gpu="NVIDIA H200", bytes=141_000_000_000, has_kernel=True))
    chosen, _ = with_choices(config, recorded, gpu)
    assert (chosen.batch.rows_per_slot, chosen.placement.graphs) == (4, "on")
    assert start_of(training, chosen).identity == recorded
    assert settings_of({"identity": recorded, "steps": 3}).placement.graphs == "on"
    without, _ = with_choices(replace(config, placement=replace(config.placement, graphs="off")), recorded, gpu)
    assert start_of(training, without).identity == {key: recorded[key] for key in recorded if key != GRAPHS}
    new, _ = with_choices(config, None, gpu)
    with pytest.raises(ConfigError, match="batch.rows_per_slot was 4 and is now 16"):
        start_of(training, new)


def test_a_constant_rate_may_go_on_but_not_back(training: Training, tiny_config: Pretrain, tmp_path: Path) -> None:
    config = replace(tiny_config, output=str(tmp_path), steps=4, schedule=ConstantRate(warmup_steps=2))
    train(training, config)
    longer = start_of(training, replace(config, steps=9))
    assert (longer.continuing, longer.done) == (True, 4)
    assert roll_back(replace(config, steps=9), longer, pytest.fail) is longer
    with pytest.raises(ConfigError) as refused:
        start_of(training, replace(config, steps=3))
    assert str(refused.value) == (
        "steps (3) must be at least 4, the steps that run tiny has done: set more steps, or choose another --name"
    )


def test_a_run_that_has_decayed_goes_back_to_where_it_began_to(
    training: Training, tiny_config: Pretrain, tmp_path: Path
) -> None:
    config = replace(
        tiny_config,
        output=str(tmp_path),
        steps=8,
        schedule=WarmupStableDecay(warmup_steps=2, decay_share=0.25),
        checkpoint=Checkpoints(every=50, keep=1),
    )
    train(training, config)
    longer, lines = replace(config, steps=12), list[str]()
    start = roll_back(longer, start_of(training, longer), lines.append)
    assert (start.done, start.mlflow_run_id, start.continues) == (6, None, "0a1b from step 6")
    assert steps_saved(run_folder(config)) == [6]
    assert lines == [
        "run tiny: going back from step 8 to 6, where its learning rate began to decay; "
        "from there the run is tracked as a new MLflow run"
    ]
    assert start_of(training, longer).done == 6


def test_a_continued_run_needs_no_counted_word_embeddings(
    training: Training, tiny_config: Pretrain, tmp_path: Path
) -> None:
    config = with_words_rate(replace(tiny_config, output=str(tmp_path), steps=2, word_embeddings="cooccurrence"))
    train(training, config)
    start = start_of(training, config)
    assert start.continuing and word_embeddings(config, stream_of(training, config), start, pytest.fail) is None
    with pytest.raises(ConfigError, match="word_embeddings was 'cooccurrence' and is now 'random'"):
        start_of(training, replace(config, word_embeddings="random"))
