"""Reports on running trials, without a terminal and as a table in one."""

import io
from typing import Any

from rich.console import Console

from pipeline.config.finetune import Finetune
from pipeline.config.recipe import Recipe
from pipeline.finetune.live import Live
from pipeline.finetune.trials import Trial

SCORES = {"dev": {"accuracy": 0.75, "auc": 0.875, "f1": 0.5, "macro_f1": 0.625, "matthews": 0.25}}


def trial(seed: int, chosen: dict[str, Any], metric: str = "matthews") -> Trial:
    config = Finetune(checkpoint="c", task=("cola",), recipe=Recipe(epochs=3))
    return Trial(
        problem="cola",
        config=config,
        seed=seed,
        name=f"cola-seed{seed}-0123456789ab",
        chosen=chosen,
        stage="select",
        metric=metric,
    )


def test_epochs_and_ends_are_lines_with_the_metric_that_selects_and_the_settings_that_differ() -> None:
    said: list[str] = []
    live = Live(said.append, Console(file=io.StringIO(), force_terminal=False))
    ones = [
        trial(0, {"optimizer.learning_rate": 1e-4, "recipe.rows_per_step": 16}),
        trial(1, {}),
        trial(2, {"adapter": "LowRank"}),
    ]
    result = {"scores": SCORES, "collapsed": False, "seconds": 12.3}
    with live.table(ones, {ones[1].name: result}):
        live.tell(ones[0], "running", {})
        live.tell(ones[0], "running", {"epoch": 1, "value": 0.125})
        live.tell(ones[0], "done", result)
        live.tell(ones[2], "stopped early", {"stopped_after_epoch": 2, "score": 0.1})
    assert said == [
        "1 of 3 trials have their results already",
        "cola, seed 0, learning rate 0.0001, rows per step 16: epoch 1 of 3: matthews 0.125",
        "2 of 3  cola, seed 0, learning rate 0.0001, rows per step 16: done in 12 s  "
        "dev matthews 0.250, accuracy 0.750, auc 0.875, f1 0.500",
        "3 of 3  cola, seed 2, adapter low-rank: stopped early",
    ]


def test_a_terminal_has_a_table_with_the_same() -> None:
    written, said = io.StringIO(), []
    live = Live(said.append, Console(file=written, force_terminal=True, width=160))
    one = trial(4, {"optimizer.learning_rate": 1e-4})
    with live.table([one], {}):
        live.tell(one, "running", {"epoch": 2, "value": 0.5})
    text = written.getvalue()
    assert "cola, seed 4" in text and "learning rate 0.0001" in text and "epoch 2 of 3: matthews 0.500" in text
    assert "0123456789ab" not in text and said == []
