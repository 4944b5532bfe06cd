"""Models and files of answers scored beside what needs no model, by hand."""

import importlib
import json
from pathlib import Path

import pytest
import torch

from jobs.score import main
from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.config.predict import Compare, Predict, Score
from pipeline.config.task_kind import Kind
from pipeline.errors import ConfigError
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.finetune import trials
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.predict.model_score import detail_lines, shown_figure, table
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import hardware

LABELS: dict[str, tuple[str, ...]] = {"classification": ("0", "1"), "tags": ("O", "B-LOC", "I-LOC")}
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "Paris is big.",
                    "qas": [
                        {"id": "a", "question": "What is big?", "answers": [{"text": "Paris", "answer_start": 0}]},
                        {"id": "b", "question": "How is Paris?", "answers": [{"text": "is big", "answer_start": 6}]},
                        {"id": "c", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 0}]},
                    ],
                }
            ]
        }
    ]
}


def constant(folder: Path, kind: Kind, vocabulary: Vocabulary, answer: int) -> str:
    """A model that answers the same to everything."""
    task = Task(name="made-up", kind=kind, labels=LABELS[kind], metrics=("accuracy", "f1"))
    model = Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32)
    module = OBJECTIVES[kind](model, vocabulary.size, len(task.labels), torch.Generator().manual_seed(5), "cls", None)
    head = module.tag_head if kind == "tags" else module.classification_head
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            parameter.zero_()
            if name.endswith("bias"):
                parameter[answer] = 9.0
    save_tuned(
        str(folder),
        module,
        About(task=task, cutting=Truncation(maximum_length=16, stride=4), pooling="cls", thresholds={}, lineage={}),
        model,
        vocabulary,
    )
    return str(folder)


