from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.model import Model
from pipeline.corpus.prepared import Corpus
from pipeline.presets.table import PRESETS
from pipeline.train.summary import (
    Pace,
    description,
    next_commands,
    progress_line,
    summary_markdown,
    summary_text,
    to_open,
)

SUMMARY = {
    "name": "mine",
    "steps": 1_000,
    "tokens": 6_543_210,
    "epochs": 2,
    "workers": 2,
    "device": "cpu",
    "precision": "float32",
    "tokens_per_second": 12_345.6,
    "data_wait_percent": 0.25,
    "training_seconds": 530.0,
    "maximum_length": 128,
    "step_milliseconds_95th": 1234.4,
    "peak_memory_gigabytes": 1.504,
    "model_flops_utilisation_percent": None,
    "heldout_before": {
        "heldout/maximum_length": 128,
        "heldout/mlm_loss": 9.0112,
        "heldout/nsp_loss": 0.69,
        "heldout/mlm_accuracy": 0.0,
        "heldout/nsp_accuracy": 0.5,
    },
    "heldout_after": {
        "heldout/mlm_loss": 4.5678,
        "heldout/nsp_loss": 0.61,
        "heldout/mlm_accuracy": 0.2345,
        "heldout/nsp_accuracy": 0.6789,
    },
    "baselines": {
        "baseline/unigram_mlm_loss": 6.25,
        "baseline/unigram_mlm_accuracy": 0.051,
        "baseline/majority_nsp_accuracy": 0.5049,
    },
    "blanks": {
        "random": [
            {
                "text": "The ____ returns a list.",
                "answer": "function",
                "guesses": [["method", 0.412], ["function", 0.3]],
            }
        ],
        "surest": [{"text": "One of ____ best.", "answer": "the", "guesses": [["the", 0.91], ["its", 0.02]]}],
        "candidates": 64,
        "right": 9,
        "plain": 64,
    },
    "checkpoint": "/out/runs/mine/checkpoints/step-00001000",
    "export": "/out/runs/mine/export",
    "export_check": "checked",
    "mlflow_uri": "sqlite:////out/mlflow.db",
    "mlflow_run_id": "0a1b",
    "mlflow_experiment_id": "1",
}
NO_SENTENCES = {"random": [], "surest": [], "candidates": 0, "right": 0, "plain": 0}
WITHOUT_HELDOUT = SUMMARY | {
    "heldout_before": {},
    "heldout_after": {},
    "baselines": {},
    "blanks": NO_SENTENCES,
    "workers": 1,
}

TEXT = """\
run mine
  held-out MLM loss      4.568 nats at length 128 (before training 9.011, unigram baseline 6.250)
  held-out MLM accuracy  23.4% (unigram baseline 5.1%)
  held-out NSP accuracy  67.9% (majority baseline 50.5%)
  trained                1,000 steps, 6,543,210 tokens, epoch 2, in 8m50s
  speed                  12,346 tokens/s on 2 cpu workers, float32
  95% of the steps       within 1,234 ms
  waiting for data       0.2% of the time
  memory                 1.50 GB at most

fill in the blank (held-out sentences of plain prose; of 64 sentences the model's first guess is right in 9)
  most confident correct guesses:
    One of ____ best.
        was: the   model: the 91%, its 2%
  at random:
    The ____ returns a list.
        was: function   model: method 41%, function 30%

  checkpoint             /out/runs/mine/checkpoints/step-00001000
  model                  /out/runs/mine/export (checked)
  MLflow                 run 0a1b; to open it: mlflow ui --workers 1 --backend-store-uri sqlite:////out/mlflow.db and http://127.0.0.1:5000/#/experiments/1/runs/0a1b?workflowType=machine_learning"""

TEXT_WITHOUT_HELDOUT = """\
run mine
  held-out loss     none: the corpus is too small for a held-out part (prepare.heldout_share)
  trained           1,000 steps, 6,543,210 tokens, epoch 2, in 8m50s
  speed             12,346 tokens/s on 1 cpu worker, float32
  95% of the steps  within 1,234 ms
  waiting for data  0.2% of the time
  memory            1.50 GB at most

  checkpoint        /out/runs/mine/checkpoints/step-00001000
  model             /out/runs/mine/export (checked)
  MLflow            run 0a1b; to open it: mlflow ui --workers 1 --backend-store-uri sqlite:////out/mlflow.db and http://127.0.0.1:5000/#/experiments/1/runs/0a1b?workflowType=machine_learning"""

