"""Entities and their scores as conlleval counts them, worked by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import DataError
from pipeline.tasks.entities import accuracy, entities, iob2, is_chunk_tag, score_entities

TAGS = st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=12)


@pytest.mark.parametrize(
    "tags, wanted",
    [
        ("O B-X I-X O", {("X", 1, 3)}),
        ("I-X I-X O I-X", {("X", 0, 2), ("X", 3, 4)}),  # I after O, and at the beginning, begins one
        ("B-X I-Y I-Y", {("X", 0, 1), ("Y", 1, 3)}),  # another type begins one
        ("B-X B-X I-X", {("X", 0, 1), ("X", 1, 3)}),
        ("O O", set()),
        ("", set()),
        ("B-geo-loc I-geo-loc", {("geo-loc", 0, 2)}),  # the type is all after the first dash
    ],
)
def test_entities_by_hand(tags: str, wanted: set[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == wanted


@pytest.mark.parametrize(
    "tags, wanted",
    [
        ("I-X I-X B-X O I-Y I-X", "B-X I-X B-X O B-Y B-X"),  # IOB1
        ("B-X I-X B-X O B-Y B-X", "B-X I-X B-X O B-Y B-X"),
        ("I-X O O I-X", "B-X O O B-X"),
        ("", ""),
    ],
)
def test_tags_become_iob2(tags: str, wanted: str) -> None:
    assert " ".join(iob2(tags.split())) == wanted


def test_other_tags_are_no_chunks() -> None:
    assert [
        tag
        for tag in ("O", "B-X", "I-a-b", "B-", "I", "B", "NN", "E-X", "S-X", "-X-", "b-X", "O-X", "")
        if is_chunk_tag(tag)
    ] == ["O", "B-X", "I-a-b"]


@given(TAGS)
@settings(deadline=None, max_examples=60)
def test_iob2_keeps_the_entities_and_is_its_own(tags: list[str]) -> None:
    assert iob2(iob2(tags)) == iob2(tags) and entities(iob2(tags)) == entities(tags)


@given(TAGS.flatmap(lambda tags: st.tuples(st.just(tags), st.permutations(tags))))
@settings(deadline=None, max_examples=60)
def test_entities_are_counted_as_conlleval_walks_through_them(pair: tuple[list[str], list[str]]) -> None:
    true, predicted = pair
    assert len(entities(true) & entities(predicted)) == walked(true, predicted)


def walked(true: list[str], predicted: list[str]) -> int:
    """Right entities as conlleval finds them: one is open while both began together with one type, and right when both
    end together.
    """
    right, open_, before = 0, False, ("O", "O")
    for pair in [*zip(true, predicted), ("O", "O")]:
        ended = [old != "O" and (new == "O" or new[0] == "B" or new[2:] != old[2:]) for old, new in zip(before, pair)]
        began = [new != "O" and (old == "O" or new[0] == "B" or new[2:] != old[2:]) for old, new in zip(before, pair)]
        right += open_ and all(ended)
        open_ = open_ and not any(ended) or all(began) and pair[0][2:] == pair[1][2:]
        before = pair
    return right


def test_scores_by_hand() -> None:
    """True: PER, LOC of two words, LOC. Found: PER, LOC cut short, LOC as PER, ORG: one right of four, of three there
    are; 4 of 8 tags.
    """
    true = [["B-PER", "O", "B-LOC", "I-LOC"], ["O", "B-LOC", "O", "O"]]
    predicted = [["I-PER", "O", "B-LOC", "O"], ["O", "B-PER", "O", "B-ORG"]]
    assert score_entities(true, predicted) == pytest.approx(
        {
            "accuracy": 50,
            "precision": 25,
            "recall": 100 / 3,
            "f1": 200 / 7,
            "entities": 3,
            **{"LOC_precision": 0, "LOC_recall": 0, "LOC_f1": 0, "LOC_entities": 2},
            **{"ORG_precision": 0, "ORG_recall": 0, "ORG_f1": 0, "ORG_entities": 0},
            **{"PER_precision": 50, "PER_recall": 100, "PER_f1": 200 / 3, "PER_entities": 1},
        }
    )


def test_an_entity_ends_with_its_sentence() -> None:
    assert score_entities([["B-X"], ["I-X"]], [["B-X"], ["B-X"]])["f1"] == 100


def test_without_entities_scores_are_nought_and_accuracy_is_what_it_is() -> None:
    assert score_entities([["O", "O"]], [["O", "O"]]) == {
        "accuracy": 100,
        "precision": 0,
        "recall": 0,
        "f1": 0,
        "entities": 0,
    }
    assert accuracy([["NN", "VB"], ["NN"]], [["NN", "NN"], ["NN"]]) == pytest.approx(200 / 3)


def test_no_words_are_refused() -> None:
    with pytest.raises(DataError, match="there are 0 words to score: give a file with at least 1"):
        accuracy([[]], [[]])
