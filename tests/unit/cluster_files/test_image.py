"""The check of the Dockerfile, with one thing wrong."""

from pathlib import Path

import pytest

from cluster.rules.software import LOCK, RAY_IMAGE
from tests.unit.cluster_files.changing import ROOT, lines


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            RAY_IMAGE,
            "rayproject/ray:2.59.0-py311",
            f"FROM: rayproject/ray:2.59.0-py311; {RAY_IMAGE}, the Ray of cluster/requirements.txt",
        ),
        (
            RAY_IMAGE,
            "rayproject/ray:2.60.0-py312",
            f"FROM: rayproject/ray:2.60.0-py312; {RAY_IMAGE}, the Ray of cluster/requirements.txt",
        ),
        ("USER ray", "USER root", "USER: root at the end; ray"),
        (
            "--constraint requirements.txt torch",
            "torch",
            "line 13: pip install without the lock; --constraint cluster/requirements.txt",
        ),
        (
            "requirements.txt torch",
            "requirements.txt torch==2.11.0",
            f"line 13: torch==2.11.0; cluster/requirements.txt has {LOCK['torch']}",
        ),
    ],
)
def test_one_wrong_thing_in_the_dockerfile_is_one_line(
    old: str, new: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "cluster/Dockerfile").read_text()
    assert old in text
    (tmp_path / "Dockerfile").write_text(text.replace(old, new))
    (tmp_path / "Dockerfile.dockerignore").write_text("*\n")
    assert lines(tmp_path / "Dockerfile", capsys) == [line]


def test_an_image_that_may_see_everything_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Dockerfile").write_text((ROOT / "cluster/Dockerfile").read_text())
    assert lines(tmp_path / "Dockerfile", capsys) == [
        "Dockerfile.dockerignore: must begin with * and name what the image may see: runs, data and secrets may not"
    ]