MARKDOWN = """\
| | |
|---|---|
| held-out MLM loss | 4.568 nats at length 128 (before training 9.011, unigram baseline 6.250) |
| held-out MLM accuracy | 23.4% (unigram baseline 5.1%) |
| held-out NSP accuracy | 67.9% (majority baseline 50.5%) |
| trained | 1,000 steps, 6,543,210 tokens, epoch 2, in 8m50s |
| speed | 12,346 tokens/s on 2 cpu workers, float32 |
| 95% of the steps | within 1,234 ms |
| waiting for data | 0.2% of the time |
| memory | 1.50 GB at most |
| checkpoint | /out/runs/mine/checkpoints/step-00001000 |
| model | /out/runs/mine/export (checked) |
| MLflow | run 0a1b; to open it: mlflow ui --workers 1 --backend-store-uri sqlite:////out/mlflow.db and http://127.0.0.1:5000/#/experiments/1/runs/0a1b?workflowType=machine_learning |

```
fill in the blank (held-out sentences of plain prose; of 64 sentences the model's first guess is right in 9)
  most confident correct guesses:
    One of ____ best.
        was: the   model: the 91%, its 2%
  at random:
    The ____ returns a list.
        was: function   model: method 41%, function 30%
```
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder without an interpreter, so that printed commands do not depend on the machine."""
    monkeypatch.chdir(tmp_path)


def test_the_loss_of_each_language_has_its_line() -> None:
    languages = SUMMARY | {"heldout_by_language": {"de": 3.21, "zh": 4.5678}}
    lines = summary_text(languages).splitlines()
    assert [" ".join(line.split()) for line in lines if "by language" in line] == [
        "held-out loss by language de 3.210, zh 4.568 nats"
    ]
    assert "by language" not in summary_text(SUMMARY | {"heldout_by_language": {}})


def test_a_line_of_progress() -> None:
    metrics = {
        "train/loss": 7.5,
        "train/nsp_loss": 0.6931,
        "train/mlm_loss": 6.8069,
        "train/learning_rate": 1e-4,
        "heldout/mlm_loss": 1.0,
        "speed/tokens_per_second": 12_345.6,
        "speed/step_milliseconds": 250.0,
        "speed/data_wait_percent": 1.25,
    }
    line = progress_line(1_000, 20, metrics, 245.0)
    assert line == "step   20/1000  mlm 6.807  nsp 0.693  12,346 tokens/s  data wait 1.2%  4m05s left"
    last = progress_line(1_000, 1_000, metrics, 0.0)
    assert last.startswith("step 1000/1000") and last.endswith("  0s left")


def test_the_time_left_is_that_of_steps_as_they_are() -> None:
    pace = Pace(1_000, 0)
    assert [pace.seconds_left(step, 250.0) for step in (20, 40, 500, 1_000)] == pytest.approx(
        [245.0, 240.0, 125.0, 0.0]
    )
    continued = Pace(1_000, 900)  # the steps before this start took their time elsewhere
    assert continued.seconds_left(910, 2_000.0) == pytest.approx(180.0)


def test_the_time_left_does_not_jump_with_the_machine() -> None:
    pace, lefts = Pace(600, 0), []
    for step, milliseconds in zip(range(100, 600, 100), (800.0, 4_000.0, 800.0, 4_000.0, 800.0), strict=True):
        lefts.append(pace.seconds_left(step, milliseconds) / (600 - step))
    assert lefts[0] == pytest.approx(0.8)
    assert max(lefts[1:]) < 2 * min(lefts[1:])  # of steps that differ five times
    ends = Pace(600, 0)
    for step in range(10, 600, 10):
        left = ends.seconds_left(step, 100.0 if step <= 300 else 400.0)
    assert left == pytest.approx(10 * 0.4, rel=0.35)  # a second half that is slower is believed before it ends


