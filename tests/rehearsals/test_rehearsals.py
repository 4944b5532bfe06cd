"""Rehearsals of additions: each touches as many files as its row in "How to add" says, and what it adds works."""

from pathlib import Path

import pytest

from tests.rehearsals.rehearsal import HERE, ROOT, SCRIPT, Rehearsal, touched

REHEARSALS = (
    Rehearsal(name="preset", adds="a preset", touches=1),
    Rehearsal(name="format", adds="a format of text", touches=3),
    Rehearsal(name="task", adds="a task of a known kind", touches=1),
    Rehearsal(name="kind", adds="a kind of task", touches=8),
    Rehearsal(name="loss", adds="a loss of text vectors", touches=2),
    Rehearsal(name="family", adds="an architecture", touches=6),
    Rehearsal(name="objective", adds="an objective of pretraining", touches=4),
    Rehearsal(name="pairing", adds="a pairing", touches=3),
    Rehearsal(name="masking", adds="a masking", touches=3),
    Rehearsal(name="ablation", adds="an ablation", touches=1),
    Rehearsal(name="part", adds="a part of the encoder", touches=3),
    Rehearsal(name="schedule", adds="a schedule", touches=2),
    Rehearsal(name="optimiser", adds="an optimiser", touches=3),
    Rehearsal(name="adapter", adds="an adapter", touches=2),
    Rehearsal(name="location", adds="a setting that is a file or folder", touches=1),
    Rehearsal(name="picture", adds="a picture", touches=3),
    Rehearsal(name="export", adds="a kind of export", touches=3),
    Rehearsal(name="vectors", adds="a number format of vectors", touches=2),
)
ALL = pytest.mark.parametrize("rehearsal", REHEARSALS, ids=lambda rehearsal: rehearsal.name)


@ALL
def test_an_addition_touches_as_many_files_as_the_table_says(rehearsal: Rehearsal, tmp_path: Path) -> None:
    files = touched(rehearsal.apply(tmp_path, compiled=False))
    assert len(files) == rehearsal.touches, files
    assert files_of_rows()[rehearsal.adds] == str(rehearsal.touches)


def test_every_row_has_a_rehearsal() -> None:
    assert sorted(path.parent.name for path in HERE.glob(f"*/{SCRIPT}")) == sorted(one.name for one in REHEARSALS)
    assert list(files_of_rows())[1:] == [one.adds for one in REHEARSALS]


def files_of_rows() -> dict[str, str]:
    """Return {what is added: the last cell of its row in the table "How to add"}."""
    section = (ROOT / "pipeline/README.md").read_text().split("\n## How to add\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row[-1] for row in rows}


@pytest.mark.second
@ALL
def test_what_is_added_works(rehearsal: Rehearsal, tmp_path: Path) -> None:
    rehearsal.apply(tmp_path)
    rehearsal.run(tmp_path)
