"""A test file is read before anything is trained, and belongs to one's own training file."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.finetune import Finetune
from pipeline.config.predict import Predict
from pipeline.errors import ConfigError, DataError
from pipeline.grid.testing import require_readable, score_settings
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.workflows import finetune
from tests.unit.predict.test_score import constant

TASK = Task(name="my", kind="classification", labels=("bad", "good"), metrics=("accuracy",))


def test_a_test_file_that_cannot_be_scored_is_refused_before_the_training(tmp_path: Path) -> None:
    good, odd = tmp_path / "good.csv", tmp_path / "odd.csv"
    good.write_text("review,stars\nfine,good\n")
    odd.write_text("review,stars\nfine,splendid\n")
    config = Finetune(checkpoint="c", train="my.csv", text="review", label=("stars",))
    require_readable(config, TASK)
    require_readable(replace(config, test=str(good)), TASK)
    with pytest.raises(DataError, match=r"odd\.csv:2: label 'splendid' is not among the labels of my \(bad, good\)"):
        require_readable(replace(config, test=str(odd)), TASK)
    with pytest.raises(DataError, match="none.csv"):
        require_readable(replace(config, test=str(tmp_path / "none.csv")), TASK)
    scored = score_settings(replace(config, test=str(good)), TASK, "m")
    assert (scored.checkpoint, scored.input, scored.text, scored.label) == ("m", str(good), "review", ("stars",))


def test_a_test_file_belongs_to_a_training_file() -> None:
    with pytest.raises(ConfigError, match=r"^test \(t\.csv\) needs train, which is not given$"):
        Finetune(checkpoint="c", task=("sst2",), test="t.csv")


def test_the_selected_model_scores_the_file_and_is_asked_to_answer_it(
    tmp_path: Path, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = constant(tmp_path / "trial" / "model", "classification", tiny_vocabulary, 1)
    (tmp_path / "t.csv").write_text("body,y\nkar,1\nlost,1\nmir,1\nnel,0\n")
    config = Finetune(checkpoint="c", train="my.csv", test=str(tmp_path / "t.csv"), text="body", label=("y",))
    answered: list[Predict] = []
    logged: list[tuple[str, str, dict[str, float]]] = []
    monkeypatch.setattr(finetune, "predict", lambda asked, report: answered.append(asked))  # Ray Data
    monkeypatch.setattr(finetune.runs, "log_scores", lambda parent, *given: logged.append(given))
    said: list[str] = []
    task = Task(name="made-up", kind="classification", labels=("0", "1"), metrics=("accuracy", "f1"))
    finetune.score_and_answer(config, task, model, None, said.append)  # type: ignore[arg-type]
    assert logged == [("made-up", "test", {"accuracy": 0.75, "f1": pytest.approx(6 / 7)})]
    assert said[0] == f"scores of the test file, by the best model on dev ({model}):"
    assert any(line.split() == ["accuracy", "75.00", "75.00"] for line in said)
    (one,) = answered
    assert (one.checkpoint, one.input, one.output, one.text) == (
        model,
        config.test,
        f"{tmp_path}/trial/test-answers.csv",
        "body",
    )
