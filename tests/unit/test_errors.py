"""Values and lists as they stand in messages, and errors that come from another process."""

import pickle

import pytest

from pipeline.errors import LONGEST_SHOWN, MOST_LISTED, BadRow, DataError, PipelineError, class_of, listed, shown
from pipeline.tables.columns import MissingColumn
from pipeline.tables.content import EmptyTable


def test_a_list_in_a_message_is_cut_whatever_it_holds() -> None:
    assert listed(["a", "b"]) == "a, b" and listed([]) == "none" and listed([3]) == "3"
    assert listed(["two\nlines", "a" * 31 + "b" * 30]) == f"two lines, {'a' * 30}…{'b' * 30}"
    assert listed(map(str, range(1_023)), 3) == "0, 1, 2 and 1,020 more"
    assert len(listed("x" * 1_000 for _ in range(100_000))) < MOST_LISTED * (LONGEST_SHOWN + 4) + 20


def test_a_value_in_a_message_is_quoted_and_cut() -> None:
    assert shown("a\nb") == r"'a\nb'" and shown(7) == "'7'" and shown("x" * 61) == f"'{'x' * 60}…'"


@pytest.mark.parametrize(
    ("error", "message", "name"),
    [
        (DataError("a"), "a", "DataError"),
        (BadRow("a", "why"), "a", "BadRow"),
        (MissingColumn("a.csv", "text", ["x"], "give it"), "a.csv has no column text: its columns are x; give it", ""),
        (EmptyTable("a.csv"), "a.csv is empty: give a file with rows", ""),
    ],
)
def test_an_error_of_another_process_keeps_its_message(error: PipelineError, message: str, name: str) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), str(there), vars(there)) == (type(error), message, vars(error))
    assert class_of(error).__name__ == (name or "DataError")
