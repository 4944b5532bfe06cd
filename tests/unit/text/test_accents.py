"""Accents that an uncased vocabulary removes, in texts of several scripts, counted by hand."""

import pytest

from pipeline.text.accents import lost_accents

LOST = [
    ("Plain English, 1900.", 0.0, ()),
    ("Öl für Ärger", 3 / 10, ("Ö→O", "ü→u", "Ä→A")),
    ("Straße", 0.0, ()),
    ("Diyarbakır’ın İli", 1 / 15, ("İ→I",)),
    ("Việt", 1 / 4, ("ệ→e",)),
    ("Vie\u0323\u0302t", 2 / 6, ()),
    ("άλφα", 1 / 4, ("ά→α",)),
    ("हिन्दी", 1 / 4, ()),
    ("がか", 1 / 2, ("が→か",)),
    ("한국어", 0.0, ()),
    ("中文", 0.0, ()),
    ("", 0.0, ()),
]


def test_letters_that_lose_a_mark_are_counted() -> None:
    found = [lost_accents([text[:2], text[2:]]) for text, *_ in LOST]
    assert [(accents.share, accents.examples) for accents in found] == [
        (pytest.approx(share), examples) for _, share, examples in LOST
    ]
