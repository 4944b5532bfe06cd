"""The model card: every section from what the run recorded."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pipeline.errors import DataError
from pipeline.export.card import Lineage, Made, card, corpus_of, data, languages, metrics
from pipeline.export.huggingface import FILLING, USE
from pipeline.export.markdown import UNSAID, header, hub_name, public_location, public_model_location, table
from pipeline.export.trained import Trained, load_trained
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.run import read_summary, recorded_run

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
    assert [line for line in written.splitlines() if line.startswith("#")] == [
        "# tiny, step 3",
        *(
            "## Use",
            "## More",
            "## Limitations",
            "## Figures",
            "## Data",
            "## Settings",
            "## Lineage",
            "## License",
        ),
    ]
    assert "`sentence-transformers` read; checked: by hand." in written
    assert "layers of width 32" in written and UNSAID in written
    assert "| corpus | fingerprint 0123456789abcdef |" in written
    assert f"| vocabulary | fingerprint {lineage.recorded['identity']['vocabulary.fingerprint']} |" in written
    assert f"| MLflow run | {lineage.recorded['mlflow_run_id']} |" in written
    assert ", from random weights, on 12,345 characters of made up: 3 steps, " in written and ", seed 0." in written
    assert "| `optimizer.learning_rate` | 0.002 |" in written and "`corpus.fingerprint`" not in written


def test_a_card_has_the_numbers_of_an_audit(trained: Trained, lineage: Lineage) -> None:
    about = {"step": 2, "texts": 40, "seen": 3, "not_seen": 30, "too_short": 7, "in_corpus": 4, "found": []}
    written = card(trained, replace(lineage, audit={"mrpc dev": about}), "huggingface", MADE)
    assert (
        "## Test sets in the training text\n\n" in written
        and "| mrpc dev | 40 | 3 | 30 | 7 |\n\n## Settings" in written
    )


def test_the_weights_are_named_by_their_digest(trained: Trained, lineage: Lineage) -> None:
    digest = hashlib.sha256(Path(trained.checkpoint, "model.safetensors").read_bytes()).hexdigest()
    assert f"| checkpoint | step 3, SHA-256 of its weights {digest} |" in card(trained, lineage, "onnx", MADE)


def test_parameters_are_counted_once(trained: Trained, lineage: Lineage) -> None:
    V, S, W, F = trained.vocabulary_size, 32, 32, 64
    layer = 4 * (W * W + W) + 2 * W * F + F + W + 2 * 2 * W
    heads = W * W + W + 2 * W + V + 2 * W + 2  # the output weights are the word embeddings
    expected = (V + S + 2) * W + 2 * W + 2 * layer + W * W + W + heads
    assert f" {expected:,} parameters" in card(trained, lineage, "onnx", MADE)


def test_a_model_that_reads_more_than_its_training_had_says_so(trained: Trained, lineage: Lineage) -> None:
    lengths = {"sampling.maximum_length": 16, "sampling.exported_length": 32}
    recorded = lineage.recorded | {"identity": lineage.recorded["identity"] | lengths}
    written = card(trained, replace(lineage, recorded=recorded), "huggingface", MADE)
    assert "- It reads 32 tokens of a text, but the texts of this training had at most 16 tokens." in written
    assert "positions were trained" not in written


def test_a_continued_model_was_trained_on_more_positions_than_here(trained: Trained, lineage: Lineage) -> None:
    identity = lineage.recorded["identity"] | {"sampling.maximum_length": 16}
    new = replace(lineage, recorded=lineage.recorded | {"identity": identity})
    assert "positions were trained: truncate" in card(trained, new, "huggingface", MADE)
    recorded = lineage.recorded | {"identity": identity | {"init.fingerprint": "1234"}}
    written = card(trained, replace(lineage, recorded=recorded), "huggingface", MADE)
    assert "positions were trained" not in written
    longer = (
        "longer ones, up to 32, are read as the initial model read them. For vectors, texts are truncated to 16 tokens."
    )
    assert longer in written and "positions were trained" not in written


def test_data_with_what_was_left_out(lineage: Lineage) -> None:
    assert data(lineage) == (
        "| source | weight | documents | pieces | characters | left out |\n| --- | --- | --- | --- | --- | --- |\n"
        "| made up | 1 | 30 | 31 | 12,345 | duplicate 4, too-short 2 |\n\nIn all: 30 documents; left out: duplicate "
        "4, too-short 2."
    )
    gone = replace(lineage, corpus=DataError("/c/d does not hold a prepared corpus"), recorded={"corpus": "/c/d"})
    assert data(gone) == "Not described: d does not hold a prepared corpus."


def test_a_corpus_that_is_another_now_is_not_described(lineage: Lineage) -> None:
    changed = lineage.recorded | {"identity": {"corpus.fingerprint": "f" * 16}}
    folder = lineage.recorded["corpus"]
    assert (
        str(corpus_of(changed))
        == f"{folder} is no longer the corpus of this run: its fingerprint is 0123456789ab, the run's is ffffffffffff"
    )
    assert str(corpus_of(lineage.recorded | {"corpus": "/nowhere"})).startswith(
        "/nowhere does not hold a prepared corpus"
    )


def test_metrics_are_those_of_the_step_or_none(lineage: Lineage) -> None:
    assert "| trained | 3 steps, " in metrics(lineage.summary, 3)
    measured = lineage.summary | {
        "heldout_before": {"heldout/maximum_length": 32, "heldout/mlm_loss": 9.1},
        "heldout_after": {"heldout/mlm_loss": 5.5, "heldout/mlm_accuracy": 0.25},
        "baselines": {"baseline/unigram_mlm_loss": 6.3, "baseline/unigram_mlm_accuracy": 0.06},
    }
    assert (
        "| held-out MLM loss | 5.500 nats at length 32 (before training 9.100, unigram baseline 6.300) |\n| held-out "
        "MLM accuracy | 25.0% (unigram baseline 6.0%) |" in metrics(measured, 3)
    )
    assert metrics(lineage.summary, 2) == "None at this step; the run was measured at its end, after 3 steps."
    assert metrics(None, 2) == "None yet: the run is not finished, and the held-out loss is measured at its end."


def test_cells_keep_the_table() -> None:
    assert table(("a", "b"), [("x|y", "one\ntwo")]) == "| a | b |\n| --- | --- |\n| x\\|y | one two |"


def test_names_of_others_are_text_and_no_markup() -> None:
    assert table(("a",), [("<img src=x>|",), ("![p](https://host/t.png) [c](javascript:x)",)]).splitlines()[2:] == [
        "| &lt;img src=x&gt;\\| |",
        "| !\\[p\\](https://host/t.png) \\[c\\](javascript:x) |",
    ]
    error = DataError("corpus /tmp/<img src=x onerror=a> is not there")
    assert "<img" not in data(Lineage(name="n", recorded={"corpus": "/tmp"}, summary=None, corpus=error))


def fields(written: str) -> dict:
    """The header of a card."""
    return yaml.safe_load(written.split("---\n")[1])


def test_the_header_says_what_is_known_and_leaves_out_the_rest(trained: Trained, lineage: Lineage) -> None:
    plain = {"library_name": "transformers", "pipeline_tag": "fill-mask", "tags": ["bert", "bertstream"]}
    assert fields(card(trained, lineage, "huggingface", MADE)) == plain
    asked = replace(lineage, license="Apache-2.0", language=("en", "no"))
    graphs = replace(MADE, library="onnx", tags=("onnx", "int8"))
    assert fields(card(trained, asked, "int8", graphs)) == {
        "language": ["en", "no"],
        "library_name": "onnx",
        "pipeline_tag": "fill-mask",
        "tags": ["bert", "onnx", "int8", "bertstream"],
        "license": "apache-2.0",
    }
    assert "[Apache-2.0](https://spdx.org/licenses/Apache-2.0.html)." in card(trained, asked, "int8", graphs)


def test_a_license_that_the_hub_does_not_list_is_other_by_name() -> None:
    assert yaml.safe_load(header({}, "GPL-3.0-or-later").strip("-\n")) == {
        "license": "other",
        "license_name": "gpl-3.0-or-later",
        "license_link": "https://spdx.org/licenses/GPL-3.0-or-later.html",
    }


def test_languages_and_data_sets_are_those_of_the_sources(trained: Trained, lineage: Lineage) -> None:
    one = {"weight": 1.0, "documents": 1, "pieces": 1, "characters": 9, "dropped": {}}
    sources = {
        "builtin": one | {"language": None},
        "hf://datasets/wikimedia/wikipedia@main/20231101.de": one | {"language": "de"},
        "hf://datasets/wikimedia/wikipedia/20231101.nds": one | {"language": "nds"},
    }
    found = fields(
        card(trained, replace(lineage, corpus=replace(lineage.corpus, sources=sources)), "huggingface", MADE)
    )
    assert (found["language"], found["datasets"]) == (["de", "en", "nds"], ["wikimedia/wikipedia"])
    assert languages(sources | {"/my/books": one | {"language": None}}) == []


def test_figures_in_the_header_are_marked_as_those_of_a_development_set(trained: Trained, lineage: Lineage) -> None:
    measured = lineage.summary | {
        "heldout_before": {"heldout/maximum_length": 32, "heldout/mlm_loss": 9.1},
        "heldout_after": {"heldout/mlm_loss": 5.5, "heldout/mlm_accuracy": 0.25},
        "baselines": {"baseline/unigram_mlm_loss": 6.3, "baseline/unigram_mlm_accuracy": 0.06},
        "init": "hf://google-bert/bert-base-uncased",
    }
    written = card(trained, replace(lineage, summary=measured), "huggingface", MADE)
    found = fields(written)
    assert found["base_model"] == "google-bert/bert-base-uncased"
    assert found["model-index"] == [
        {
            "name": "tiny",
            "results": [
                {
                    "task": {"type": "fill-mask"},
                    "dataset": {
                        "type": "held-out",
                        "name": "held-out part of the training corpus, development set",
                        "split": "validation",
                    },
                    "metrics": [
                        {"type": "accuracy", "value": 0.25, "name": "accuracy at masked tokens"},
                        {"type": "loss", "value": 5.5, "name": "cross-entropy at masked tokens, nats"},
                    ],
                }
            ],
        }
    ]
    assert "a development set: settings may have been chosen by it" in written and "around a blank yet" not in written
    worse = replace(
        lineage, summary=measured | {"heldout_after": {"heldout/mlm_loss": 6.4, "heldout/mlm_accuracy": 0.06}}
    )
    assert "- Its held-out loss is 6.400; guessing by word frequencies alone gives 6.300. " in card(
        trained, worse, "onnx", MADE
    )


def test_the_hub_s_own_library_takes_the_header(trained: Trained, lineage: Lineage) -> None:
    hub = pytest.importorskip("huggingface_hub")
    after = {"heldout/mlm_loss": 5.5, "heldout/mlm_accuracy": 0.25, "heldout/nsp_accuracy": 0.75}
    beside = {f"baseline/{name}": 0.5 for name in ("unigram_mlm_loss", "unigram_mlm_accuracy", "majority_nsp_accuracy")}
    before = {"heldout/maximum_length": 32, "heldout/mlm_loss": 9.1}
    summary = lineage.summary | {"heldout_before": before, "heldout_after": after, "baselines": beside}
    asked = replace(lineage, summary=summary, license="CC-BY-4.0", language=("en",))
    read = hub.ModelCard(card(trained, asked, "huggingface", MADE), ignore_metadata_errors=False).data
    assert (read.license, read.language, read.pipeline_tag, read.model_name) == (
        "cc-by-4.0",
        ["en"],
        "fill-mask",
        "tiny",
    )
    assert [(one.metric_type, one.metric_value, one.dataset_split) for one in read.eval_results] == [
        ("accuracy", 0.25, "validation"),
        ("loss", 5.5, "validation"),
        ("accuracy", 0.75, "validation"),
    ]


def test_a_card_names_no_folder_of_this_machine(trained: Trained, lineage: Lineage) -> None:
    local = replace(lineage, summary=lineage.summary | {"init": f"{os.getcwd()}/mine"})
    written = card(trained, local, "huggingface", replace(MADE, use=FILLING + USE))
    assert str(Path(trained.checkpoint).parents[2]) not in written and os.getcwd() not in written
    assert "base_model" not in fields(written)
    assert (public_location("/a/b/books/"), public_location("s3://b/c")) == ("books", "s3://b/c")
    assert (hub_name("hf://me/x@main"), hub_name("/me/x")) == ("me/x", None)


@pytest.mark.parametrize(
    ("location", "public"),
    [
        ("/a/runs/mine/export", "mine/export"),
        ("/a/runs/mine/checkpoints/step-1", "mine/checkpoints/step-1"),
        ("/a/finetune/t/model", "t/model"),
        ("/a/b", "b"),
        ("hf://a/b", "hf://a/b"),
        ("s3://b/runs/mine/export", "s3://b/runs/mine/export"),
        ("", ""),
    ],
)
def test_a_public_location_of_a_model_is_its_own_public_location(location: str, public: str) -> None:
    assert public_model_location(location) == public
    assert public_model_location(public) == public  # of a model that is exported a second time


def test_examples_name_the_repository_where_it_goes_there(trained: Trained, lineage: Lineage) -> None:
    pushed = card(trained, replace(lineage, repository="me/tiny"), "huggingface", replace(MADE, use=FILLING + USE))
    assert (
        'model="me/tiny"' in pushed and 'api.load("hf://me/tiny")' in pushed and "in the model's folder" not in pushed
    )
    here = card(trained, lineage, "huggingface", replace(MADE, use=FILLING + USE))
    assert (
        'model="."' in here
        and 'api.load(".")' in here
        and "Run this in the model's folder; from elsewhere, give the folder's path." in here
    )
