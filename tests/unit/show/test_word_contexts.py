"""Similarities of a word in several sentences, on vectors made by hand."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.errors import ConfigError, DataError
from pipeline.show.example_sentences import SENTENCES
from pipeline.show.word_contexts import (
    Context,
    Contexts,
    by_meaning,
    compare,
    draw,
    lines,
    read_contexts,
    same_nearest,
)

MEANINGS = ["river", "river", "money"]
SIMILARITY = np.array([[[1, 0.9, 0.8], [0.9, 1, 0.6], [0.8, 0.6, 1]], [[1, 0.5, 0.1], [0.5, 1, 0.3], [0.1, 0.3, 1]]])


def contexts(folder: Path) -> list[Context]:
    (folder / "s.txt").write_text(
        "river\tThe bank is wet.\n\nriver\tA Bank, of sand.\nmoney\tbank notes\nmoney\tbanks\n"
    )
    return read_contexts("bank", [str(folder / "s.txt")])


def test_sentences_with_the_whole_word_are_read(tmp_path: Path) -> None:
    found = contexts(tmp_path)
    assert [context.meaning for context in found] == MEANINGS  # "banks" is another word
    assert [context.sentence[context.start : context.end] for context in found] == ["bank", "Bank", "bank"]


def test_every_built_in_sentence_has_its_word_once() -> None:
    for word, sentences in SENTENCES.items():
        assert len(read_contexts(word, [])) == len(sentences) >= 8
        assert {meaning: 4 for meaning, _ in sentences} == {m: [x for x, _ in sentences].count(m) for m, _ in sentences}


def test_means_of_pairs_with_one_meaning_and_with_two() -> None:
    same, other = by_meaning(SIMILARITY, MEANINGS)
    assert same.tolist() == [0.9, 0.5] and other == pytest.approx([0.7, 0.2])
    assert np.isnan(by_meaning(SIMILARITY, ["", "", ""])[1]).all()
    assert same_nearest(SIMILARITY[0], MEANINGS) == 2 and same_nearest(SIMILARITY[1], MEANINGS) == 2


class Model:
    """A model of one layer whose states are given, for texts whose tokens are their words."""

    settings = SimpleNamespace(layers=1)

    def __init__(self, states: dict[str, list[list[float]]]) -> None:
        self.states = states

    def tokenize(self, text: str) -> SimpleNamespace:
        spans, start = [], 0
        for word in text.split():
            spans.append((start, start + len(word)))
            start += len(word) + 1
        return SimpleNamespace(spans=np.array(spans[: len(self.states[text])]))

    def hidden(self, texts: list[str], layers: range) -> list[np.ndarray]:
        return [np.stack([np.array(self.states[text]) * factor for factor in (1.0, 2.0)]) for text in texts]


def test_similarity_and_neighbours_of_given_vectors(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("bank damp\nbank of cash\n")
    found = read_contexts("bank", [str(tmp_path / "s.txt")])
    model: Any = Model({"bank damp": [[1, 0], [0, 1]], "bank of cash": [[3, 4], [1, 1], [5, 0]]})
    measured = compare(model, found)
    assert measured.similarity == pytest.approx(np.array([[[1, 0.6], [0.6, 1]]] * 2))
    assert measured.neighbours == (("cash",), ("damp",))  # not the word itself, short words, words of its own sentence
    (tmp_path / "s.txt").write_text("bank damp\na bank\n")
    model = Model({"bank damp": [[1, 0], [0, 1]], "a bank": [[1, 0]]})  # the second sentence is cut
    with pytest.raises(DataError, match=r"^sentence 'a bank' is too long: its word is not in the first 1 tokens$"):
        compare(model, read_contexts("bank", [str(tmp_path / "s.txt")]))


def test_the_figure_shows_the_numbers(tmp_path: Path) -> None:
    found = contexts(tmp_path)
    trained = Contexts(similarity=SIMILARITY, neighbours=(("sand", "sea"), ("wet",), ("coin",)))
    random = Contexts(similarity=np.ones((2, 3, 3)), neighbours=((),) * 3)
    left, right, *_ = draw("bank", found, trained, random, "a model").axes
    drawn = {str(line.get_label()): list(line.get_ydata()) for line in left.get_lines()}
    assert drawn == {
        "same meaning": [0.9, 0.5],
        "different meaning": pytest.approx([0.7, 0.2]),
        "same meaning, random weights": [1, 1],
        "different meaning, random weights": [1, 1],
    }
    assert np.asarray(right.images[0].get_array()).tolist() == SIMILARITY[1].tolist()
    assert [text.get_text() for text in right.texts] == ["sand, sea", "wet", "coin"]
    assert right.get_yticklabels()[2].get_text() == "money: bank notes"
    text = "\n".join(lines("bank", found, trained, random))
    assert "the most similar other sentence has the same meaning for 2 of 3" in text
    assert "layer 1   0.500   0.200   0.300" in text and "money    bank notes: coin" in text


def test_words_that_are_not_there_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^word \(tree\) has no built-in sentences: give --sentences FILE, or"):
        read_contexts("tree", [])
    (tmp_path / "s.txt").write_text("The bank.\nA tree.\n")
    with pytest.raises(DataError, match=r"^word \(bank\) is in 1 of the 2 sentences of .*s\.txt: give at least two"):
        read_contexts("bank", [str(tmp_path / "s.txt")])
