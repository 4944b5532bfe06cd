"""The table of mutants follows the code and the tests; `make mutants` runs it."""

import re
from dataclasses import replace

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


def test_the_table_of_guarantees_names_every_mutant_and_files_that_exist() -> None:
    rows = [line.strip("| ").split(" | ") for line in README.read_text().splitlines() if line.startswith("| ")]
    guarantees = [row for row in rows if len(row) in (3, 4) and row[1].startswith("`")]
    assert len(guarantees) > 40
    assert {name for row in guarantees for name in CODE.findall("".join(row[3:]))} == {m.name for m in MUTANTS}
    assert [file for row in guarantees for file in CODE.findall(row[1]) if not (README.parent / file).is_file()] == []
