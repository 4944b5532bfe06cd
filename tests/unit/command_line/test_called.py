"""Commands in messages, written as the user started this one."""

import re
from contextlib import suppress

import pytest

from jobs import bench, pretrain, show
from pipeline.errors import as_called

INSTALLED, CLONE = "/usr/bin/bertstream", "jobs/pretrain.py"


@pytest.mark.parametrize(
    ("text", "installed"),
    [
        ("python jobs/show.py seen RUN 3", "bertstream show seen RUN 3"),
        ("answer it with jobs/predict.py", "answer it with bertstream predict"),
        ("error: /my/jobs/export.py is no corpus", "error: /my/jobs/export.py is no corpus"),
        ("jobs/other.py and jobs/score.python", "jobs/other.py and jobs/score.python"),
    ],
)
def test_only_commands_of_the_project_are_rewritten(text: str, installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [CLONE])
    assert as_called(text) == text
    monkeypatch.setattr("sys.argv", [INSTALLED, "pretrain"])
    assert as_called(text) == installed


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (pretrain.main, ["--steps", "many"]),
        (pretrain.main, ["--help"]),
        (show.main, ["--help"]),
        (show.main, ["seen", "--help"]),
        (show.main, ["seen", "RUN", "many"]),
        (bench.main, ["step", "--help"]),
        (bench.main, ["step", "--rows", "0"]),
    ],
)
def test_the_installed_command_never_names_scripts_of_a_clone(
    main, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [INSTALLED])
    with suppress(SystemExit):
        main(words)
    printed = "".join(capsys.readouterr())
    assert printed and not re.search(r"jobs/\w+\.py", printed)
