"""jobs/embed.py: a killed job continues to the ids and vectors of an undisturbed one, and jobs/search.py finds them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray

from jobs.embed import main
from jobs.search import main as search
from pipeline import api
from tests.ray import undisturbed

pytestmark = pytest.mark.usefixtures("local_ray", "one_thread")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Two files of texts, of which some are empty and some are longer than the model reads."""
    (folder := tmp_path / "texts").mkdir()
    for file in range(2):
        rows = [
            {"id": f"{file}-{row}", "text": f"kar lost kand. {'mir nest ' * (row % 40)}" if row % 20 else " "}
            | ({"title": "T"} if file else {})
            for row in range(200)
        ]
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of each part."""
    return {path.name: path.read_bytes() for path in (folder / "parts").iterdir() if path.suffix == ".parquet"}


def test_killed_and_resumed_it_has_the_bytes_of_an_undisturbed_job_and_is_searched(
    tiny_run: Path,
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--checkpoint", str(tiny_run), "--input", str(texts), "--rows-per-part", "20", "--actors", "1"]
    asked += ["--placement.threads", "1"]
    killed = tmp_path / "killed"
    environment = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    command = [sys.executable, "jobs/embed.py", *asked, "--output", str(killed)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment) as job:
        until = time.monotonic() + 120
        while job.poll() is None and len(list(killed.glob("parts/*.parquet"))) < 2 and time.monotonic() < until:
            time.sleep(0.005)
        job.kill()
    assert job.returncode == -signal.SIGKILL, job.stderr
    assert 2 <= len(contents(killed)) < 20 and not (killed / "manifest.json").exists()
    assert search(["--vectors", str(killed), "--queries", "kar"]) == 2
    assert main([*asked, "--output", str(killed), "--format", "int8"]) == 2
    assert "killed/parts holds vectors for format float32, not for format int8: " in capsys.readouterr().err
    assert main([*asked, "--output", str(killed)]) == 0
    assert "400 texts, 20 of them empty and without a vector: " in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.embed.distributed.run_parts", undisturbed.run_parts)
        assert main([*asked, "--output", str(tmp_path / "undisturbed")]) == 0
    assert contents(killed) == contents(tmp_path / "undisturbed") and not list(killed.glob("parts/*.json"))
    capsys.readouterr()
    assert main([*asked, "--output", str(killed)]) == 0 and "has these vectors already" in capsys.readouterr().out

    rows = pq.read_table(killed / "parts").to_pylist()
    given = [json.loads(line) for file in sorted(texts.iterdir()) for line in file.read_text().splitlines()]
    whole = {row["id"]: row["text"] for row in given if row["text"].strip()}
    assert list(dict.fromkeys(row["id"] for row in rows)) == list(whole) and len(rows) > len(whole)
    assert {row["title"] for row in rows} == {None, "T"}
    assert all(row["text"] == whole[row["id"]][row["start"] : row["end"]] for row in rows)
    some = rows[::25]
    np.testing.assert_allclose(
        [row["vector"] for row in some], api.load(str(tiny_run)).embed([row["text"] for row in some]), atol=1e-5
    )

    found = tmp_path / "found.jsonl"
    assert search(["--vectors", str(killed), "--queries", whole["1-39"][:40], "--output", str(found)]) == 0
    results = json.loads(found.read_text())["results"]
    assert len(results) == 10 == len({result["id"] for result in results})
