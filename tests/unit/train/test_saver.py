"""Checkpoints written beside the training: what is in them, and storage that refuses them for a while or for good."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.config.jobs import Pretrain
from pipeline.config.training import AdamW, Checkpoints
from pipeline.corpus.order import Cursor
from pipeline.errors import CheckpointError
from pipeline.optim.build import build_optimizer
from pipeline.saved import checkpoints
from pipeline.train import checkpoint
from pipeline.train import saver as saving
from pipeline.train.checkpoint import State
from pipeline.train.saver import Saver

CURSOR = Cursor(epoch=0, window=1, row=2, rows_in_window=9)


@pytest.fixture
def module(training, tiny_config: Pretrain) -> torch.nn.Module:
    return training.module(tiny_config)


def saver(folder: Path, config: Pretrain, vocabulary, said: list[str], **settings) -> Saver:
    return Saver(
        str(folder), replace(config, checkpoint=Checkpoints(**settings)), vocabulary, lambda: None, said.append
    )


def state(step: int, loss: float | None = None) -> State:
    return State(step=step, cursor=CURSOR, heldout_loss=loss)


def blocked(folder: Path) -> Path:
    """A file in the place of the folder that checkpoints are written to."""
    place = folder / "checkpoints"
    place.write_text("")
    return place


def test_what_is_written_is_the_model_of_that_moment(module, tiny_config: Pretrain, tiny_vocabulary, tmp_path: Path):
    optimizer, before = (
        build_optimizer(AdamW(), module),
        {name: tensor.clone() for name, tensor in module.state_dict().items()},
    )
    released = threading.Event()
    with Saver(str(tmp_path), tiny_config, tiny_vocabulary, lambda: released.wait(30), print) as writer:
        writer.save(state(3), module, optimizer, wait=True)
        writer.save(state(4), module, optimizer, wait=False)  # done without: the one before is not written yet
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(1.0)
        assert checkpoints.steps_saved(str(tmp_path)) == []  # training has gone on before anything was written
        released.set()
    assert checkpoint.load(checkpoints.folder_of(str(tmp_path), 3), module, None) == state(3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_logged_metrics_are_sent_before_a_checkpoint_is_published(
    module, tiny_config: Pretrain, tiny_vocabulary, tmp_path: Path
):
    optimizer, published = build_optimizer(AdamW(), module), []

    def flush() -> None:
        published.append(checkpoints.steps_saved(str(tmp_path)))

    with Saver(str(tmp_path), tiny_config, tiny_vocabulary, flush, print) as writer:
        writer.save(state(3), module, optimizer, wait=True)
        writer.save(state(4), module, optimizer, wait=True)
    assert published == [[], [3]] and checkpoints.steps_saved(str(tmp_path)) == [3, 4]


def test_storage_that_refuses_for_a_while_gets_its_checkpoint(
    module, tiny_config: Pretrain, tiny_vocabulary, tmp_path: Path
):
    place, said = blocked(tmp_path), []
    with saver(tmp_path, tiny_config, tiny_vocabulary, said) as writer:
        writer.save(state(3), module, build_optimizer(AdamW(), module), wait=True)
        while not said:
            time.sleep(0.01)
        writer.check()  # training goes on
        assert writer.failing.is_set()
        begun = time.monotonic()
        writer.save(
            state(4), module, build_optimizer(AdamW(), module), wait=not writer.failing.is_set()
        )  # as the loop asks: done without
        assert time.monotonic() - begun < 1
        place.unlink()
    assert not writer.failing.is_set()
    assert checkpoints.newest_sound(str(tmp_path), pytest.fail) == checkpoints.folder_of(str(tmp_path), 3)
    assert (
        len(said) == 1
        and said[0].startswith("the checkpoint of step 3 cannot be written (")
        and said[0].endswith("; trying again for 300 s while training goes on")
    )


def test_storage_that_refuses_for_too_long_ends_the_run_in_one_line(
    module, tiny_config: Pretrain, tiny_vocabulary, tmp_path: Path
):
    blocked(tmp_path)
    with pytest.raises(
        CheckpointError,
        match=r"^the checkpoint of step 3 could not be written below .* for 0 s \(.*\); free space or give "
        r"access, and start the same command again",
    ):
        with saver(tmp_path, tiny_config, tiny_vocabulary, [], patience_seconds=0) as writer:
            writer.save(state(3), module, build_optimizer(AdamW(), module), wait=True)
            while writer.writing and not writer.writing.done():
                time.sleep(0.01)
            writer.check()
            pytest.fail("the loop would train on")


def test_a_failed_training_does_not_wait_for_failing_storage(
    module, tiny_config: Pretrain, tiny_vocabulary, tmp_path: Path
):
    blocked(tmp_path)
    with pytest.raises(ZeroDivisionError):
        with saver(tmp_path, tiny_config, tiny_vocabulary, [], patience_seconds=3_600) as writer:
            writer.save(state(3), module, build_optimizer(AdamW(), module), wait=True)
            raise ZeroDivisionError


def test_checkpoints_written_for_time_replace_no_regular_ones(
    module, tiny_config: Pretrain, tiny_vocabulary, tmp_path: Path
):
    config = replace(tiny_config, steps=12)
    with saver(tmp_path, config, tiny_vocabulary, [], every=2, keep=2) as writer:
        for step in (2, 4, 5, 7):
            writer.save(state(step), module, build_optimizer(AdamW(), module), wait=True)
    assert checkpoints.steps_saved(str(tmp_path)) == [2, 4, 7]


def test_what_is_published_stays_where_older_ones_cannot_be_deleted(
    module, tiny_config: Pretrain, tiny_vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    said: list[str] = []
    refused = iter([OSError("AWS Error ACCESS_DENIED")])
    keep, publish, published = checkpoint.delete_old_checkpoints, checkpoint.publish, []

    def keep_newest(*about: object) -> None:
        if error := next(refused, None):
            raise error
        keep(*about)

    monkeypatch.setattr(saving, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(checkpoint, "delete_old_checkpoints", keep_newest)
    monkeypatch.setattr(
        checkpoint, "publish", lambda folder, at, *rest: published.append(at.step) or publish(folder, at, *rest)
    )
    with saver(tmp_path, tiny_config, tiny_vocabulary, said, keep=1) as writer:
        for step in (1, 2):
            writer.save(state(step), module, build_optimizer(AdamW(), module), wait=True)
    assert published == [1, 2] and checkpoints.steps_saved(str(tmp_path)) == [2]
    assert said == [
        "the checkpoint of step 1 cannot replace older ones (AWS Error ACCESS_DENIED); "
        "trying again for 300 s while training goes on"
    ]


@pytest.fixture
def losses() -> Iterator[list[float | None]]:
    yield [3.0, 2.0, None, 2.5, 2.4]


@pytest.mark.parametrize(("keep_best", "left"), [(False, [4, 5]), (True, [2, 4, 5])])
def test_the_best_is_kept_beside_the_newest(
    module,
    tiny_config: Pretrain,
    tiny_vocabulary,
    tmp_path: Path,
    losses: list[float | None],
    keep_best: bool,
    left: list[int],
):
    with saver(tmp_path, tiny_config, tiny_vocabulary, [], keep=2, keep_best=keep_best) as writer:
        for step, loss in enumerate(losses, start=1):
            writer.save(state(step, loss), module, build_optimizer(AdamW(), module), wait=True)
    assert checkpoints.steps_saved(str(tmp_path)) == left


def test_the_best_is_sound_of_this_phase_and_no_later_than_the_run(
    module, tiny_config: Pretrain, tiny_vocabulary, tmp_path: Path
):
    with saver(tmp_path, tiny_config, tiny_vocabulary, [], keep=9) as writer:
        for step, loss in ((1, 1.0), (2, 1.5), (3, 2.0), (4, 2.5), (9, 0.5)):
            writer.save(state(step, loss), module, build_optimizer(AdamW(), module), wait=True)
    folder = Path(checkpoints.folder_of(str(tmp_path), 2))
    assert (
        checkpoint.best_step(str(tmp_path), 0, 4) == 1
        and checkpoint.best_step(str(tmp_path), 1, 4) == 2
        and checkpoint.best_step(str(tmp_path), 4, 8) is None
    )
    (folder / "model.safetensors").write_bytes(b"")
    assert checkpoint.best_step(str(tmp_path), 1, 4) == 3
    (folder / "state.json").write_text("{")
    assert checkpoint.best_step(str(tmp_path), 1, 4) == 3
