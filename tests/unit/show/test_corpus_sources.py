"""Characters by source, dropped shares and row fill, read from the figure."""

import numpy as np
import pytest

from pipeline.config.data import Sampling, SingleSegment
from pipeline.corpus.prepared import Corpus
from pipeline.show.corpus_sources import RowFill, draw, lines, row_fill
from pipeline.text.vocabulary import Vocabulary


def corpus(number: int = 2) -> Corpus:
    sources = {
        "books": {"characters": 3_000, "pieces": 30, "dropped": {"duplicate": 10}},
        "wiki": {"characters": 7_000, "pieces": 60, "dropped": {"too short": 30, "duplicate": 10}},
    }
    sources |= {f"more {n}": {"characters": 1, "pieces": 1, "dropped": {}} for n in range(number - 2)}
    return Corpus(
        folder="", fingerprint="", train=(), heldout=(), sources=sources, dropped={"duplicate": 20, "too short": 30},
        counts={"documents": 80, "pieces": 90, "characters": 10_000},
    )  # fmt: skip


FILL = RowFill(lengths=np.array([128, 128, 64, 13]), maximum=128)


def test_sources_drops_and_row_fill_are_drawn() -> None:
    sources, dropped, fill = draw(corpus(), FILL, "a corpus").axes
    assert [bar.get_width() for bar in sources.patches] == [7_000, 3_000]
    assert [label.get_text() for label in sources.get_yticklabels()] == ["wiki", "books"] and sources.yaxis_inverted()
    assert [text.get_text() for text in sources.texts] == ["70%", "30%"]
    parts = {str(group.get_label()): [(bar.get_x(), bar.get_width()) for bar in group] for group in dropped.containers}
    assert list(parts) == ["too short", "duplicate"]  # the most frequent first
    assert np.array(parts["too short"]) == pytest.approx(np.array([(0, 0.3), (0, 0)]))
    assert np.array(parts["duplicate"]) == pytest.approx(np.array([(0.3, 0.1), (0, 0.25)]))
    heights = [bar.get_height() for bar in fill.patches]
    assert (
        len(heights) == 20 and heights[-1] == 0.5 and heights[10] == 0.25 and heights[2] == 0.25 and sum(heights) == 1
    )
    assert fill.get_legend().get_texts()[0].get_text() == f"mean {333 / 512:.1%}"


def test_without_rows_there_are_two_panels_and_many_sources_are_added_up() -> None:
    sources, dropped = draw(corpus(20), None, "a corpus").axes
    assert len(sources.patches) == 13 and sources.patches[-1].get_width() == 8
    assert sources.get_yticklabels()[-1].get_text() == "8 more" and len(dropped.get_yticklabels()) == 12


def test_the_lines_tell_it() -> None:
    assert lines(corpus(), FILL) == [
        "10,000 characters in 80 documents",
        "   70.0%  wiki",
        "   30.0%  books",
        "dropped 50 of 140 documents or pieces: too short 30, duplicate 20",
        "rows use 65.0% of 128 tokens on average, 50.0% use all (4 rows); a batch with padding would waste 35.0%",
    ]


def test_rows_are_measured_as_they_are_made(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    sampling = Sampling(maximum_length=32, pairs=SingleSegment())
    found = row_fill(tiny_corpus, tiny_vocabulary, sampling, 2)
    assert found.maximum == 32 and len(found.lengths) > 4 and 3 <= found.lengths.min() <= found.lengths.max() <= 32
    assert found.share == pytest.approx(found.lengths.sum() / 32 / len(found.lengths))
    assert len(row_fill(tiny_corpus, tiny_vocabulary, sampling, 100).lengths) > len(found.lengths)
