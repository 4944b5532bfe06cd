"""The table of mutants follows the code and the tests; `make mutants` runs it."""

import ast
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.mutant import ROOT, problems
from tests.mutants.run import verdict
from tests.mutants.table import MUTANTS

README = ROOT / "tests" / "README.md"
CODE = re.compile(r"`([^`]+)`")
FAILED = "FAILED tests/unit/test_a.py::test_b - "


def test_texts_of_mutants_occur_once_and_their_tests_exist() -> None:
    assert problems(MUTANTS) == []
    assert all(mutant.before != mutant.after for mutant in MUTANTS)


def test_a_text_that_moved_and_a_test_that_is_gone_are_named() -> None:
    moved = replace(MUTANTS[0], file="errors.py", tests=("tests/unit/test_mutants.py::test_gone",))
    assert problems((moved,)) == [
        f"{moved.name}: its text occurs 0 times in pipeline/errors.py and 1 times in pipeline/, but it must occur once:"
        f" {moved.before!r}",
        f"{moved.name}: there is no test tests/unit/test_mutants.py::test_gone",
    ]
    assert problems((MUTANTS[0], MUTANTS[0])) == [f"{MUTANTS[0].name}: 2 mutants have this name"]


@pytest.mark.parametrize(
    ("code", "output", "killed"),
    [
        (1, f"{FAILED}assert 1 == 2", True),
        (1, f"{FAILED}AssertionError: Regex pattern did not match.", True),
        (1, f"{FAILED}Failed: DID NOT RAISE <class 'ValueError'>", True),
        (1, f"{FAILED}NameError: name 'x' is not defined", False),
        (1, "ERROR tests/unit/test_a.py::test_b - ImportError: no", False),
        (2, "ERROR tests/unit/test_a.py - ImportError: no", False),
        (0, "1 passed", False),
        (None, "", False),
    ],
)
def test_only_assertions_and_expected_errors_kill(code: int | None, output: str, killed: bool) -> None:
    assert verdict(code, output)[0] is killed


def guarantees() -> list[list[str]]:
    """Return the rows of the table: guarantee, tests, tier, mutants."""
    rows = [line.strip("| ").split(" | ") for line in README.read_text().splitlines() if line.startswith("| ")]
    return [row for row in rows if len(row) in (3, 4) and row[1].startswith("`")]


def tier_of(test: Path, quick: Sequence[str]) -> str:
    """Return the quickest command that runs tests of a file, or `by hand` if all are marked `long` or are no tests."""
    if test.relative_to(ROOT).as_posix().startswith(tuple(quick)):
        return "check"
    parts = ast.parse(test.read_text()).body
    module = "".join(
        ast.unparse(part) for part in parts if isinstance(part, ast.Assign) and "pytestmark" in ast.dump(part)
    )
    functions = [part for part in parts if isinstance(part, ast.FunctionDef) and part.name.startswith("test_")]
    marks = ["\n".join([module, *map(ast.unparse, part.decorator_list)]) for part in functions]
    if any(not re.search(r"pytest\.mark\.(second|long)\b(?!\))", mark) for mark in marks):
        return "test"
    return "test-all" if any("mark.second" in mark for mark in marks) else "by hand"


def test_the_table_of_guarantees_names_every_mutant_and_files_that_exist() -> None:
    assert len(guarantees()) > 40
    assert {name for row in guarantees() for name in CODE.findall("".join(row[3:]))} == {m.name for m in MUTANTS}
    assert [file for row in guarantees() for file in CODE.findall(row[1]) if not (README.parent / file).is_file()] == []


def test_the_table_of_guarantees_says_which_command_runs_the_tests() -> None:
    planned = subprocess.run(["make", "--dry-run", "check"], cwd=ROOT, capture_output=True, text=True, check=True)
    quick = [word for word in planned.stdout.split() if word.startswith("tests/")]
    assert len(quick) > 20
    order = ["check", "test", "test-all", "by hand"]
    for guarantee, tests, tier, *_ in guarantees():
        tiers = {tier_of(README.parent / file, quick) for file in CODE.findall(tests)}
        assert tier.strip("| ") == ", ".join(sorted(tiers, key=order.index)), guarantee
