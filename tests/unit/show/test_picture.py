"""Contents of a corpus' picture."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus.prepared import Corpus
from pipeline.show.picture import SHOWN, bar_edges, draw
from pipeline.show.statistics import Statistics

PIECES = np.array(
    [31_000 + 15 * number for number in range(67)]
)  # as books are cut: all about as long as a piece can be


def found(tokens: np.ndarray | None) -> Statistics:
    return Statistics(
        windows=1,
        characters=1,
        piece_characters=PIECES,
        sentence_words=np.array([5] * 999 + [700]),
        sentence_tokens=tokens,
        unknown=None,
    )


def corpus(dropped: dict[str, int]) -> Corpus:
    counts = {"documents": 6, "pieces": 67, "characters": 2_100_000}
    return Corpus(folder="", fingerprint="", train=(), heldout=(), counts=counts, dropped=dropped, sources={})


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=300))
def test_bars_hold_99_in_100_lengths_at_least(lengths: list[int]) -> None:
    edges = bar_edges(np.array(lengths))
    inside = sum(edges[0] <= length < edges[-1] for length in lengths)
    assert inside >= SHOWN * len(lengths) and len(edges) <= 60
    assert edges[0] == 0 and len(set(np.diff(edges).tolist())) == 1


def test_panels_have_titles_and_their_bars_add_up() -> None:
    panels = draw(found(np.arange(1, 2_001)), corpus({"too short": 30, "duplicate": 4})).axes
    assert [axes.get_title() for axes in panels] == [
        "Pieces of documents, in characters",
        "Sentences, in words",
        "Sentences, in tokens",
        "Dropped: 34",
    ]
    for axes, lengths in zip(panels, (67, 1_000, 2_000)):
        assert SHOWN * lengths <= sum(bar.get_height() for bar in axes.patches) <= lengths
    assert sum(bar.get_height() for bar in panels[0].patches) == 67 and panels[0].get_xlabel() == "characters per piece"
    assert (
        panels[1].get_legend().get_texts()[0].get_text() == "median 5"
        and panels[1].get_xlabel() == "words per sentence; 1 longer, up to 700"
    )


def test_reasons_are_drawn_with_their_counts_the_most_at_the_top() -> None:
    axes = draw(found(None), corpus({"duplicate": 4, "too short": 3_000})).axes[-1]
    assert [(bar.get_y() + bar.get_height() / 2, bar.get_width()) for bar in axes.patches] == [
        pytest.approx((0, 3_000)),
        pytest.approx((1, 4)),
    ]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "too short",
        "duplicate",
    ] and axes.yaxis_inverted()
    assert [text.get_text() for text in axes.texts] == ["3,000", "4"]


def test_nothing_dropped_is_said_without_an_axis() -> None:
    axes = draw(found(None), corpus({})).axes
    assert (
        len(axes) == 3
        and [text.get_text() for text in axes[-1].texts] == ["nothing was dropped"]
        and not axes[-1].axison
    )
