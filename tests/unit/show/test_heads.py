"""Kinds of heads, on attention made by hand and in the drawn figure."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from pipeline.errors import DataError
from pipeline.show.heads import BROAD, FOCUSED, KIND_COLOURS, TARGETS, HeadShares, draw, head_shares, lines

T, SEP = 20, 3
IDS = np.array([2, *range(10, 10 + T - 2), SEP])  # [CLS] 18 words [SEP]


def to(columns: list[int]) -> np.ndarray:
    """Attention of one head: token i attends to the token columns[i] alone."""
    return np.eye(T)[columns]


HEADS = {
    "previous": to([0, *range(T - 1)]),
    "next": to([*range(1, T), T - 1]),
    "separator": to([T - 1] * T),
    "first": to([0] * T),
    "itself": to(list(range(T))),
    "broad": np.full((T, T), 1 / T),
    "mixed": 0.4 * to([T - 1] * T) + 0.4 * to(list(range(T))) + 0.2 / T,
}


def measured() -> HeadShares:
    """All heads of HEADS in one layer, and in a second layer in reverse order."""
    heads = np.stack(list(HEADS.values()))
    return head_shares([(np.stack([heads, heads[::-1]]), IDS)], SEP, "[SEP]", "[CLS]")


def test_each_kind_of_head_is_named() -> None:
    assert measured().kinds().tolist() == [list(HEADS), list(HEADS)[::-1]]


def test_shares_and_entropies_of_heads_made_by_hand() -> None:
    found = measured()
    shares = dict(zip(HEADS, found.shares[:, 0].T.tolist()))
    assert shares["previous"][TARGETS.index("previous")] == 1 and shares["next"][TARGETS.index("next")] == 1
    assert shares["previous"][TARGETS.index("itself")] == 1 / T  # [CLS] has no previous token
    assert shares["broad"] == pytest.approx([1 / T] * 5)
    assert found.entropy[0, 5] == pytest.approx(np.log(T)) == found.uniform
    assert found.entropy[0, :5] == pytest.approx(0, abs=1e-12)
    assert found.largest[0, 5] == pytest.approx(1 / T) and found.largest[0, 0] == 1
    assert (found.texts, found.tokens) == (1, T)


def test_texts_count_by_their_tokens() -> None:
    """One text of 4 tokens that attends to [SEP], one of 12 that attends to [CLS]."""
    short, long = np.zeros((1, 1, 4, 4)), np.zeros((1, 1, 12, 12))
    short[..., 3], long[..., 0] = 1, 1
    found = head_shares([(short, np.array([2, 9, 9, SEP])), (long, np.array([2, *[9] * 10, SEP]))], SEP, "", "")
    assert found.shares[TARGETS.index("separator")].item() == 4 / 16
    assert found.shares[TARGETS.index("first")].item() == 12 / 16
    assert found.shares[TARGETS.index("previous")].item() == 1 / 14  # the long text's second token attends to [CLS]
    assert found.uniform == pytest.approx((4 * np.log(4) + 12 * np.log(12)) / 16)


def test_every_separator_of_a_pair_counts() -> None:
    weights = np.zeros((1, 1, 4, 4))
    weights[..., 1] = weights[..., 3] = 0.5
    found = head_shares([(weights, np.array([2, SEP, 9, SEP]))], SEP, "", "")
    assert found.shares[TARGETS.index("separator")].item() == 1


def with_share(share: float, largest: float) -> str:
    shares = np.zeros((5, 1, 1))
    shares[TARGETS.index("next")] = share
    numbers = {"entropy": np.zeros((1, 1)), "largest": np.full((1, 1), largest), "uniform": 1.0}
    return str(HeadShares(shares=shares, texts=1, tokens=1, separator="", first="", **numbers).kinds().item())


def test_the_thresholds_are_those_of_the_paper() -> None:
    assert (FOCUSED, BROAD) == (0.5, 0.1)
    assert [with_share(share, 0.3) for share in (0.5, 0.501)] == ["mixed", "next"]
    assert [with_share(0.1, largest) for largest in (0.1, 0.101)] == ["broad", "mixed"]


def test_the_figure_shows_the_numbers() -> None:
    found = measured()
    figure = draw(found, "a model")
    shares, entropies, grid = figure.axes
    lines_of = {str(line.get_label()): list(line.get_ydata()) for line in shares.get_lines()}
    for target, name in zip(TARGETS, ("previous", "next", "[SEP]", "[CLS]", "itself"), strict=True):
        assert lines_of[name] == pytest.approx(found.shares[TARGETS.index(target)].mean(-1).tolist())
    points = np.asarray(shares.collections[0].get_offsets())
    assert points[:7].tolist() == [[1, share] for share in found.shares[0, 0].tolist()]
    assert list(entropies.get_lines()[0].get_ydata()) == pytest.approx(found.entropy.mean(-1).tolist())
    assert list(entropies.get_lines()[1].get_ydata()) == pytest.approx([np.log(T)] * 2)
    colours = [patch.get_facecolor() for patch in grid.patches]
    assert colours == [to_rgba(KIND_COLOURS[kind]) for kind in [*HEADS, *list(HEADS)[::-1]]]
    assert [text.get_text() for text in grid.texts[:5]] == ["100%"] * 5
    assert figure.get_suptitle() == "a model" and figure.get_facecolor() == (1, 1, 1, 1)


def test_the_lines_count_the_heads() -> None:
    text = "\n".join(lines(measured()))
    assert "2 layers of 7 heads, on 1 texts with 20 tokens" in text
    assert "[SEP]        2 of 14: 1.3, 2.5" in text and "broad        2 of 14: 1.6, 2.2" in text


def test_no_text_is_one_line() -> None:
    with pytest.raises(DataError, match=r"^no text has at least 16 tokens: give longer texts$"):
        head_shares([], SEP, "", "")