def test_a_step_that_is_told_again_counts_once() -> None:
    pace = Pace(100, 0)
    pace.seconds_left(50, 100.0)
    assert pace.seconds_left(50, 100.0) == pytest.approx(5.0)


def test_the_summary_for_a_terminal() -> None:
    assert summary_text(SUMMARY) == TEXT


def test_the_summary_without_a_held_out_part() -> None:
    assert summary_text(WITHOUT_HELDOUT) == TEXT_WITHOUT_HELDOUT


def test_the_summary_of_other_pair_tasks_and_of_none() -> None:
    alone = SUMMARY | {
        name: {key: value for key, value in SUMMARY[name].items() if "nsp" not in key}
        for name in ("heldout_before", "heldout_after", "baselines")
    }
    line = "  held-out NSP accuracy  67.9% (majority baseline 50.5%)\n"
    assert summary_text(alone) == TEXT.replace(line, "")
    ordered = alone | {
        "heldout_after": alone["heldout_after"] | {"heldout/sop_loss": 0.61, "heldout/sop_accuracy": 0.6789},
        "baselines": alone["baselines"] | {"baseline/majority_sop_accuracy": 0.5049},
    }
    assert summary_text(ordered) == TEXT.replace(line, line.replace("NSP", "SOP"))


def test_unmeasured_pair_tasks_and_missing_blanks_are_reported() -> None:
    after = {key: value for key, value in SUMMARY["heldout_after"].items() if "nsp" not in key}
    text = summary_text(SUMMARY | {"heldout_after": after, "blanks": NO_SENTENCES})
    assert (
        "  held-out NSP accuracy  not measured: all held-out pairs have the same answer; "
        "hold out more documents (prepare.heldout_share" in text
    )
    assert (
        "fill in the blank (held-out sentences): none: no held-out sentence of 8 to 30 tokens holds a whole word"
        in text
    )


def test_the_sentences_with_blanks_are_described_as_they_were_chosen() -> None:
    blanks = SUMMARY["blanks"]
    few = summary_text(SUMMARY | {"blanks": blanks | {"candidates": 10, "plain": 3}})
    assert "fill in the blank (held-out sentences, only 3 of them plain prose; of 10 sentences the model's first" in few
    older = {name: value for name, value in blanks.items() if name != "plain"}
    assert "fill in the blank (held-out sentences; of 64 sentences" in summary_text(SUMMARY | {"blanks": older})


NEXT = """\
use this model:
  search your own texts (one per line, or a table with the columns title and text):
    .venv/bin/python jobs/embed.py --checkpoint out/runs/mine/export --input TEXTS --output out/vectors/mine \
&& .venv/bin/python jobs/search.py --vectors out/vectors/mine --queries 'A QUESTION'
  train it for search, and compare:
    .venv/bin/python jobs/adapt.py --corpus PATH_OR_URL --init out/runs/mine/export
  fine-tune it on a CSV:
    .venv/bin/python jobs/finetune.py --checkpoint out/runs/mine/export --train FILE.csv --text text --label label
  train it on your own corpus:
    .venv/bin/python jobs/pretrain.py continue-small --init out/runs/mine/export --corpus PATH_OR_URL \
sampling.pairs:full-sentences"""


def test_the_commands_that_use_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(tmp_path / ".venv/bin/python"))
    below = SUMMARY | {"export": str(tmp_path / "out/runs/mine/export")}
    assert next_commands(below) == NEXT
    installed = NEXT
    for job in ("embed", "search", "adapt", "finetune", "pretrain"):
        installed = installed.replace(f".venv/bin/python jobs/{job}.py", f"bertstream {job}")
    monkeypatch.setattr("sys.argv", ["/usr/bin/bertstream"])
    assert next_commands(below) == installed
    monkeypatch.setattr("sys.argv", ["jobs/pretrain.py"])
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")
    remote = next_commands(SUMMARY | {"export": "s3://b/my runs/runs/mine/export"})
    assert "    python jobs/finetune.py --checkpoint 's3://b/my runs/runs/mine/export' --train" in remote
    assert "--vectors 's3://b/my runs/vectors/mine'" in remote


