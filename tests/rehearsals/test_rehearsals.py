"""What an addition touches: a number in "How to add" for each rehearsal, and a run of what was added."""

from pathlib import Path

import pytest

from tests.rehearsals.rehearsal import HERE, ROOT, SCRIPT, Rehearsal, touched

REHEARSALS = (
    Rehearsal(name="masking", adds="a masking", touches=3),
    Rehearsal(name="family", adds="an architecture", touches=6),
    Rehearsal(name="loss", adds="a loss of text vectors", touches=2),
    Rehearsal(name="objective", adds="an objective of pretraining", touches=5),
    Rehearsal(name="kind", adds="a kind of task", touches=11),  # the aim is 8
)
ALL = pytest.mark.parametrize("rehearsal", REHEARSALS, ids=lambda rehearsal: rehearsal.name)


@ALL
def test_an_addition_touches_as_many_files_as_the_table_says(rehearsal: Rehearsal, tmp_path: Path) -> None:
    files = touched(rehearsal.apply(tmp_path))
    assert len(files) == rehearsal.touches, files
    assert files_of_rows()[rehearsal.adds] == str(rehearsal.touches)


def test_every_rehearsal_is_in_the_list() -> None:
    assert sorted(path.parent.name for path in HERE.glob(f"*/{SCRIPT}")) == sorted(one.name for one in REHEARSALS)


def files_of_rows() -> dict[str, str]:
    """What is added -> the last cell of its row in the table "How to add"."""
    section = (ROOT / "pipeline/README.md").read_text().split("\n## How to add\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row[-1] for row in rows}


@pytest.mark.second
@ALL
def test_what_is_added_works(rehearsal: Rehearsal, tmp_path: Path) -> None:
    rehearsal.apply(tmp_path)
    rehearsal.run(tmp_path)
