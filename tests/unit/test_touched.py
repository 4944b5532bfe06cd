"""The tests of the second tier that a change needs: the table names what exists, and misses no module."""

import re
from pathlib import Path

import pytest

from tests import touched
from tests.touched import ALL, ROOT, SECOND_TIER, changed_files, needed

SECOND = re.compile(r"pytest\.mark\.second\b|second=")
HELD_BY_ALL = {"tests/cuda/test_gpu_path.py", "tests/ray/test_stream.py", "tests/ray/test_watch.py"}
"""Modules that only a change of code that most jobs stand on can break."""


def test_the_table_names_folders_and_tests_that_exist() -> None:
    tests = {test for modules in SECOND_TIER.values() for test in modules}
    assert [name for name in {*SECOND_TIER, *tests} if not (ROOT / name).exists()] == []


def test_some_change_needs_each_module_of_the_second_tier() -> None:
    tests = {test for modules in SECOND_TIER.values() for test in modules}
    folders = tuple(f"tests/unit/{path.name}/" for path in (ROOT / "pipeline").iterdir() if path.is_dir())
    second = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").glob("**/test_*.py")
        if SECOND.search(path.read_text()) and path.name != "test_touched.py"
    }
    left = {module for module in second if not module.startswith((*tests, *folders))}
    assert left == HELD_BY_ALL


def test_a_change_needs_the_modules_of_its_folders_or_all() -> None:
    adapt = ("tests/ray/test_adapt.py", "tests/unit/adapt")
    assert needed(["pipeline/adapt/pairs.py", "pipeline/CHANGELOG.md"]) == adapt
    assert needed(["pipeline/adapt/pairs.py", "tests/unit/test_touched.py", "tests/unit/test_gone.py"]) == (
        *adapt,
        "tests/unit/test_touched.py",
    )
    assert needed(["tests/README.md"]) == ()
    for more in (
        "pipeline/train/loop.py",
        "pyproject.toml",
        "tests/conftest.py",
        "tests/cuda/guard.cpp",
        "pipeline/new/a.py",
    ):
        assert needed(["pipeline/adapt/pairs.py", more]) == ALL
    folders = [f"{place}/a.py" for place in SECOND_TIER if (ROOT / place).is_dir()]
    assert needed(folders[:4]) != ALL and needed(folders[:5]) == ALL


def test_without_older_commits_the_change_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI_BASE", raising=False)
    monkeypatch.setattr(touched, "ROOT", tmp_path)
    assert changed_files() is None
    monkeypatch.setattr(touched, "ROOT", ROOT)
    monkeypatch.setenv("CI_BASE", "0" * 40)
    assert changed_files() is None
