"""What an addition touches: a number in "How to add" for each rehearsal, and a run of what was added."""

import re
from pathlib import Path

import pytest

from tests.rehearsals.rehearsal import ROOT, Rehearsal, touched

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


@pytest.mark.second
@ALL
def test_what_is_added_works(rehearsal: Rehearsal, tmp_path: Path) -> None:
    rehearsal.apply(tmp_path)
    rehearsal.run(tmp_path)