def said(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_labelled_file_with_classes_and_how_often_each_was_taken_for_each(
    tmp_path: Path, tiny_vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = constant(tmp_path / "model", "classification", tiny_vocabulary, 1)
    (tmp_path / "a.csv").write_text("body,y\nkar,1\nlost,1\nmir,1\nnel,0\n")
    assert main(["--checkpoint", checkpoint, "--input", str(tmp_path / "a.csv"), "--text", "body", "--label", "y"]) == 0
    lines = said(capsys)
    assert lines[0] == [f"{tmp_path}/a.csv:", "4", "rows,", "computed", "in", "float32"]
    assert lines[1] == ["metric", "score", "baseline:", "the", "commonest", "label", "of", "these", "rows"]
    assert lines[2:4] == [["accuracy", "75.00", "75.00"], ["f1", "85.71", "85.71"]]
    assert ["1", "75.0", "100.0", "85.7", "3"] in lines and ["0", "0.0", "0.0", "0.0", "1"] in lines
    assert lines[-3:-1] == [["0", "0", "1"], ["1", "0", "3"]]
    assert " ".join(lines[-1]) == "the model gives the same answer to everything"


def test_scores_are_in_float32_on_a_cpu_that_multiplies_bfloat16_and_say_what_is_asked_for(
    tmp_path: Path, tiny_vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "has_bfloat16", lambda device: True)
    monkeypatch.setattr(trials, "NARROW", 0)
    checkpoint = constant(tmp_path / "model", "classification", tiny_vocabulary, 1)
    (tmp_path / "a.csv").write_text("text,label\nkar,1\nlost,0\n")
    asked = ["--checkpoint", checkpoint, "--input", str(tmp_path / "a.csv"), "--placement.device", "cpu"]
    for precision, more in (("float32", []), ("bfloat16", ["--placement.precision", "bfloat16"])):
        assert main([*asked, *more]) == 0
        assert " ".join(said(capsys)[0]).endswith(f"a.csv: 2 rows, computed in {precision}")


def test_a_known_tasks_split_has_its_baseline_from_training(
    tmp_path: Path, tiny_vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = constant(tmp_path / "model", "classification", tiny_vocabulary, 1)
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2/train.tsv").write_text("sentence\tlabel\nkar\t0\nlost\t0\nmir\t1\n")
    (tmp_path / "SST-2/dev.tsv").write_text("sentence\tlabel\nkar\t1\nmir\t1\nnel\t1\nsup\t0\n")
    assert main(["--checkpoint", checkpoint, "--task", "sst2", "--data", str(tmp_path)]) == 0
    lines = said(capsys)
    assert lines[0] == ["sst2", "dev:", "4", "rows,", "computed", "in", "float32"]
    assert lines[1][2:] == ["baseline:", "the", "commonest", "label", "in", "training"]
    assert lines[2] == ["accuracy", "75.00", "25.00"]


def test_tags(tmp_path: Path, tiny_vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = constant(tmp_path / "model", "tags", tiny_vocabulary, 1)
    (tmp_path / "a.conll").write_text("kar B-LOC\nlost O\n\nmir B-LOC\nnel B-LOC\n")
    assert main(["--checkpoint", checkpoint, "--input", str(tmp_path / "a.conll")]) == 0
    lines = said(capsys)
    assert lines[0] == [f"{tmp_path}/a.conll:", "2", "sentences,", "computed", "in", "float32"]
    assert ["accuracy", "75.00"] in lines and ["precision", "75.00"] in lines and ["recall", "100.00"] in lines


def test_answers_by_somebody_else_are_scored_as_the_official_script_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dev.json").write_text(json.dumps(SQUAD))
    (tmp_path / "answers.json").write_text(json.dumps({"a": "the Paris", "b": "big", "z": "no question"}))
    assert main(["--predictions", str(tmp_path / "answers.json"), "--input", str(tmp_path / "dev.json")]) == 0
    lines = said(capsys)
    assert (
        " ".join(lines[0][1:]) == "3 answers to 3 questions, 1 without an answer, 1 answers to other questions ignored"
    )
    assert lines[2:] == [["exact", "33.333"], ["f1", "55.556"]]  # (1 + 0 + 0) / 3; (1 + 2/3 + 0) / 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--predictions", "{folder}/answers.json", "--input", "{folder}/dev.json"],
            "has 1 answers, but none to a question of {folder}/dev.json, such as 'a': give the answers to these "
            "questions",
        ),
        (
            ["--predictions", "{folder}/answers.json", "--input", "{folder}/empty.json"],
            "there are 0 questions to score: give a file with at least 1",
        ),
        (
            ["--predictions", "{folder}/list.json", "--input", "{folder}/dev.json"],
            "is not a JSON object of ids and texts: give {{id: answer}}, as SQuAD's official scripts read it",
        ),
        (
            ["--predictions", "{folder}/dev.json", "--input", "{folder}/answers.json"],
            "predictions {folder}/dev.json is a file of questions: are predictions and input swapped? Give {{id: "
            "answer}} as "
            "predictions, and",
        ),
        (
            ["--predictions", "{folder}/answers.json", "--task", "sst2", "--data", "{folder}"],
            "and task (sst2) has none: choose squad1 or squad2",
        ),
        (
            ["--checkpoint", "{folder}/model", "--task", "stsb", "--data", "{folder}"],
            "task (stsb) is of kind regression, but the model's task is of kind classification: choose a model of kind "
            "regression",
        ),
        (
            ["--checkpoint", "{folder}/model", "--task", "rte", "--data", "{folder}"],
            "task (rte) has the labels entailment, not_entailment, but the model's (made-up) are 0, 1: choose a model "
            "of that task",
        ),
        (
            ["--checkpoint", "{folder}/model", "--task", "sst2", "--data", "{folder}", "--split", "test"],
            "split (test) of sst2 has no public labels: choose another split, such as dev, or answer the split with "
            "jobs/predict.py",
        ),
        (
            ["--checkpoint", "{folder}/model", "--task", "nope", "--data", "{folder}"],
            "task (nope) is unknown: choose from cola, ",
        ),
        (
            ["--checkpoint", "{folder}/model", "--input", "{folder}/dev.json"],
            "is of the form squad, but the model's task (made-up) is of kind classification: give a file for that kind",
        ),
        (
            ["--checkpoint", "{folder}/model", "--input", "{folder}/a.csv"],
            "a.csv:3: label '7' is not among the labels of made-up (0, 1)",
        ),
        (
            ["--checkpoint", "{folder}/model"],
            "(None), heldout (None), similarity (None), retrieval (None) or triplets (None): give exactly one",
        ),
    ],
)
def test_what_cannot_be_scored_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, tiny_vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    constant(tmp_path / "model", "classification", tiny_vocabulary, 1)
    (tmp_path / "dev.json").write_text(json.dumps(SQUAD))
    (tmp_path / "answers.json").write_text('{"z": "no question"}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "empty.json").write_text('{"data": []}')
    (tmp_path / "a.csv").write_text("text,label\nkar,1\nmir,7\n")
    assert main([one.format(folder=tmp_path) for one in arguments]) == 2
    error = capsys.readouterr().err
    assert message.format(folder=tmp_path) in error and error.startswith("error: ") and error.count("\n") == 1


def test_answers_in_place_of_questions_are_a_short_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "answers.json").write_text(json.dumps({f"{number:024x}": "an answer" for number in range(10_570)}))
    assert main(["--predictions", str(tmp_path / "answers.json"), "--input", str(tmp_path / "answers.json")]) == 2
    error = capsys.readouterr().err
    assert (
        f"{tmp_path}/answers.json has 10,570 ids with answers, but no questions: are the two files swapped?" in error
        and len(error) < 400
    )
    (tmp_path / "other.json").write_text(json.dumps({f"{number:024x}": number for number in range(10_570)}))
    assert main(["--predictions", str(tmp_path / "answers.json"), "--input", str(tmp_path / "other.json")]) == 2
    error = capsys.readouterr().err
    assert (
        "other.json: data is missing (existing keys: 000000000000000000000000, " in error
        and "and 10,550 more): give a SQuAD file" in error
    )


def test_figures_in_percent_or_their_unit() -> None:
    assert [
        shown_figure("accuracy", 0.12345, 2),
        shown_figure("mean_absolute_error", 0.12345, 2),
        shown_figure("f1", None, 2),
    ] == ["12.35", "0.123", ""]
    assert table({"accuracy": 0.5}, {}, "") == ["metric    score", "accuracy  50.00"]
    assert detail_lines(Task(name="a", kind="regression", metrics=("pearson",)), {}) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Predict(checkpoint="a", input="b", output="c.txt"),
            "output (c.txt) must end in one of .parquet, .csv, .jsonl, .ndjson, .json, which determines its format",
        ),
        (
            lambda: Predict(checkpoint="a", input="b", output="c.csv", rows_per_part=0),
            "rows_per_part (0) must be at least 1",
        ),
        (
            lambda: Predict(checkpoint="a", input="b", output="c.csv", gpus=2),
            "gpus (2) must be at most 1: a process uses one GPU",
        ),
        (lambda: Predict(checkpoint="a", input="b", output="c.csv", actors=0), "actors (0) must be at least 1"),
        (
            lambda: Score(checkpoint="a", predictions="b", input="c"),
            "checkpoint (a) or predictions (b): give exactly one",
        ),
        (
            lambda: Score(checkpoint="a", task="sst2"),
            "task (sst2) and data (None), the folder of its files, belong together: give both",
        ),
        (
            lambda: Compare(checkpoint=("a",), task=("mrpc",)),
            "checkpoint (a) must be given twice: --checkpoint A --checkpoint B; or once with --random-weights",
        ),
        (
            lambda: Compare(checkpoint=("a", "a"), task=("mrpc",)),
            "checkpoint (a) is given twice: give two different checkpoints",
        ),
        (
            lambda: Compare(checkpoint=("a", "b"), random_weights=True, task=("mrpc",)),
            "checkpoint (a, b) must be given once with --random-weights, which take the place of A",
        ),
        (lambda: Compare(checkpoint=("a", "b"), task=("mrpc",), seeds=1), "seeds (1) must be at least 2"),
        (
            lambda: Compare(checkpoint=("a", "b"), task=("mrpc",), minutes=5.0),
            "minutes (5.0) could give the two encoders different trials: leave minutes out, and lower --seeds "
            "or --recipe.training-rows",
        ),
        (
            lambda: Compare(checkpoint=("a", "b"), task=("mrpc",), register="x"),
            "register (x) is for one encoder: leave register out, and fine-tune the better encoder with "
            "jobs/finetune.py",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(make, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize("name", ["predict", "score", "compare"])
def test_help_names_each_flag(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"jobs.{name}").main(["--help", "all"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and "--checkpoint" in text and "--text" in text and "--pair" in text
