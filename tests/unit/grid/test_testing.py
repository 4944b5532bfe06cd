"""A test file is read before anything is trained, and belongs to one's own training file."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.finetune import Finetune
from pipeline.errors import ConfigError, DataError
from pipeline.grid.testing import asked, require_readable
from pipeline.tasks.task import Task

TASK = Task(name="my", kind="classification", labels=("bad", "good"), metrics=("accuracy",))


def test_a_test_file_that_cannot_be_scored_is_refused_before_the_training(tmp_path: Path) -> None:
    good, odd = tmp_path / "good.csv", tmp_path / "odd.csv"
    good.write_text("review,stars\nfine,good\n")
    odd.write_text("review,stars\nfine,splendid\n")
    config = Finetune(checkpoint="c", train="my.csv", text="review", label=("stars",))
    require_readable(config, TASK)
    require_readable(replace(config, test=str(good)), TASK)
    with pytest.raises(DataError, match=r"odd\.csv:2: label 'splendid' is none of the labels of my \(bad, good\)"):
        require_readable(replace(config, test=str(odd)), TASK)
    with pytest.raises(DataError, match="none.csv"):
        require_readable(replace(config, test=str(tmp_path / "none.csv")), TASK)
    scored = asked(replace(config, test=str(good)), "m")
    assert (scored.checkpoint, scored.input, scored.text, scored.label) == ("m", str(good), "review", ("stars",))


def test_a_test_file_belongs_to_a_training_file() -> None:
    with pytest.raises(ConfigError, match=r"^test \(t\.csv\) belongs to train, which is not given$"):
        Finetune(checkpoint="c", task=("sst2",), test="t.csv")
