"""Checkpoints and folders in Google's store, by an emulator of it: its listings name no folders."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.jobs import Pretrain
from pipeline.config.training import AdamW
from pipeline.corpus.order import Cursor
from pipeline.files import storage
from pipeline.optim.build import build_optimizer
from pipeline.saved import checkpoints
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import checkpoint
from pipeline.train.checkpoint import State

emulator = pytest.importorskip("gcp_storage_emulator.server")

RUN = "gs://anonymous@texts/output/runs/a"
STATE = State(step=0, cursor=Cursor(epoch=0, window=1, row=7, rows_in_window=20))


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket="texts")
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://127.0.0.1:{port}")
    storage.store.cache_clear()
    server.start()
    yield
    server.stop()
    storage.store.cache_clear()


def test_folders_are_listed_published_and_deleted(google: None, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("a.txt", "inner/b.bin"):
        (tmp_path / name).write_text(name)
    storage.publish(tmp_path, f"{RUN}/export", {"step": 1})
    storage.write_json(f"{RUN}/run.json", {})
    assert storage.children(RUN) == ["export", "run.json"] and storage.children(f"{RUN}/export") == [
        "a.txt",
        "inner",
        "manifest.json",
    ]
    assert storage.children(f"{RUN}/nowhere") == [] and storage.damage(f"{RUN}/export") is None
    storage.write_bytes(f"{RUN}/export/a.txt", b"A.txt")
    assert storage.damage(f"{RUN}/export") == "a.txt does not match its SHA-256"
    storage.copy_file(f"{RUN}/export/inner/b.bin", f"{tmp_path}/copy")
    assert (tmp_path / "copy").read_text() == "inner/b.bin"
    assert storage.is_file(f"{RUN}/export/a.txt") and not storage.is_file(f"{RUN}/export")
    storage.delete_folder(f"{RUN}/export")
    assert storage.children(RUN) == ["run.json"] and not storage.exists(f"{RUN}/export")


def test_a_run_resumes_from_its_newest_checkpoint_and_deletes_old_ones(
    google: None, training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary
) -> None:
    module = training.module(tiny_config)
    optimizer = build_optimizer(AdamW(), module)
    for step, loss in ((50, 2.0), (100, 1.0), (150, 3.0), (200, 4.0)):
        checkpoint.save(RUN, replace(STATE, step=step, heldout_loss=loss), module, optimizer, tiny_vocabulary)
    assert checkpoints.steps_saved(RUN) == [50, 100, 150, 200] and checkpoint.best_step(RUN, 0, 200) == 100
    newest = checkpoints.newest_sound(RUN, pytest.fail)
    assert newest == checkpoints.folder_of(RUN, 200) and checkpoint.load(newest, module, None).step == 200
    storage.write_bytes(f"{newest}/state.json", b"{}")
    assert checkpoints.newest_sound(RUN, lambda line: None) == checkpoints.folder_of(RUN, 150)
    checkpoint.delete_old_checkpoints(RUN, 2, 200, {100})
    assert checkpoints.steps_saved(RUN) == [100, 150, 200]
