"""jobs/embed.py on Ray and in this process: the same vectors, also if one continues what was killed on the other."""

from pathlib import Path

import pytest

from jobs.embed import main
from tests.answered import change_times, part_bytes, stop_after, without_ray, write_texts
from tests.ray.killing import kill_when_begun

pytestmark = pytest.mark.usefixtures("local_ray", "one_thread")


@pytest.fixture
def options(tiny_run: Path, tmp_path: Path) -> list[str]:
    asked = ["--checkpoint", str(tiny_run), "--input", str(write_texts(tmp_path / "texts")), "--rows-per-part", "20"]
    return [*asked, "--actors", "1", "--placement.threads", "1"]


def undisturbed(options: list[str], output: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The parts of a job in this process."""
    with monkeypatch.context() as patch:
        without_ray(patch)
        assert main([*options, "--output", str(output)]) == 0
    return part_bytes(output / "parts")


def test_stopped_without_ray_it_is_continued_on_ray_to_the_same_bytes(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        without_ray(patch)
        stop_after(patch, 3)
        assert main([*options, "--output", str(stopped)]) == 130
    before = change_times(stopped / "parts")
    capsys.readouterr()
    assert len(before) == 3 and main([*options, "--output", str(stopped)]) == 0
    said = capsys.readouterr().out
    assert "3 parts are embedded already\non Ray: this process has joined Ray\n" in said
    assert "400 texts, 20 of them empty and without a vector: " in said
    assert {name: change_times(stopped / "parts")[name] for name in before} == before
    assert part_bytes(stopped / "parts") == undisturbed(options, tmp_path / "undisturbed", monkeypatch)


@pytest.mark.second
@pytest.mark.parametrize("on_ray", [False, True])
def test_killed_on_ray_or_without_it_is_continued_the_other_way_to_the_same_bytes(
    on_ray: bool, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, asked = tmp_path / "killed", [*options, "--rows-per-part", "4"]
    assert 2 <= kill_when_begun("embed", [*asked, "--output", str(killed)], killed / "parts", on_ray=on_ray) < 100
    assert not (killed / "manifest.json").exists()
    with monkeypatch.context() as patch:
        if on_ray:
            without_ray(patch)
        assert main([*asked, "--output", str(killed)]) == 0
    assert part_bytes(killed / "parts") == undisturbed(asked, tmp_path / "undisturbed", monkeypatch)
