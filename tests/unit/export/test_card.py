"""The model card: every section from what the run recorded."""

import hashlib
from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.export.card import HEADER, LICENCE, Lineage, Made, card, corpus_of, data, metrics, table
from pipeline.export.trained import Trained, load_trained, recorded_run
from pipeline.train.checkpoint import folder_of
from pipeline.train.run import read_summary

MADE = Made(checked="checked: by hand", use="Call it.", extra=("## More", "Said."))


@pytest.fixture(scope="module")
def trained(tiny_run: Path) -> Trained:
    return load_trained(folder_of(str(tiny_run), 3))


@pytest.fixture(scope="module")
def lineage(tiny_run: Path) -> Lineage:
    recorded = recorded_run(str(tiny_run))
    return Lineage(name="tiny", recorded=recorded, summary=read_summary(str(tiny_run)), corpus=corpus_of(recorded))


def test_a_card_says_where_the_model_comes_from(trained: Trained, lineage: Lineage) -> None:
    written = card(trained, lineage, "huggingface", MADE)
    assert written.startswith(HEADER) and "license" not in HEADER
    assert [line for line in written.splitlines() if line.startswith("#")] == [
        "# tiny, step 3",
        *("## Use", "## More", "## Metrics", "## Data", "## Settings", "## Lineage", "## Licence"),
    ]
    assert "layers of width 32" in written and "This folder: huggingface; checked: by hand." in written and LICENCE in written
    assert f"| corpus | {lineage.recorded['corpus']}, fingerprint 0123456789abcdef |" in written
    assert f"| vocabulary | fingerprint {lineage.recorded['identity']['vocabulary.fingerprint']} |" in written
    assert f"| MLflow run | {lineage.recorded['mlflow_run_id']} at {lineage.summary['mlflow_uri']} |" in written
    assert "| `optimizer.learning_rate` | 0.002 |" in written and "`corpus.fingerprint`" not in written


def test_the_weights_are_named_by_their_digest(trained: Trained, lineage: Lineage) -> None:
    digest = hashlib.sha256(Path(trained.checkpoint, "model.safetensors").read_bytes()).hexdigest()
    assert f"| checkpoint | {trained.checkpoint}, SHA-256 of its weights {digest} |" in card(trained, lineage, "onnx", MADE)


def test_parameters_are_counted_once(trained: Trained, lineage: Lineage) -> None:
    V, S, W, F = trained.vocabulary_size, 32, 32, 64
    layer = 4 * (W * W + W) + 2 * W * F + F + W + 2 * 2 * W
    heads = W * W + W + 2 * W + V + 2 * W + 2  # the output weights are the word embeddings
    expected = (V + S + 2) * W + 2 * W + 2 * layer + W * W + W + heads
    assert f" {expected:,} parameters" in card(trained, lineage, "onnx", MADE)


def test_data_with_what_was_left_out(lineage: Lineage) -> None:
    assert data(lineage.corpus) == (
        "| source | weight | documents | pieces | characters | left out |\n| --- | --- | --- | --- | --- | --- |\n"
        "| made up | 1 | 30 | 31 | 12,345 | duplicate 4, too-short 2 |\n\nIn all: 30 documents; left out: duplicate 4, too-short 2."
    )
    assert data(DataError("/c holds no prepared corpus")) == "Not described: /c holds no prepared corpus."


def test_a_corpus_that_is_another_now_is_not_described(lineage: Lineage) -> None:
    changed = lineage.recorded | {"identity": {"corpus.fingerprint": "f" * 16}}
    folder = lineage.recorded["corpus"]
    assert str(corpus_of(changed)) == f"{folder} is no more the corpus of this run: fingerprint 0123456789ab, the run's is ffffffffffff"
    assert str(corpus_of(lineage.recorded | {"corpus": "/nowhere"})).startswith("/nowhere holds no prepared corpus")


def test_metrics_are_those_of_the_step_or_none(lineage: Lineage) -> None:
    assert "| trained | 3 steps, " in metrics(lineage.summary, 3)
    measured = lineage.summary | {
        "heldout_before": {"heldout/maximum_length": 32, "heldout/mlm_loss": 9.1},
        "heldout_after": {"heldout/mlm_loss": 5.5, "heldout/mlm_accuracy": 0.25},
        "baselines": {"baseline/unigram_mlm_loss": 6.3, "baseline/unigram_mlm_accuracy": 0.06},
    }
    assert "| held-out MLM loss | 5.500 nats at length 32 (before training 9.100, unigram baseline 6.300) |\n| held-out MLM accuracy | 25.0% (unigram baseline 6.0%) |" in metrics(measured, 3)
    assert metrics(lineage.summary, 2) == "None at this step; the run was measured at its end, after 3 steps."
    assert metrics(None, 2) == "None: the run is not finished, and its held-out loss is measured at its end."


def test_cells_keep_the_table() -> None:
    assert table(("a", "b"), [("x|y", "one\ntwo")]) == "| a | b |\n| --- | --- |\n| x\\|y | one two |"


def test_names_of_others_are_text_and_no_markup() -> None:
    assert table(("a",), [("<img src=x>|",), ("![p](https://host/t.png) [c](javascript:x)",)]).splitlines()[2:] == [
        "| &lt;img src=x&gt;\\| |",
        "| !\\[p\\](https://host/t.png) \\[c\\](javascript:x) |",
    ]
    assert "<img" not in data(DataError("corpus /tmp/<img src=x onerror=a> is not there"))
