"""One search in two sets of vectors: ranks of a text in both, and what is told and drawn of them."""

import pytest

from pipeline.embed.search import Found
from pipeline.errors import ConfigError
from pipeline.show import rank_changes
from pipeline.show.rank_changes import LONGEST_LINE, RankedTexts, draw, lines, require_same_texts
from pipeline.show.style import BLUE
from pipeline.tracking.curves import GREY


def ranking(name: str, ids: str) -> RankedTexts:
    texts = {"e": "word " * 30, "f": None}
    return RankedTexts(
        name=name,
        found=tuple(
            Found(id=one, score=1 - rank / 10, chunk=0, start=0, end=1, title=None, text=texts.get(one, f"text\n{one}"))
            for rank, one in enumerate(ids)
        ),
    )


BEFORE, AFTER = ranking("before", "abcdef"), ranking("after", "cgaefb")


def test_each_side_is_told_with_the_ranks_of_the_other() -> None:
    assert lines("a query?", BEFORE, AFTER, 3) == [
        *("a query?", "", "before (rank in after)"),
        *("  1      (3)  text a", "  2      (6)  text b", "  3      (1)  text c"),
        *("", "after (rank in before)"),
        *("  1      (3)  text c", "  2 (>1,000)  text g", "  3      (1)  text a"),
    ]


def test_long_texts_are_cut_and_missing_ones_have_their_ids() -> None:
    told = lines("q", BEFORE, AFTER, 6)
    assert told[7].endswith("word w…") and len(told[7].split(")  ")[1]) == LONGEST_LINE + 1
    assert told[8].endswith(")  f")


def test_lines_join_the_places_of_texts_that_both_find_first() -> None:
    axes = draw("q", BEFORE, AFTER, 3).axes[0]
    joined = sorted(tuple(line.get_ydata()) for line in axes.lines if line.get_marker() == "o")
    assert joined == [(0, 2), (2, 0)]
    written = {text.get_text(): text.get_color() for text in axes.texts}
    assert [written[text] for text in ("text a", "text b (6)", "text g (>1,000)")] == ["black", GREY, BLUE]


def test_beginnings_of_rankings_may_have_no_text_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_changes, "DEPTH", 3)
    require_same_texts(ranking("before", "abc"), ranking("after", "def"))
    with pytest.raises(ConfigError, match=r"^before and after have other texts: embed the same texts"):
        require_same_texts(ranking("before", "ab"), ranking("after", "ac"))


def test_ranks_are_told_down_to_a_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_changes, "DEPTH", 20)
    assert lines("q", BEFORE, AFTER, 2)[-1] == "  2    (>20)  text g"
