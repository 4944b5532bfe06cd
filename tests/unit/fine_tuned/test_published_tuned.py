"""Fine-tuned models published by others: what they are taken for, and what is refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.errors import CheckpointError
from pipeline.files import storage
from pipeline.files.locations import absolute
from pipeline.fine_tuned.model import is_published, open_tuned, tuned_of
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.predict.model import identify
from pipeline.saved.model import open_saved
from pipeline.tasks.labels import with_number_labels
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import has_capitals

MODEL = Model(layers=1, width=16, heads=2, feed_forward=32, maximum_positions=32)
TASKS = {
    "classification": Task(name="a", kind="classification", labels=("no", "yes"), metrics=("accuracy",)),
    "tags": Task(name="d", kind="tags", labels=("O", "B-X", "I-X"), metrics=("f1",)),
    "spans": Task(name="e", kind="spans", metrics=("f1",)),
}
OURS = ("task.json", "manifest.json")


def published(folder: Path, vocabulary: Vocabulary, kind: str = "classification", **changes: Any) -> str:
    """A folder as others publish it, with fields of config.json changed; those that are None are left out."""
    task = TASKS[kind]
    module = OBJECTIVES[kind](MODEL, vocabulary.size, len(task.labels), torch.Generator().manual_seed(1), "cls", None)
    about = About(task=task, cutting=Truncation(maximum_length=16, stride=4), pooling="cls", thresholds={}, lineage={})
    save_tuned(str(folder), module, about, MODEL, vocabulary)
    for name in OURS:
        (folder / name).unlink()
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in config.items() if value is not None})
    )
    return str(folder)


@pytest.mark.parametrize("kind", TASKS)
def test_a_published_folder_is_its_head_its_labels_and_its_length(
    kind: str, tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    folder = published(tmp_path / "some-model", tiny_vocabulary, kind)
    about = open_tuned(folder).about
    assert (about.task.name, about.task.kind, about.task.labels) == ("some-model", kind, TASKS[kind].labels)
    said = json.loads((tmp_path / "some-model" / "tokenizer_config.json").read_text())
    assert about.cutting.maximum_length == said["model_max_length"] == 16
    (tmp_path / "some-model" / "tokenizer_config.json").write_text(json.dumps(said | {"model_max_length": int(1e30)}))
    assert open_tuned(folder).about.cutting.maximum_length == 32


def test_it_is_read_from_the_hub_and_from_a_url(hub: Path, tiny_vocabulary: Vocabulary) -> None:
    published(hub / "owner" / "name", tiny_vocabulary)
    found = open_tuned("hf://owner/name")
    assert found.about.task.name == "name" and identify("hf://owner/name")[0] == "classification"
    assert identify(absolute(f"file://{hub}/owner/name"))[1] == identify(str(hub / "owner" / "name"))[1]


def test_other_weights_have_another_fingerprint(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    folder = published(tmp_path / "m", tiny_vocabulary)
    before = identify(folder)
    assert before == identify(folder)
    changed(tmp_path / "m", **{"classifier.bias": torch.ones(2)})
    assert identify(folder)[1] != before[1]


def changed(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Write other weights, without those that are None."""
    found = load_file(folder / "model.safetensors") | tensors
    save_file({name: tensor for name, tensor in found.items() if tensor is not None}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"architectures": ["BertForNextSentencePrediction"]},
            "m: config.json: architectures is 'BertForNextSentencePrediction', so the model has no head for a task: "
            "give a model with one of "
            "BertForSequenceClassification, BertForTokenClassification, BertForQuestionAnswering, "
            "BertForMultipleChoice, RobertaForSequenceClassification, ",
        ),
        (
            {"architectures": ["XLNetForSequenceClassification"]},
            "m: config.json: architectures is 'XLNetForSequenceClassification', so the model has no head for a task: ",
        ),
        (
            {"architectures": None},
            "m: config.json: architectures is missing, so the model has no head for a task: give ",
        ),
        (
            {"model_type": "roberta"},
            "m: config.json: architectures is 'BertForSequenceClassification', but model_type 'roberta' needs a "
            "class of RoBERTa",
        ),
        (
            {"problem_type": "ranking"},
            "m: config.json: problem_type is 'ranking', which is not one of "
            "single_label_classification, multi_label_classification, regression",
        ),
        (
            {"problem_type": "regression"},
            "m: tensor classifier.weight has 2 outputs, but a model for regression has 1",
        ),
        (
            {"id2label": {"0": "no"}},
            "m: config.json: id2label names 1 labels, 0, but the head has 2 outputs, from 0 to 1",
        ),
        (
            {"id2label": {"0": "no", "1": "no"}},
            "m: config.json: id2label names 'no' 2 times: give each label its own name",
        ),
        ({"id2label": ["no", "yes"]}, "m: config.json: id2label is not an object of numbers and labels ("),
        (
            {"architectures": ["BertForQuestionAnswering"]},
            "m: tensor qa_outputs.weight is missing or is not a matrix: BertForQuestionAnswering needs it",
        ),
        ({"num_hidden_layers": 10**9}, "m: config.json: num_hidden_layers is 1000000000, but the weights have only "),
    ],
)
def test_what_cannot_be_asked_is_named_in_one_line(
    changes: dict, words: str, tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    folder = published(tmp_path / "m", tiny_vocabulary, **changes)
    with pytest.raises(CheckpointError) as refused:
        open_tuned(folder)
    assert str(refused.value).startswith(f"checkpoint {tmp_path}/{words}") and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"bert.pooler.dense.bias": None}, "tensor bert.pooler.dense.bias is missing"),
        (
            {"classifier.bias": torch.tensor([0.0, torch.nan])},
            "tensor classifier.bias is not finite: NaN or infinity among the weights",
        ),
        (
            {"bert.encoder.layer.1.output.dense.bias": torch.ones(16)},
            "tensor bert.encoder.layer.1.output.dense.bias is unexpected: "
            "the encoder that config.json describes has no tensor of that name",
        ),
        (
            {"bert.embeddings.word_embeddings.weight": torch.ones(9, 16)},
            "the weights have 9 word embeddings, but the vocabulary has ",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(
    tensors: dict, words: str, tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    folder = published(tmp_path / "m", tiny_vocabulary)
    changed(tmp_path / "m", **tensors)
    with pytest.raises(CheckpointError) as refused:
        open_tuned(folder)
    assert str(refused.value).startswith(f"checkpoint {folder}: {words}")


def test_other_heads_and_padded_embeddings_are_accepted(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    folder = published(tmp_path / "m", tiny_vocabulary)
    words = load_file(tmp_path / "m" / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    longer = torch.cat([words, torch.zeros(35 + len(words) % 2, 16)])  # an odd number of rows, so no multiple of 8
    changed(tmp_path / "m", **{"cls.predictions.bias": torch.ones(3), "bert.embeddings.word_embeddings.weight": longer})
    tuned = open_tuned(folder)
    assert tuned.about.task.labels == ("no", "yes")
    assert tuned.module.state_dict()["encoder.embeddings.words.weight"].equal(words)
    save_tuned(str(tmp_path / "copy"), tuned.module, tuned.about, tuned.model, tuned.vocabulary)
    assert tuned_of(open_saved(str(tmp_path / "copy"))).about.task.labels == ("no", "yes")


def test_ours_and_pretrained_ones_are_not_taken_for_published(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    module = OBJECTIVES["tags"](MODEL, tiny_vocabulary.size, 3, torch.Generator().manual_seed(1), "cls", None)
    about = About(
        task=TASKS["tags"], cutting=Truncation(maximum_length=16, stride=4), pooling="cls", thresholds={}, lineage={}
    )
    save_tuned(str(tmp_path / "ours"), module, about, MODEL, tiny_vocabulary)
    ours = open_saved(str(tmp_path / "ours"))
    assert not is_published(ours) and tuned_of(ours).about.task == TASKS["tags"]
    folder = Path(published(tmp_path / "export", tiny_vocabulary, architectures=["BertForPreTraining"]))
    assert is_published(open_saved(str(folder)))
    (folder / "manifest.json").write_text("{}")
    assert not is_published(open_saved(str(folder), verify=False))
    (folder / "manifest.json").unlink()
    storage.publish(folder, str(tmp_path / "again"), {})
    with pytest.raises(CheckpointError, match=r"^checkpoint .*again has no task\.json: give a folder that fine-tuning"):
        open_tuned(str(tmp_path / "again"))


def test_labels_without_names_are_the_numbers_of_a_file_that_has_numbers() -> None:
    task = Task(name="a", kind="classification", labels=("LABEL_0", "LABEL_1"), metrics=("accuracy",))
    assert with_number_labels(task, {"1"}).labels == ("0", "1") and with_number_labels(task, {"1", "odd"}).labels == (
        "0",
        "1",
    )
    for labels in ({"LABEL_1"}, {"2"}, {"yes"}, {"LABEL_0", "1"}, set()):
        assert with_number_labels(task, labels) == task
    assert with_number_labels(TASKS["classification"], {"0", "1"}) == TASKS["classification"]


def test_entries_tell_a_cased_vocabulary() -> None:
    assert has_capitals(("[PAD]", "[CLS]", "The", "the")) and not has_capitals(
        ("[PAD]", "[CLS]", *(f"a{n}" for n in range(200)), "A")
    )
