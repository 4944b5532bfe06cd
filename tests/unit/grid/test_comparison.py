"""Comparison of two encoders, on made-up scores."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from pipeline.config.finetune import GridSearch
from pipeline.config.predict import Compare
from pipeline.config.recipe import Recipe
from pipeline.errors import ConfigError
from pipeline.evaluation.paired import Difference
from pipeline.finetune.row_scores import score_of_answers
from pipeline.finetune.table import Reported
from pipeline.grid.comparison import first_of_each, require_equal_dropout, row_line, seed_lines, sides
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import ENCODED
from pipeline.tasks.task import Task


def scores(name: str, *values: float, collapsed: int = 0, task: str = "mrpc") -> Reported:
    return Reported(task=task, name=name, values=values, baseline=None, collapsed=collapsed, setting="")


def test_both_medians_the_mean_difference_and_plain_words() -> None:
    a, b = scores("dev accuracy", 0.70, 0.71, 0.72, collapsed=1), scores("dev accuracy", 0.75, 0.76, 0.78)
    assert seed_lines(a, b) == [
        "mrpc, dev accuracy: median A 71.0, B 76.0, 3 seeds; 1 of A's seeds collapsed",
        "  mean of B minus A over seeds, with 95% interval: +5.3 (3.9 to 6.8)",
        "  B is better on mrpc: +5.3 (3.9 to 6.8)",
    ]


def test_of_an_error_the_smaller_is_better() -> None:
    lines = seed_lines(scores("dev mean_absolute_error", 0.5, 0.6), scores("dev mean_absolute_error", 1.5, 1.62))
    assert lines[0] == "mrpc, dev mean_absolute_error: median A 0.55, B 1.56, 2 seeds"
    assert lines[2] == "  A is better on mrpc: +1.010 (0.883 to 1.137)"


@pytest.mark.parametrize(
    ("metric", "seeds", "rows", "words"),
    [
        (
            "dev accuracy",
            (-0.01, 0.03),
            (-0.05, -0.01),
            "-3.0 (-5.0 to -1.0); A's is better on other rows too, but that is one pair of seeds: the verdict is over "
            "all seeds",
        ),
        ("dev accuracy", (0.01, 0.03), (0.01, 0.05), "+3.0 (1.0 to 5.0); B's is better on other rows too"),
        (
            "dev accuracy",
            (0.01, 0.03),
            (-0.01, 0.05),
            "+2.0 (-1.0 to 5.0); on other rows, either may be the better one",
        ),
        ("dev mean_absolute_error", (0.1, 0.3), (0.1, 0.5), "+0.300 (0.100 to 0.500); A's is better on other rows too"),
    ],
)
def test_rows_of_two_models_explain_the_verdict_and_give_none(
    metric: str, seeds: tuple[float, float], rows: tuple[float, float], words: str
) -> None:
    over_seeds, over_rows = (Difference(mean=sum(ends) / 2, low=ends[0], high=ends[1]) for ends in (seeds, rows))
    assert row_line(metric, over_seeds, over_rows) == (
        f"  of the two best models alone, B minus A over development rows: {words}"
    )


def test_encoders_that_were_trained_with_unequal_dropout_are_not_compared() -> None:
    config = Compare(checkpoint=("/a", "/b"), task=("mrpc",), data="/glue")
    require_equal_dropout(config, [(0.1, 0.1), (0.1, 0.1)])
    with pytest.raises(ConfigError) as refused:
        require_equal_dropout(config, [(0.0, 0.0), (0.1, 0.1)])
    assert str(refused.value) == (
        "A was fine-tuned with dropout 0 and 0 (hidden and attention), but B with 0.1 and 0.1, because an earlier "
        "version took the checkpoint's: add --recipe.dropout 0.1 to train both alike"
    )
    require_equal_dropout(replace(config, search=GridSearch(over=("recipe.dropout=0,0.1",))), [(0.0, 0.0), (0.1, 0.1)])


def test_the_metric_that_selects_is_the_first_of_each_task() -> None:
    rows = [scores("dev f1", 0.1), scores("dev accuracy", 0.2), scores("dev matthews", 0.3, task="cola")]
    assert first_of_each(rows) == {"mrpc": rows[0], "cola": rows[2]}


def test_each_encoder_is_fine_tuned_by_the_same_settings() -> None:
    config = Compare(checkpoint=("/a", "/b"), task=("mrpc",), data="/glue", recipe=Recipe(epochs=7))
    one, other = sides(config)
    assert (one.checkpoint, other.checkpoint, one.recipe.epochs, one.seeds) == ("/a", "/b", 7, 5)
    assert type(one).__name__ == "Finetune" and not one.random_weights


def test_one_checkpoint_is_compared_with_random_weights_of_its_sizes() -> None:
    random, pretrained = sides(Compare(checkpoint=("/a",), random_weights=True, task=("mrpc",), data="/glue"))
    assert (random.checkpoint, random.random_weights, pretrained.checkpoint, pretrained.random_weights) == (
        "/a",
        True,
        "/a",
        False,
    )


def test_the_metric_of_any_rows() -> None:
    columns = {
        "ids": [[1]] * 4,
        "first_length": [1] * 4,
        "label": [0.0, 1.0, 1.0, 0.0],
        "labels": [None] * 4,
        "row": range(4),
    }
    rows = pa.table([pa.array(list(columns[field.name]), field.type) for field in ENCODED], schema=ENCODED)
    task = Task(name="mrpc", kind="classification", labels=("0", "1"), metrics=("accuracy", "f1"))
    prepared = Prepared(items=None, rows=rows)
    score = score_of_answers(task, prepared, np.array([0, 1, 0, 0]))
    assert [score(np.array(places)) for places in ([0, 1, 2, 3], [2, 2], [0, 1, 2, 2])] == [0.75, 0.0, 0.5]
