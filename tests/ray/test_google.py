"""A run stored in an emulator of Google Cloud Storage: prepared, killed, resumed, exported."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.files import storage
from pipeline.on_ray.heads import is_listening
from pipeline.saved import checkpoints
from tests.chaos.simulated import finished, free_port, job, program

pytest.importorskip("gcp_storage_emulator")

BUCKET = "gs://anonymous@texts"


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    port = free_port()
    server = subprocess.Popen(
        [
            program("gcp-storage-emulator"),
            "start",
            "--host=127.0.0.1",
            f"--port={port}",
            "--in-memory",
            "--default-bucket=texts",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    storage.store.cache_clear()
    while not is_listening(f"127.0.0.1:{port}"):
        assert server.poll() is None, "the emulator ended"
        time.sleep(0.1)
    yield
    server.terminate()
    server.wait()
    storage.store.cache_clear()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_resumes_from_google_storage(google: None, small_corpus: Path, tmp_path: Path, ray_folder: Path):
    for file in sorted(small_corpus.iterdir()):
        storage.write_bytes(f"{BUCKET}/raw/{file.name}", file.read_bytes())
    sizes = [
        "--prepare.window-characters",
        "6000",
        "--prepare.piece-characters",
        "1000",
        "--prepare.heldout-share",
        "0.1",
        "--prepare.near-duplicates",
        "None",
        "--vocabulary.size",
        "150",
    ]
    settings = [
        "--sampling.maximum-length",
        "32",
        "--model.maximum-positions",
        "32",
        "--model.layers",
        "1",
        "--model.width",
        "32",
        "--model.feed-forward",
        "64",
        "--batch.rows-per-step",
        "16",
        "--batch.rows-per-slot",
        "4",
    ]
    settings += [
        "--checkpoint.every",
        "20",
        "--checkpoint.keep",
        "2",
        "--evaluation.rows",
        "32",
        "--tracking.every",
        "1",
        "--placement.compile",
        "off",
        "--placement.device",
        "cpu",
    ]
    command = [
        "bert-tiny",
        "--corpus",
        f"{BUCKET}/raw",
        "--output",
        f"{BUCKET}/output",
        "--name",
        "stored",
        "--steps",
        "120",
        *sizes,
        *settings,
    ]
    with job("pretrain", *command, tracking=tmp_path, ray_folder=ray_folder) as first:
        assert first.stdout
        seen = []
        for line in first.stdout:
            seen.append(line)
            if (found := re.match(r"step +(\d+)/", line)) and int(found[1]) > 65:
                first.send_signal(signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL, "".join(seen)

    text = finished(job("pretrain", *command, tracking=tmp_path, ray_folder=ray_folder))
    assert re.search(r"continuing after step [46]0\n", text), text
    folder = f"{BUCKET}/output/runs/stored"
    assert checkpoints.newest_sound(folder, pytest.fail) == checkpoints.folder_of(
        folder, 120
    ) and checkpoints.steps_saved(folder) == [100, 120]
    assert "model.safetensors" in storage.children(f"{folder}/export") and "checked" in text
