"""The jobs' own mains against an S3 server on this machine that answers slowly now and then, and now and then with an
error; no secret of theirs is left anywhere.
"""

import itertools
import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from werkzeug.serving import WSGIRequestHandler, make_server

from pipeline.files import storage
from pipeline.saved import checkpoints
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.train import checkpoint
from tests.chaos.simulated import finished, job

boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")

BUCKET = "texts"
ERROR_EVERY, SLOW_EVERY, SLOW_SECONDS = 17, 5, 0.1
PLANTED = "planted-secret-4711"
Answer = Iterable[bytes]


class Flaky:
    """An S3 server whose every 17th answer is an error and every 5th is late."""

    def __init__(self) -> None:
        self.application = moto_server.DomainDispatcherApplication(moto_server.create_backend_app)
        self.count, self.errors = itertools.count(1), 0
        self.calm = True

    def __call__(self, environment: dict[str, Any], start: Callable[..., Any]) -> Answer:
        number = next(self.count)
        if not self.calm and number % ERROR_EVERY == 0:
            self.errors += 1
            environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
            start("500 Internal Server Error", [("Content-Type", "application/xml")])
            return [
                b"<Error><Code>InternalError</Code><Message>We encountered an internal error. Please try "
                b"again.</Message></Error>"
            ]
        if not self.calm and number % SLOW_EVERY == 0:
            time.sleep(SLOW_SECONDS)
        return self.application(environment, start)


class Silent(WSGIRequestHandler):
    """Log no requests."""

    def log(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def s3() -> Iterator[Flaky]:
    """Start the server, and set the environment of this process and its children to it."""
    application = Flaky()
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", PLANTED)
        patch.setenv("HF_TOKEN", PLANTED)
        patch.setenv("MLFLOW_TRACKING_PASSWORD", PLANTED)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.delenv("RAY_ADDRESS", raising=False)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        application.calm = False
        yield application
        application.calm = True
    server.shutdown()


def contents(folder: Path) -> list[bytes]:
    """The contents of all files in a folder, from which processes may delete files."""
    found = []
    for file in folder.rglob("*"):
        if file.is_file():
            with suppress(FileNotFoundError):
                found.append(file.read_bytes())
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_prepare_pretrain_resume_export_finetune_and_predict_on_an_object_store(
    s3: Flaky, small_corpus: Path, tiny_vocabulary: Vocabulary, tmp_path: Path, ray_folder: Path
):
    save_vocabulary(tiny_vocabulary, tmp_path, 32)
    client, where = boto3.client("s3"), f"s3://{BUCKET}"
    for file in sorted(small_corpus.iterdir())[:40]:
        client.upload_file(str(file), BUCKET, f"raw/{file.name}")
    sizes = [
        "--prepare.window-characters",
        "6000",
        "--prepare.piece-characters",
        "1000",
        "--prepare.heldout-share",
        "0.1",
        "--prepare.near-duplicates",
        "None",
    ]
    settings = [
        "--vocabulary.path",
        str(tmp_path),
        "--sampling.maximum-length",
        "32",
        "--model.maximum-positions",
        "32",
        "--model.layers",
        "1",
        "--model.width",
        "32",
    ]
    settings += [
        "--model.feed-forward",
        "64",
        "--batch.rows-per-step",
        "16",
        "--batch.rows-per-slot",
        "4",
        "--evaluation.rows",
        "32",
        "--checkpoint.every",
        "20",
    ]
    settings += [
        "--checkpoint.keep",
        "2",
        "--checkpoint.keep-best",
        "--evaluation.every",
        "20",
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
        f"{where}/raw/*.txt",
        "--output",
        f"{where}/output",
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
            if (found := re.match(r"step +(\d+)/", line)) and int(found[1]) > 45:
                first.send_signal(signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL, "".join(seen)
    # The path of ray_folder is too long for sockets, so Ray's folder is in /tmp. The next job deletes it.
    logs = [content for folder in Path("/tmp").glob("bertstream-ray-*") for content in contents(folder)]

    folder = f"{where}/output/runs/stored"
    text = finished(job("pretrain", *command, tracking=tmp_path, ray_folder=ray_folder))
    assert re.search(r"continuing after step [24]0\n", text), text
    newest = checkpoints.newest_sound(folder, pytest.fail)
    assert newest == checkpoints.folder_of(folder, 120, 2) and checkpoint.read_state(newest).step == 120
    kept = checkpoints.steps_saved(folder)
    assert kept[-2:] == [100, 120] and checkpoint.best_step(folder, 0, 120) in kept and len(kept) <= 3

    assert "model.safetensors" in storage.children(f"{folder}/export")
    exported = finished(job("export", folder, "--kinds", "huggingface", tracking=tmp_path, ray_folder=ray_folder))
    assert "checked" in exported
    prepared = finished(
        job(
            "prepare",
            "--corpus",
            f"{where}/raw/*.txt",
            "--folder",
            f"{where}/prepared",
            *sizes,
            tracking=tmp_path,
            ray_folder=ray_folder,
        )
    )
    assert "windows" in prepared and storage.exists(f"{where}/prepared/manifest.json")

    rows = [
        f"{'kar mist' if row % 2 else 'lond sur'} {'nest ' * (row % 7)}{row},{'good' if row % 2 else 'bad'}"
        for row in range(80)
    ]
    client.put_object(Bucket=BUCKET, Key="reviews.csv", Body="\n".join(["text,label", *rows]).encode())
    asked = [
        "--checkpoint",
        f"{folder}/export",
        "--train",
        f"{where}/reviews.csv",
        "--output",
        f"{where}/tuned",
        "--seeds",
        "1",
        "--recipe.epochs",
        "4",
        "--trials.cpus",
        "1",
        "--placement.device",
        "cpu",
    ]
    tuned = finished(job("finetune", *asked, tracking=tmp_path, ray_folder=ray_folder))
    again = finished(job("finetune", *asked, tracking=tmp_path, ray_folder=ray_folder))
    assert "| reviews | dev accuracy" in tuned and "1 of 1 trials have their results already" in again
    (model,) = [
        f"{where}/tuned/finetune/{name}/model"
        for name in storage.children(f"{where}/tuned/finetune")
        if name.startswith("reviews-seed")
    ]
    answers = f"{where}/answers.jsonl"
    predicted = finished(
        job(
            "predict",
            "--checkpoint",
            model,
            "--input",
            f"{where}/reviews.csv",
            "--output",
            answers,
            "--placement.device",
            "cpu",
            tracking=tmp_path,
            ray_folder=ray_folder,
        )
    )
    found = [json.loads(line) for line in storage.read_bytes(answers).splitlines()]
    assert [row["text"] for row in found] == [row.rsplit(",")[0] for row in rows] and {
        row["predicted_label"] for row in found
    } <= {"good", "bad"}
    assert s3.errors > 20

    stored = [
        client.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        for entry in page["Contents"]
    ]
    local = [*logs, *contents(tmp_path)]
    said = "".join([*seen, text, exported, prepared, tuned, again, predicted]).encode()
    token = (Path.home() / ".ray" / "auth_token").read_bytes().strip()
    assert len(stored) > 20 and len(logs) > 20 and any(BUCKET.encode() in content for content in logs)
    assert not [content[:200] for content in (*stored, *local, said) if PLANTED.encode() in content or token in content]
