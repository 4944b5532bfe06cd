"""Files, columns and labels that a job refuses are refused before torch and Ray are loaded."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.ablate import Ablate
from pipeline.config.adapt import Adapt
from pipeline.config.embed import Embed
from pipeline.config.finetune import Finetune
from pipeline.config.mine import Mine
from pipeline.config.predict import Predict, Score
from pipeline.embed.description import Description
from pipeline.embed.folder import (
    CUT,
    EMPTY,
    PRECISION,
    TEXTS,
    StoredChunks,
    begin,
    part_table,
    parts_in,
    publish,
    publish_part,
)
from pipeline.errors import ConfigError, DataError
from pipeline.workflows.inputs import CHECKS, check_inputs

ROOT = Path(__file__).parents[3]
TASK = {"name": "moods", "kind": "classification", "labels": ["sad", "glad"], "metrics": ["accuracy"]}
ROWS = [{"review": f"kar {number}", "other": "mir", "mood": ("sad", "glad")[number % 2]} for number in range(40)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table, the task of a model that was trained on its column `review`, and vectors of two texts."""
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "model").mkdir()
    lineage = {"columns": {"text": "review", "pair": None, "choices": []}}
    (tmp_path / "model/task.json").write_text(json.dumps({"task": TASK, "lineage": lineage}))
    described = Description(
        checkpoint="/none", digest="d", dimension=8, pooling="mean", normalized=False, similarity="cosine", prompt="",
        maximum_length=16,
    )  # fmt: skip
    vectors = str(tmp_path / "vectors")
    begin(vectors, {}, replace=False)
    chunks = StoredChunks(ids=["a", "b"], titles=None, numbers=[0, 0], spans=[(0, 3)] * 2, texts=["kar", "mir"])
    table = part_table(chunks, np.eye(2, 8, dtype=np.float32), "float32", keep_text=True)
    publish_part(parts_in(vectors), 0, 0, table, {TEXTS: "2", EMPTY: "0", CUT: "0", PRECISION: "float32"})
    publish(vectors, {}, described, "float32")
    return tmp_path


def commands(folder: Path) -> dict[str, list[str]]:
    """Return a command of each job that names the column `absent`."""
    rows, model, output = str(folder / "rows.jsonl"), str(folder / "model"), str(folder / "output")
    label = ["--label", "mood"]
    tasks = ["--task", "sst2", "--data", str(folder / "absent")]
    return {
        "ablate": ["dropout", "--tokens", "1M", *tasks, "--output", output],
        "adapt": ["--corpus", f"{rows}::column=absent", "--init", model, "--output", output],
        "compare": ["--checkpoint", model, "--random-weights", "--train", rows, "--text", "absent", *label],
        "embed": ["--checkpoint", model, "--input", rows, "--text", "absent", "--output", output],
        "finetune": ["--checkpoint", model, "--train", rows, "--text", "absent", *label],
        "mine": [
            "--vectors",
            f"{folder}/vectors",
            "--pairs",
            rows,
            "--text",
            "review",
            "--pair",
            "absent",
            "--output",
            f"{output}.jsonl",
        ],
        "predict": ["--checkpoint", model, "--input", rows, "--text", "absent", "--output", f"{output}.csv"],
        "score": ["--checkpoint", model, "--input", rows, "--text", "absent", *label],
    }


