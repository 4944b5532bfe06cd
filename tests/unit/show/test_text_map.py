"""A map of texts: positions, the agreement of near texts, and what is drawn."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import DataError
from pipeline.show.style import COLOURS
from pipeline.show.text_map import OTHERS, TextMap, agreement, draw, lines, read_labelled, text_map


def unit(degrees: list[float]) -> np.ndarray:
    """Vectors of length 1 in a plane."""
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)


def test_principal_components_of_points_on_a_cross() -> None:
    """Variance 8/10 along the diagonal, 2/10 across it, in three dimensions."""
    diagonal, across = np.array([1, 1, 0]) / np.sqrt(2), np.array([1, -1, 0]) / np.sqrt(2)
    vectors = np.stack([2 * diagonal, -2 * diagonal, across, -across]) + 7
    found = text_map(vectors, list("aabb"), "pca", 0)
    assert found.explained == pytest.approx((0.8, 0.2))
    assert np.abs(found.points) == pytest.approx(np.array([[2, 0], [2, 0], [0, 1], [0, 1]]), abs=1e-12)
    assert found.points[0, 0] == pytest.approx(2)  # the largest loading is positive


def test_near_texts_vote() -> None:
    degrees = [0, 1, 2, 3, 4, 5, 90, 91, 92, 93, 94, 95]
    assert agreement(unit(degrees), ["a"] * 6 + ["b"] * 6) == 1
    assert agreement(unit(degrees), ["a"] * 5 + ["b"] * 7) == 11 / 12  # the sixth has other neighbours
    assert agreement(unit([0, 10, 180]), ["a", "a", "b"]) == pytest.approx(2 / 3)


def test_t_sne_is_the_same_for_one_seed() -> None:
    vectors = unit([float(degree) for degree in range(0, 360, 30)])
    one, two = (text_map(vectors, ["a"] * 12, "tsne", 1) for _ in range(2))
    assert one.explained is None and one.points.shape == (12, 2) and np.array_equal(one.points, two.points)


def test_each_label_has_its_colour_and_points() -> None:
    labels = ["a"] * 3 + ["b"] * 2 + [f"rare {number}" for number in range(12)]
    points = np.arange(34.0).reshape(17, 2)
    axes = draw({"m": TextMap(points=points, explained=(0.5, 0.25), agreement=0.75)}, labels, "t").axes[0]
    drawn = {str(group.get_label()): np.asarray(group.get_offsets()).tolist() for group in axes.collections}
    assert drawn["a"] == points[:3].tolist() and drawn["b"] == points[3:5].tolist()
    assert len(drawn) == len(COLOURS) + 1 and drawn[OTHERS] == points[13:].tolist()  # labels after the tenth
    assert axes.get_xlabel() == "component 1: 50.0% of variance" and "75.0%" in axes.get_title()
    told = lines({"m": TextMap(points=points, explained=None, agreement=0.75)}, labels)
    assert told[1] == "m: the 5 nearest texts tell the label of 75.0% of the texts (the most frequent label: 17.6%)"


def test_rows_are_drawn_at_random_with_a_seed(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("kind\tbody\n" + "".join(f"k{n % 2}\ttext {n}\n" for n in range(20)))
    file = str(tmp_path / "t.tsv")
    assert read_labelled(file, "body", "kind", 30, 0) == ([f"text {n}" for n in range(20)], ["k0", "k1"] * 10)
    some, _ = read_labelled(file, "body", "kind", 5, 0)
    numbers = [int(text.split()[1]) for text in some]
    assert (
        numbers == sorted(numbers) and len(set(numbers)) == 5 and some == read_labelled(file, "body", "kind", 5, 0)[0]
    )
    assert some != read_labelled(file, "body", "kind", 5, 1)[0]


def test_half_a_surrogate_pair_becomes_a_replacement_character(tmp_path: Path) -> None:
    row = r'{"body": "a \ud83d", "kind": "k\udc00"}'
    (tmp_path / "t.jsonl").write_text(f"{row}\n" * 4)
    assert read_labelled(str(tmp_path / "t.jsonl"), "body", "kind", 9, 0) == (["a \ufffd"] * 4, ["k\ufffd"] * 4)


def test_unusable_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("kind\tbody\na\tb\n")
    with pytest.raises(DataError, match=r"t\.tsv has no column text: its columns are kind, body; name yours"):
        read_labelled(str(tmp_path / "t.tsv"), "text", "kind", 10, 0)
    with pytest.raises(DataError, match=r"has 1 rows with a text and a label: a map needs at least 4$"):
        read_labelled(str(tmp_path / "t.tsv"), "body", "kind", 10, 0)
