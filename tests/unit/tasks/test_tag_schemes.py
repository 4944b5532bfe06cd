"""Which tags may follow each other in IOB2 and BIOES, by hand, and sentences that break their scheme."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.config.cutting import Truncation
from pipeline.errors import DataError
from pipeline.tables.bad_rows import BadRows
from pipeline.tasks import tags
from pipeline.tasks.own import with_known_tags
from pipeline.tasks.tag_schemes import require_scheme, scheme_of
from pipeline.tasks.tagging import PredictedTags, Sentence
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

IOB2 = ("O", "B-X", "I-X", "B-Y", "I-Y")
TASK = Task(name="own", kind="tags", labels=IOB2, metrics=("f1",))
NOTHING = "\u200b"
"""A word without pieces."""


def allowed(names: tuple[str, ...]) -> set[tuple[str, str]]:
    scheme = scheme_of(names)
    assert scheme is not None
    return {(names[row], names[column]) for row, column in np.argwhere(scheme.following)}


def chosen(names: tuple[str, ...], mask: np.ndarray) -> str:
    return " ".join(name for name, wanted in zip(names, mask, strict=True) if wanted)


def test_iob2_by_hand() -> None:
    every = {(before, after) for before in IOB2 for after in IOB2}
    inside = {pair for pair in every if pair[1].startswith("I-")}
    fitting = {("B-X", "I-X"), ("I-X", "I-X"), ("B-Y", "I-Y"), ("I-Y", "I-Y")}
    assert allowed(IOB2) == every - inside | fitting
    scheme = scheme_of(IOB2)
    assert scheme is not None and scheme.name == "IOB2" and scheme.end.all()
    assert chosen(IOB2, scheme.start) == "O B-X B-Y"


@pytest.mark.parametrize(("end", "single"), [("E", "S"), ("L", "U")])
def test_bioes_and_bilou_by_hand(end: str, single: str) -> None:
    names = ("O", "B-X", "I-X", f"{end}-X", f"{single}-X", f"{end}-Y")
    closed, opened = ("O", f"{end}-X", f"{single}-X", f"{end}-Y"), ("O", "B-X", f"{single}-X")
    between = {(before, after) for before in closed for after in opened}
    assert allowed(names) == between | {(a, b) for a in ("B-X", "I-X") for b in ("I-X", f"{end}-X")}
    scheme = scheme_of(names)
    assert scheme is not None and scheme.name == "BIOES"
    assert chosen(names, scheme.start) == " ".join(opened) and chosen(names, scheme.end) == " ".join(closed)


@pytest.mark.parametrize(("end", "single"), [("E", "S"), ("L", "U")])
def test_tags_of_bioes_and_bilou_are_scored_in_iob2(end: str, single: str, tiny_vocabulary: Vocabulary) -> None:
    task = replace(TASK, labels=("O", "B-X", "I-X", f"{end}-X", f"{single}-X"))
    items = [Sentence(words=("kar", "mist", "sup", "mir"), tags=("B-X", "I-X", "O", "B-X"))]
    prepared = tags.prepare(task, items, tiny_vocabulary, Truncation(maximum_length=16, stride=4))
    predicted = [PredictedTags(tags=("B-X", f"{end}-X", f"{single}-X", f"{single}-X"), unseen=0)]
    scores = tags.score(task, prepared, predicted, {})
    assert (scores["accuracy"], scores["recall"]) == (0.75, 1.0) and scores["X_precision"] == pytest.approx(2 / 3)


def test_entities_that_begin_inside_are_scored_in_iob2(tiny_vocabulary: Vocabulary) -> None:
    """As with the published tags of CoNLL 2003, of which B-PER is missing."""
    task = replace(TASK, labels=("O", "I-X", "B-Y", "I-Y"))
    items = [Sentence(words=("kar", "mist", "sup", "mir"), tags=("B-X", "I-X", "B-X", "B-Y"))]
    assert with_known_tags(task, "a.conll", items, BadRows()) == items
    prepared = tags.prepare(task, items, tiny_vocabulary, Truncation(maximum_length=16, stride=4))
    (window,) = prepared.windows[0]
    assert window.labels[window.first].tolist() == [1, 1, 1, 2]
    predicted = [PredictedTags(tags=("I-X", "I-X", "O", "I-Y"), unseen=0)]
    scores = tags.score(task, prepared, predicted, {})
    assert (scores["accuracy"], scores["precision"]) == (0.75, 1.0) and scores["recall"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("names", [("NN", "VB"), ("O", "B-X", "I"), ("O", "B-"), ("O", "M-X"), ()])
def test_other_tags_form_no_scheme(names: tuple[str, ...]) -> None:
    assert scheme_of(names) is None


@pytest.mark.parametrize(
    ("words", "tagged", "problem"),
    [
        ("kar mir", "I-X O", "the first word 'kar' has the tag I-X"),
        ("kar mir", "O I-Y", "the word 'mir' has the tag I-Y after O"),
        ("kar mir nel", "B-X I-Y O", "the word 'mir' has the tag I-Y after B-X"),
        (f"kar {NOTHING} mir", "O B-X I-X", "the word 'mir' has the tag I-X after O"),
    ],
)
def test_a_sentence_that_breaks_its_scheme_is_named(
    words: str, tagged: str, problem: str, tiny_vocabulary: Vocabulary
) -> None:
    sentences = [
        Sentence(words=tuple(text.split(" ")), tags=tuple(of.split()))
        for text, of in (("kar mir", "B-X I-X"), (words, tagged))
    ]
    prepared = tags.prepare(TASK, sentences, tiny_vocabulary, Truncation(maximum_length=16, stride=4))
    scheme = scheme_of(IOB2)
    assert scheme is not None
    with pytest.raises(DataError) as refused:
        require_scheme(prepared, IOB2, scheme)
    assert str(refused.value) == (
        f"train: in sentence 2, {problem}, which IOB2 forbids: correct the tags or leave the sentence out, or leave "
        "recipe.crf out"
    )


def test_the_last_tag_of_bioes_closes_its_entity(tiny_vocabulary: Vocabulary) -> None:
    names = ("O", "B-X", "I-X", "E-X", "S-X")
    scheme = scheme_of(names)
    assert scheme is not None
    sentence = Sentence(words=("kar", "mir"), tags=("O", "B-X"))
    task = Task(name="own", kind="tags", labels=names, metrics=("f1",))
    prepared = tags.prepare(task, [sentence], tiny_vocabulary, Truncation(maximum_length=16, stride=4))
    with pytest.raises(DataError, match=r"in sentence 1, the last word 'mir' has the tag B-X, which BIOES forbids"):
        require_scheme(prepared, names, scheme)


def test_an_entity_may_be_cut_by_a_window(tiny_vocabulary: Vocabulary) -> None:
    scheme = scheme_of(IOB2)
    assert scheme is not None
    words = ("kar", "mir") * 12
    sentence = Sentence(words=words, tags=("B-X", *["I-X"] * 23))
    for stride in (0, 4):
        prepared = tags.prepare(TASK, [sentence], tiny_vocabulary, Truncation(maximum_length=12, stride=stride))
        assert len(prepared.windows[0]) > 1
        require_scheme(prepared, IOB2, scheme)
