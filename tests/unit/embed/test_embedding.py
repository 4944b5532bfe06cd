"""jobs/embed.py in this process: stopped and continued to the bytes of an undisturbed job, and searched."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from jobs.embed import main
from jobs.search import main as search
from pipeline import api
from tests.answered import change_times, part_bytes, stop_after, write_texts


def test_stopped_and_continued_it_has_the_bytes_of_an_undisturbed_job_and_is_searched(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    texts, stopped, parts = write_texts(tmp_path / "texts"), tmp_path / "stopped", tmp_path / "stopped" / "parts"
    asked = ["--checkpoint", str(tiny_run), "--input", str(texts), "--rows-per-part", "20", "--placement.threads", "1"]
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        assert main([*asked, "--output", str(stopped)]) == 130
    assert "\nwithout Ray: 400 rows, at most 4,000\n" in capsys.readouterr().out
    before = change_times(parts)
    assert len(before) == 4 and not (stopped / "manifest.json").exists()
    assert search(["--vectors", str(stopped), "--queries", "kar"]) == 2
    assert main([*asked, "--output", str(stopped), "--format", "int8"]) == 2
    assert "stopped/parts holds vectors for format float32, not for format int8: " in capsys.readouterr().err
    (parts / "000000-000009.parquet.0123456789abcdef.tmp").write_bytes(b"of a killed job")
    assert main([*asked, "--output", str(stopped)]) == 0
    said = capsys.readouterr().out
    assert "4 parts are embedded already" in said and "400 texts, 20 of them empty and without a vector: " in said
    assert {name: change_times(parts)[name] for name in before} == before
    assert main([*asked, "--output", str(tmp_path / "undisturbed")]) == 0
    assert part_bytes(parts) == part_bytes(tmp_path / "undisturbed" / "parts")
    assert {path.suffix for path in parts.iterdir()} == {".parquet"}
    capsys.readouterr()
    assert main([*asked, "--output", str(stopped)]) == 0 and "has these vectors already" in capsys.readouterr().out

    rows = pq.read_table(parts).to_pylist()
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
    assert search(["--vectors", str(stopped), "--queries", whole["1-39"][:40], "--output", str(found)]) == 0
    results = json.loads(found.read_text())["results"]
    assert len(results) == 10 == len({result["id"] for result in results})