def test_each_job_refuses_a_wrong_column_before_it_loads_torch_or_ray(folder: Path) -> None:
    asked = commands(folder)
    assert len(asked) == len(CHECKS)
    code = (
        "import importlib, json, sys\n"
        f"for job, words in {asked!r}.items():\n"
        "    code = importlib.import_module(f'jobs.{job}').main(words)\n"
        "    print(json.dumps([job, code, [m for m in ('torch', 'ray', 'mlflow') if m in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[job, 2, []] for job in asked]
    messages = done.stderr.splitlines()
    assert [line for line in messages if "absent" not in line] == [] and len(messages) == len(asked)


def test_the_column_that_a_model_was_trained_on_is_accepted(folder: Path) -> None:
    settings = {"checkpoint": str(folder / "model"), "input": str(folder / "rows.jsonl")}
    check_inputs(Predict(**settings, output=str(folder / "answers.csv")))
    with pytest.raises(DataError, match=r"rows.jsonl: input has no column no: its columns are review, other, mood"):
        check_inputs(Predict(**settings, output=str(folder / "answers.csv"), text="no"))
    with pytest.raises(ConfigError, match=r"\.json is for answers to questions, but the model's answers are classif"):
        check_inputs(Predict(**settings, output=str(folder / "answers.json")))


def test_labels_of_the_development_and_test_files_are_checked(folder: Path) -> None:
    files = {name: folder / f"{name}.jsonl" for name in ("dev", "test")}
    good, bad = json.dumps(ROWS[0]) + "\n", json.dumps({"review": "kar", "mood": "cross"}) + "\n"
    settings = {"checkpoint": "/none", "train": str(folder / "rows.jsonl"), "text": "review", "label": ("mood",)}
    settings |= {"output": str(folder / "output")}
    for wrong in files:
        for name, file in files.items():
            file.write_text(good + good + bad if name == wrong else good + good)
        with pytest.raises(DataError, match=rf"{wrong}.jsonl:3: label .cross."):
            check_inputs(Finetune(**settings, dev=str(files["dev"]), test=str(files["test"])))


def test_labels_that_a_model_lacks_are_refused_when_it_is_scored(folder: Path) -> None:
    (folder / "odd.jsonl").write_text('{"text": "kar", "label": "cross"}\n{"text": "mir", "label": "sad"}\n')
    with pytest.raises(DataError, match=r"odd.jsonl:1: label .cross."):
        check_inputs(Score(checkpoint=str(folder / "model"), input=str(folder / "odd.jsonl")))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("sst", r"task \(sst\) is unknown; did you mean sst2\?"),
        ("stsb", "is of kind regression, but the model's task is"),
    ],
)
def test_a_task_that_does_not_fit_the_model_is_refused_when_it_is_scored(task: str, words: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        check_inputs(Score(checkpoint=str(folder / "model"), task=task, data=str(folder)))


def test_names_of_tasks_and_their_folder_are_checked(tmp_path: Path) -> None:
    settings = {"checkpoint": "/none", "output": str(tmp_path / "output")}
    with pytest.raises(ConfigError, match=r"task \(nothing\) is unknown"):
        check_inputs(Finetune(**settings, task=("nothing",)))
    with pytest.raises(ConfigError, match=r"data \(.*/absent\) is not a folder with files"):
        check_inputs(Finetune(**settings, task=("sst2",), data=str(tmp_path / "absent")))


def test_queries_of_an_adaptation_are_read(folder: Path) -> None:
    settings = {"corpus": (f"{folder}/rows.jsonl::column=review",), "init": "/none", "output": str(folder / "output")}
    check_inputs(Adapt(**settings, queries="kar mir"))
    with pytest.raises(ConfigError, match=r"queries \(.*absent.jsonl\) does not exist"):
        check_inputs(Adapt(**settings, queries=str(folder / "absent.jsonl")))


def test_only_the_first_rows_are_read_of_texts_to_embed(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"id": 1}\n{"body": "kar"}\nno JSON\n')
    settings = {"checkpoint": "/none", "input": str(file), "output": str(tmp_path / "output")}
    check_inputs(Embed(**settings, text="body"))
    with pytest.raises(DataError, match=r"texts.jsonl:3"):
        check_inputs(Embed(**settings, text="absent"))


def test_vectors_without_texts_are_refused_for_mining(folder: Path) -> None:
    settings = {"pairs": str(folder / "rows.jsonl"), "output": str(folder / "negatives.jsonl")}
    check_inputs(Mine(**settings, vectors=str(folder / "vectors"), text="review", pair="other"))
    with pytest.raises(DataError, match=r"model\) is not a folder of vectors"):
        check_inputs(Mine(**settings, vectors=str(folder / "model"), text="review", pair="other"))


def test_tasks_and_minimal_pairs_of_an_ablation_are_checked(folder: Path) -> None:
    (folder / "SST-2").mkdir()
    (folder / "SST-2/train.tsv").write_text("sentence\tlabel\nkar\t0\nmir\t1\n")
    pairs = folder / "pairs/order.jsonl"
    pairs.parent.mkdir()
    pairs.write_text('{"sentence_good": "kar mir", "sentence_bad": "mir kar"}\n')
    of_task = {"data": str(folder)}
    for settings, message in (
        ({"task": ("sst",), **of_task}, r"task \(sst\) is unknown; did you mean sst2\?"),
        ({"task": ("sst2", "rte"), **of_task}, r"SST-2/dev.tsv \(split dev of sst2\) does not exist; .* has train.tsv"),
        ({"blimp": str(folder / "SST-2")}, "blimp .* lacks 67 of BLiMP's 67 files"),
        ({"blimp": str(pairs.parent)}, "order.jsonl has 1 of its 1 pairs in the selection even"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            check_inputs(Ablate(ablation="dropout", tokens="1M", **settings))
    (folder / "SST-2/dev.tsv").write_text("sentence\tlabel\nkar\t0\n")
    pairs.write_text(3 * pairs.read_text())
    check_inputs(Ablate(ablation="dropout", tokens="1M", task=("sst2", "builtin"), **of_task, blimp=str(pairs.parent)))
