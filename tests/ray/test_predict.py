"""jobs/predict.py on Ray and in this process: the same bytes, also if one continues what was killed on the other."""

from pathlib import Path

import pytest

from jobs.predict import main
from pipeline.text.vocabulary import Vocabulary
from tests.answered import change_times, stop_after, without_ray, write_classifier, write_reviews
from tests.ray.killing import kill_when_begun

pytestmark = pytest.mark.usefixtures("local_ray", "one_thread")


@pytest.fixture(scope="module")
def checkpoint(tiny_vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_classifier(tmp_path_factory.mktemp("tuned") / "model", tiny_vocabulary)


@pytest.fixture
def options(checkpoint: str, tmp_path: Path) -> list[str]:
    asked = ["--checkpoint", checkpoint, "--input", str(write_reviews(tmp_path / "reviews")), "--rows-per-part", "25"]
    return [*asked, "--actors", "1", "--placement.threads", "1"]


def undisturbed(options: list[str], output: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The output of a job in this process."""
    with monkeypatch.context() as patch:
        without_ray(patch)
        assert main([*options, "--output", str(output)]) == 0
    return output.read_bytes()


def test_stopped_without_ray_it_is_continued_on_ray_to_the_same_bytes(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = tmp_path / "stopped.parquet"
    with monkeypatch.context() as patch:
        without_ray(patch)
        stop_after(patch, 3)
        assert main([*options, "--output", str(stopped)]) == 130
    before = change_times(tmp_path / "stopped.parquet.parts")
    capsys.readouterr()
    assert len(before) == 3 and main([*options, "--output", str(stopped)]) == 0
    said = capsys.readouterr().out
    assert "3 parts are answered already\non Ray: this process has joined Ray\n" in said
    assert "400 rows of 2 files, 20 of them empty and without an answer, computed in float32, in " in said
    assert stopped.read_bytes() == undisturbed(options, tmp_path / "undisturbed.parquet", monkeypatch)
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.second
def test_killed_on_ray_it_is_continued_without_ray_to_the_same_bytes(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed.parquet"
    asked, parts = [*options, "--output", str(killed), "--rows-per-part", "5"], tmp_path / "killed.parquet.parts"
    assert 2 <= kill_when_begun("predict", asked, parts, on_ray=True) < 80 and not killed.exists()
    with monkeypatch.context() as patch:
        without_ray(patch)
        assert main(asked) == 0
    whole = tmp_path / "undisturbed.parquet"
    assert killed.read_bytes() == undisturbed([*options, "--rows-per-part", "5"], whole, monkeypatch)
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.second
def test_a_broken_line_is_one_line_of_error(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": 7}\n{"text": 3}\n')
    asked = ["--checkpoint", checkpoint, "--input", str(tmp_path / "a.jsonl"), "--output", str(tmp_path / "a.csv")]
    assert main([*asked, "--actors", "1"]) == 2
    assert (
        capsys.readouterr().err == f"error: {tmp_path}/a.jsonl, rows 1 to 2: column text holds 7, which is not a text\n"
    )
