"""Published scores are shown for the pairs they are of, and say that text and pairs differ."""

import pytest

from pipeline.evaluation.minimal_pairs.paradigms import PAIRS, PARADIGMS, Paradigm
from pipeline.evaluation.minimal_pairs.published import SUPPLEMENT, beside_published


def paradigms(names: tuple[str, ...], pairs: int) -> list[Paradigm]:
    texts = ("a",) * pairs
    return [Paradigm(name=name, phenomenon="", good=texts, bad=texts) for name in names]


@pytest.mark.parametrize(
    ("names", "pairs", "own", "published", "count"),
    [
        (PARADIGMS, PAIRS, "this model (even of the whole)", ["70.4", "babylm/evaluation-pipeline-2025"], 7),
        (PARADIGMS, 10, "this model (even of 670 filtered pairs)", ["70.4", "babylm/evaluation-pipeline-2025"], 7),
        (SUPPLEMENT, PAIRS, "this model (even of 5,000 pairs)", ["63.7", "babylm/evaluation-pipeline-2025"], 5),
    ],
)
def test_the_column_is_that_of_the_pairs(
    names: tuple[str, ...], pairs: int, own: str, published: list[str], count: int
) -> None:
    first, heads, ours, *others = beside_published(paradigms(names, pairs), "even", 0.6749)
    assert "of other text, on the filtered" in first and heads.startswith(
        f"{'BLiMP' if count == 7 else 'supplement'}, %"
    )
    assert ours.startswith(f"{own} ") and ours.split()[-3:] == ["67.5", "by", "PLL"]
    assert len(others) == count and max(map(len, [first, heads, ours, *others])) <= 100
    row = next(line for line in others if line.startswith("GPT-BERT 31 M, scored as masked"))
    assert row.split()[-2:] == published


def test_other_pairs_have_no_published_scores() -> None:
    assert beside_published(paradigms((*SUPPLEMENT, "mine"), PAIRS), "all", 0.5) == []
