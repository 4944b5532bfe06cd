"""A fine-tuned model on disk: as it was, as transformers reads it, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from pipeline import api
from pipeline.batch import Batch, TaskBatch
from pipeline.config.adapters import Adapter, Bottleneck, LowRank, NoAdapter
from pipeline.config.cutting import Truncation
from pipeline.config.data import VocabularySettings
from pipeline.config.model import Model
from pipeline.errors import CheckpointError
from pipeline.files import storage
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.model.adapters import add_adapter
from pipeline.objectives.tasks import OBJECTIVES, TaskObjective
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import read_initial
from tests.unit.objectives.batches import as_task

SETTINGS = Model(layers=2, width=16, heads=2, feed_forward=32, maximum_positions=32, initializer_deviation=0.3)
TASKS = {
    "classification": Task(name="a", kind="classification", labels=("no", "yes", "maybe"), metrics=("accuracy",)),
    "multilabel": Task(name="b", kind="multilabel", labels=("red", "green", "blue"), metrics=("micro_f1",)),
    "regression": Task(name="c", kind="regression", metrics=("pearson",)),
    "tags": Task(name="d", kind="tags", labels=("O", "B-X", "I-X"), metrics=("f1",)),
    "ranking": Task(name="f", kind="ranking", metrics=("map",)),
    "spans": Task(name="e", kind="spans", metrics=("f1",), unanswerable=True),
    "choices": Task(name="f", kind="choices", metrics=("accuracy",)),
}


def batch(size: int, kind: str = "") -> TaskBatch:
    lengths = (5, 9, 3)
    random, positions = torch.Generator().manual_seed(3), torch.cat([torch.arange(n) for n in lengths])
    tokens = Batch(
        ids_T=torch.randint(1, size, (17,), generator=random),
        segments_T=(positions > 2).long(),
        positions_T=positions,
        offsets=torch.tensor([0, 5, 14, 17], dtype=torch.int32),
        maximum_length=9,
    )
    return as_task(tokens, passages=torch.ones(3, dtype=torch.int64) if kind == "choices" else None)


def saved(
    kind: str,
    folder: Path,
    vocabulary: Vocabulary,
    pooling: str = "cls",
    adapter: Adapter = NoAdapter(),  # noqa: B008 (it is frozen)
) -> TaskObjective:
    """A module with random weights, adapters' included, in a folder; what it was before its adapters were merged is
    gone.
    """
    task = TASKS[kind]
    module = OBJECTIVES[kind](
        SETTINGS, vocabulary.size, len(task.labels), torch.Generator().manual_seed(1), pooling, None
    ).eval()
    if not isinstance(adapter, NoAdapter):
        add_adapter(module, adapter, torch.Generator().manual_seed(2))
        with torch.no_grad():
            for weight in module.parameters():
                if weight.requires_grad:
                    weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    if kind == "regression":
        module.learn_standardised(250.0, 40.0)  # is in the published head
    about = About(
        task=task,
        cutting=Truncation(maximum_length=16, stride=4),
        pooling=pooling,
        thresholds={"null_threshold": 1.5},
        lineage={"checkpoint": "somewhere"},
    )
    with torch.no_grad():
        before = module.logits(batch(vocabulary.size, kind))
    save_tuned(str(folder), module, about, SETTINGS, vocabulary, adapter)
    with torch.no_grad():
        torch.testing.assert_close(
            module.eval().logits(batch(vocabulary.size, kind)),
            before,
            rtol=1e-4,
            atol=1e-4 if kind == "regression" else 1e-5,
        )
    return module


@pytest.mark.parametrize("kind", [kind for kind in OBJECTIVES if kind != "similarity"])  # it has no head
def test_a_model_comes_back_as_it_was_and_transformers_says_the_same(
    kind: str, tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    transformers = pytest.importorskip("transformers")
    module, inputs = saved(kind, tmp_path / "m", tiny_vocabulary), batch(tiny_vocabulary.size, kind)
    found = open_tuned(str(tmp_path / "m"))
    assert (
        found.about.task == TASKS[kind]
        and found.about.cutting == Truncation(maximum_length=16, stride=4)
        and found.about.thresholds == {"null_threshold": 1.5}
    )
    assert found.vocabulary.tokens == tiny_vocabulary.tokens and found.about.lineage == {"checkpoint": "somewhere"}
    automatic = {
        "tags": transformers.AutoModelForTokenClassification,
        "spans": transformers.AutoModelForQuestionAnswering,
        "choices": transformers.AutoModelForMultipleChoice,
    }
    peer = automatic.get(kind, transformers.AutoModelForSequenceClassification).from_pretrained(tmp_path / "m").eval()
    with torch.no_grad():
        ours, again = module.logits(inputs), found.module.logits(inputs)
        torch.testing.assert_close(again, ours, rtol=0, atol=0)
        for row, (start, end) in enumerate(zip(inputs.offsets[:-1].tolist(), inputs.offsets[1:].tolist())):
            row_of_one = (None, None) if kind == "choices" else (None,)
            ids, segments = inputs.ids_T[start:end][row_of_one], inputs.segments_T[start:end][row_of_one]
            theirs = peer(input_ids=ids, token_type_ids=segments)
            logits = (
                torch.stack((theirs.start_logits[0], theirs.end_logits[0]), -1) if kind == "spans" else theirs.logits[0]
            )
            torch.testing.assert_close(
                logits,
                ours[start:end] if module.per_token else ours[row],
                rtol=1e-4,
                atol=1e-4 if kind == "regression" else 1e-5,
            )
    if TASKS[kind].labels:
        assert peer.config.id2label == dict(enumerate(TASKS[kind].labels))
    assert peer.config.problem_type == {
        "classification": "single_label_classification",
        "multilabel": "multi_label_classification",
        "regression": "regression",
        "ranking": "regression",
    }.get(kind)


def test_a_model_of_multiple_choice_that_others_published_can_be_loaded(
    tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    module, inputs = saved("choices", tmp_path / "m", tiny_vocabulary), batch(tiny_vocabulary.size, "choices")
    for file in ("task.json", storage.MANIFEST):
        (tmp_path / "m" / file).unlink()
    found = open_tuned(str(tmp_path / "m"))
    assert found.about.task == Task(name="m", kind="choices", metrics=("accuracy",), maximum_length=32)
    with torch.no_grad():
        torch.testing.assert_close(found.module.logits(inputs), module.logits(inputs), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("pooling", "adapter"),
    [("mean", NoAdapter()), ("attention", NoAdapter()), ("cls", LowRank(rank=2)), ("cls", Bottleneck(width=4))],
)
def test_poolings_and_adapters_come_back(
    pooling: str, adapter: Adapter, tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    module = saved("classification", tmp_path / "m", tiny_vocabulary, pooling, adapter)
    with torch.no_grad():
        torch.testing.assert_close(
            open_tuned(str(tmp_path / "m")).module.logits(batch(tiny_vocabulary.size)),
            module.logits(batch(tiny_vocabulary.size)),
            rtol=1e-5,
            atol=1e-6,
        )
    assert (tmp_path / "m" / "adapters.safetensors").exists() == isinstance(adapter, Bottleneck)


def test_a_saved_copy_of_a_model_with_bottlenecks_answers_as_the_model(
    tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    saved("classification", tmp_path / "m", tiny_vocabulary, "mean", Bottleneck(width=4))
    model = api.load(str(tmp_path / "m"), device="cpu")
    model.save(str(tmp_path / "copy"))
    rows = ["kar mist", "lost"]
    assert api.load(str(tmp_path / "copy"), device="cpu").predict(rows) == model.predict(rows)
    assert not (tmp_path / "copy" / "modules.json").exists(), "sentence-transformers does not know the adapter"


def test_what_is_no_fine_tuned_model_is_refused(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    with pytest.raises(
        CheckpointError,
        match=r"^checkpoint .*nothing has no task\.json: give a folder that fine-tuning wrote, such as "
        r"output/finetune/NAME/model$",
    ):
        open_tuned(str(tmp_path / "nothing"))
    saved("tags", tmp_path / "m", tiny_vocabulary)
    said = json.loads((tmp_path / "m" / "task.json").read_text())
    (tmp_path / "m" / "task.json").write_text(json.dumps(said | {"pooling": "mean"}))
    with pytest.raises(CheckpointError, match=r"^checkpoint .*m is damaged: task\.json"):
        open_tuned(str(tmp_path / "m"))


def test_a_model_from_before_passages_were_pooled_is_loaded(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    saved("classification", tmp_path / "model", tiny_vocabulary)
    said = json.loads((tmp_path / "model" / "task.json").read_text())
    for name in ("passage_pooling", "maximum_passages"):
        del said["cutting"][name]
    shutil.copytree(tmp_path / "model", tmp_path / "other", ignore=shutil.ignore_patterns("manifest.json"))
    (tmp_path / "other" / "task.json").write_text(json.dumps(said))
    storage.publish(tmp_path / "other", str(tmp_path / "before"), {})
    assert open_tuned(str(tmp_path / "before")).about.cutting == Truncation(maximum_length=16, stride=4)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "path", "value", "words"),
    [
        (
            "config.json",
            ("num_hidden_layers",),
            10**9,
            "config.json: num_hidden_layers is 1000000000, but the weights have only",
        ),
        ("config.json", ("hidden_size",), 10**9, "config.json: a model of these sizes has "),
        (
            "task.json",
            ("bottleneck", "width"),
            10**9,
            "task.json has a bottleneck of width 1000000000, but no tensor of adapters.safetensors is that large",
        ),
        ("task.json", ("task", "kind"), "poems", "task.json cannot be used (ValueError: kind is 'poems')"),
        (
            "task.json",
            ("crf",),
            True,
            "task.json cannot be used (ValueError: crf is true, but the labels are no tags of the "
            "schemes IOB2 or BIOES)",
        ),
        ("task.json", ("task",), 7, "task.json cannot be used (AttributeError: "),
        ("task.json", ("cutting",), {}, "task.json cannot be used (KeyError: "),
        (
            "task.json",
            ("cutting", "passage_pooling"),
            "max",
            "task.json cannot be used (ConfigError: cutting.passage_pooling (max) pools",
        ),
    ],
)
def test_a_folder_that_says_what_its_files_do_not_hold_is_refused(
    tmp_path: Path, tiny_vocabulary: Vocabulary, name: str, path: tuple[str, ...], value: object, words: str
) -> None:
    saved("classification", tmp_path / "model", tiny_vocabulary, adapter=Bottleneck(width=3))
    said = json.loads((tmp_path / "model" / name).read_text())
    inner = said
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    shutil.copytree(tmp_path / "model", tmp_path / "other", ignore=shutil.ignore_patterns("manifest.json"))
    (tmp_path / "other" / name).write_text(json.dumps(said))
    storage.publish(tmp_path / "other", str(tmp_path / "changed"), {})
    with pytest.raises(CheckpointError) as refused:
        open_tuned(str(tmp_path / "changed"))
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_model_without_its_manifest_has_no_task_but_weights_to_start_from(
    tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    saved("tags", tmp_path / "m", tiny_vocabulary)
    (tmp_path / "m" / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"^checkpoint .*m is damaged: manifest\.json is missing$"):
        open_tuned(str(tmp_path / "m"))
    initial = read_initial(str(tmp_path / "m"), VocabularySettings(), str(tmp_path / "out"), print)
    assert initial.model == SETTINGS
