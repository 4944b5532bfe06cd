"""Entities and their scores as conlleval counts them: by hand, and as seqeval has them."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score, classification_report

from pipeline.errors import DataError
from pipeline.tasks.metrics.entities import accuracy, entities, iob2, is_chunk_tag, score_entities

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
def test_iob2_keeps_the_entities_and_is_its_own(tags: list[str]) -> None:
    assert iob2(iob2(tags)) == iob2(tags) and entities(iob2(tags)) == entities(tags)


@given(st.lists(TAGS.flatmap(lambda tags: st.tuples(st.just(tags), st.permutations(tags))), min_size=1, max_size=4))
def test_scores_are_those_of_seqeval(sentences: list[tuple[list[str], list[str]]]) -> None:
    true, predicted = map(list, zip(*sentences))
    assume(any(true))
    ours = score_entities(true, predicted)
    found = {kind for tags in true + predicted for kind, _, _ in entities(tags)}
    report = classification_report(true, predicted, output_dict=True, zero_division=0) if found else {}
    theirs = {
        f"{prefix}{name.replace('f1-score', 'f1').replace('support', 'entities')}": value
        * (1 if name == "support" else 100)
        for kind, scores in report.items()
        for prefix in ([""] if kind == "micro avg" else [f"{kind}_"] if kind in found else [])
        for name, value in scores.items()
    }
    nothing = dict.fromkeys(("precision", "recall", "f1", "entities"), 0)
    assert ours == pytest.approx(nothing | theirs | {"accuracy": 100 * accuracy_score(true, predicted)})


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