def test_a_model_without_a_head_for_words_is_not_trained_further() -> None:
    replaced = SUMMARY["heldout_after"] | {"heldout/replaced_loss": 0.1}
    for summary in (SUMMARY | {"blanks": None}, SUMMARY | {"heldout_after": replaced}):
        text = next_commands(summary)
        assert "finetune.py" in text and "pretrain.py" not in text


def test_utilisation_is_unknown_of_gpus_only() -> None:
    assert "FLOPs" not in summary_text(SUMMARY), "no peak of a CPU is known"
    assert "  model FLOPs utilisation  unknown: no peak is known for this GPU and precision\n" in summary_text(
        SUMMARY | {"device": "cuda"}
    )
    assert "  model FLOPs utilisation  45.2% of the device's dense peak\n" in summary_text(
        SUMMARY | {"model_flops_utilisation_percent": 45.23}
    )


def test_vocabulary_independent_losses_are_shown_where_measured() -> None:
    before = SUMMARY["heldout_before"] | {"heldout/bits_per_byte": 3.25, "heldout/nats_per_word": 12.5}
    after = SUMMARY["heldout_after"] | {"heldout/bits_per_byte": 2.125, "heldout/nats_per_word": 8.0}
    measured = SUMMARY | {"heldout_before": before, "heldout_after": after}
    line = (
        "  held-out words         2.125 bits per byte, 8.000 nats per word (before training 3.250 and 12.500; "
        "comparable across vocabularies)\n"
    )
    accuracy = "  held-out NSP accuracy"
    assert summary_text(measured) == TEXT.replace(accuracy, line + accuracy)


def test_the_summary_for_mlflow() -> None:
    assert summary_markdown(SUMMARY) == MARKDOWN
    assert (
        "| held-out loss | none: the corpus is too small for a held-out part (prepare.heldout_share) |"
        in summary_markdown(WITHOUT_HELDOUT)
    )


def test_a_length_that_changed_in_between_is_said() -> None:
    longer = SUMMARY | {"maximum_length": 512}
    assert "4.568 nats at length 512 (before training 9.011 at length 128, unigram baseline 6.250)" in summary_text(
        longer
    )


def test_a_database_is_opened_with_the_mlflow_below_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ": mlflow ui --workers 1" in to_open("sqlite:///mlflow.db", "0a1b", "1")
    monkeypatch.setattr("sys.executable", str(tmp_path / ".venv/bin/python"))
    assert ": .venv/bin/mlflow ui --workers 1" in to_open("sqlite:///mlflow.db", "0a1b", "1")
    monkeypatch.setattr("sys.executable", str(tmp_path / "my env/bin/python"))
    assert ": 'my env/bin/mlflow' ui --workers 1" in to_open("sqlite:///mlflow.db", "0a1b", "1")


def test_where_a_run_is_found_on_a_server() -> None:
    assert (
        to_open("http://mlflow:5000/", "0a1b", "1")
        == "http://mlflow:5000/#/experiments/1/runs/0a1b?workflowType=machine_learning"
    )
    assert to_open("http://mlflow:5000", "0a1b", None) == "http://mlflow:5000/#/runs/0a1b"
    assert to_open("databricks", "0a1b", "1") == "run 0a1b at databricks"


def test_a_run_is_described_before_its_first_step() -> None:
    sources = {"https://me:word@host/a.txt": {}, "/b": {}}
    corpus = Corpus(
        folder="/c",
        fingerprint="f",
        train=(),
        heldout=(),
        counts={"documents": 1_200, "characters": 3_400_000},
        dropped={},
        sources=sources,
    )
    config = replace(PRESETS["bert-tiny"], name="mine")
    assert description(config, corpus, 8_192, "/out/runs/mine") == (
        "Pretraining run **mine**\n\n| | |\n|---|---|\n"
        "| model | 2 layers, width 128, 2 heads (as bert-tiny) |\n"
        "| corpus | https://***@host/a.txt, /b: 3,400,000 characters in 1,200 documents |\n"
        "| vocabulary | 8,192 entries |\n"
        "| steps | 600 of 64 rows, evaluated every 60 |\n"
        "| export, when it is done | /out/runs/mine/export |\n"
    )
    assert "| model | 3 layers, width 36, 2 heads |" in description(
        replace(config, model=Model(layers=3, width=36, heads=2)), corpus, 9, "/o"
    )
