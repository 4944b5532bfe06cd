"""The picture of a confusion matrix: what stands in its cells and at its sides."""

import pytest

from pipeline.finetune.table import Reported
from pipeline.grid.picture import draw_confusion, draw_scores, short


def test_cells_have_counts_and_shares_of_the_row() -> None:
    axes = draw_confusion([[3, 1], [0, 0]], ["no", "yes"], "mrpc, dev").axes[0]
    assert [text.get_text() for text in axes.texts] == ["3\n75%", "1\n25%", "0\n0%", "0\n0%"]
    assert [text.get_color() for text in axes.texts] == ["white", "black", "black", "black"]
    assert (
        [label.get_text() for label in axes.get_yticklabels()]
        == [label.get_text() for label in axes.get_xticklabels()]
        == ["no", "yes"]
    )
    assert axes.images[0].get_array().tolist() == [[0.75, 0.25], [0.0, 0.0]] and (
        axes.get_ylabel(),
        axes.get_xlabel(),
    ) == ("label", "answer")


def test_many_classes_have_colours_alone() -> None:
    matrix = [[int(row == column) for column in range(21)] for row in range(21)]
    assert len(draw_confusion(matrix, [str(number) for number in range(21)], "").axes[0].texts) == 0
    assert (
        len(draw_confusion([row[:20] for row in matrix[:20]], [str(number) for number in range(20)], "").axes[0].texts)
        == 400
    )


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ("a\nb", "a b"),
        ("x" * 24, "x" * 24),
        ("a name that goes on to its number 17", "a name that …s number 17"),
        ("$5", r"\$5"),
    ],
)
def test_labels_are_short_enough_and_keep_their_ends(label: str, wanted: str) -> None:
    assert short(label) == wanted


def test_scores_of_all_seeds_with_median_and_baseline() -> None:
    rows = [
        Reported(task="mrpc", name="dev f1", values=(0.75, 0.875, 0.5), baseline=0.625, collapsed=0, setting=""),
        Reported(task="stsb", name="dev mean_absolute_error", values=(2.5,), baseline=1.0, collapsed=0, setting=""),
        Reported(task="sst2", name="dev accuracy", values=(0.25,), baseline=None, collapsed=0, setting=""),
    ]
    figure = draw_scores(rows)
    assert figure is not None
    (axes,) = figure.axes
    drawn = [(line.get_marker(), list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()]
    assert drawn == [
        ("o", [75, 87.5, 50], [0, 0, 0]),
        ("|", [75], [0]),
        ("x", [62.5], [0]),
        ("o", [25], [1]),
        ("|", [25], [1]),
    ]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["mrpc, dev f1", "sst2, dev accuracy"]
    assert draw_scores(rows[1:2]) is None
