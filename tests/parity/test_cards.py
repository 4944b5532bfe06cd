"""Examples on the model cards of exports: each runs as it stands, in the folder of its card."""

import json
import re
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from pipeline import api
from pipeline.batch import Batch
from pipeline.config.adapters import Bottleneck
from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.config.task_kind import Kind
from pipeline.export.card import Lineage
from pipeline.export.cards import CARDS
from pipeline.export.huggingface import export
from pipeline.export.tuned_card import DATASETS, figures, tuned_files
from pipeline.files import storage
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.model.adapters import add_adapter
from pipeline.objectives.chain import add_chain
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.saved.checkpoints import folder_of
from pipeline.tasks import known
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

pytest.importorskip("transformers")

main: Callable[[list[str]], int] = runpy.run_path(str(Path(__file__).parents[2] / "jobs" / "export.py"))["main"]
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
SENTENCES = "sentence_transformers"
MODEL = Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32, initializer_deviation=0.5)
LABELS: dict[str, tuple[str, ...]] = {
    "classification": ("bad", "good"),
    "multilabel": ("red", "green"),
    "tags": ("O", "B-LOC"),
}
TEXTS = ["Kar kand, kap!", "lost LOST lol", "", "what it has never seen: 你好 é", "[MASK] is no word"]


def installed(example: str) -> bool:
    """Whether an example can run here: sentence-transformers is not among the tests' libraries."""
    if SENTENCES not in example:
        return True
    try:
        __import__(SENTENCES)
    except ImportError:
        return False
    return True


def examples(folder: Path) -> list[str]:
    return EXAMPLE.findall((folder / "README.md").read_text())


def fields(folder: Path) -> dict:
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run the examples of a card and return what each prints."""
    monkeypatch.chdir(folder)
    said = []
    for example in examples(folder):
        capsys.readouterr()
        if installed(example):
            exec(compile(example, "card", "exec"), {})
            said.append(capsys.readouterr().out)
    return said


@pytest.fixture(scope="module")
def pretrained(tiny_run: Path, tiny_lineage: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cards") / "export"
    export(folder_of(str(tiny_run), 3), str(folder), tiny_lineage)
    return folder


def about(kind: Kind, *, pooling: str = "cls", name: str = "mine", paired: bool = False, **lineage) -> About:
    task = Task(name=name, kind=kind, labels=LABELS.get(kind, ()), metrics=("accuracy",), paired=paired)
    cutting = Truncation(maximum_length=16, stride=4, question_length=4)
    return About(task=task, cutting=cutting, pooling=pooling, thresholds={}, lineage=lineage)


def tuned(folder: Path, said: About, vocabulary: Vocabulary) -> Path:
    """A fine-tuned model with weights at random and its card."""
    random, task = torch.Generator().manual_seed(5), said.task
    module = OBJECTIVES[task.kind](MODEL, vocabulary.size, len(task.labels), random, said.pooling, None)
    save_tuned(str(folder), module, said, MODEL, vocabulary, beside=tuned_files(said, MODEL))
    assert storage.damage(str(folder)) is None
    return folder


def test_the_examples_of_a_pretrained_model_run(
    pretrained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run(pretrained, monkeypatch, capsys)
    assert len(examples(pretrained)) == 3 and len(said) >= 2
    assert "'score': " in said[0] and "'probability': " in said[-1] and said[-1].endswith("(2, 32)\n")


@pytest.mark.parametrize(
    ("kind", "paired"), [*((kind, False) for kind in OBJECTIVES), ("classification", True), ("regression", True)]
)
def test_the_examples_of_a_fine_tuned_model_run(
    kind: Kind,
    paired: bool,
    tiny_vocabulary: Vocabulary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tuned(tmp_path / "m", about(kind, paired=paired), tiny_vocabulary)
    said = run(folder, monkeypatch, capsys)
    assert len(said) == len(examples(folder)) == (1 if kind in ("spans", "choices") else 2)
    assert ("text_pair" in examples(folder)[0]) == paired
    assert said[-1].startswith("[{") and fields(folder)["pipeline_tag"] == CARDS[kind].pipeline


def test_transformers_reads_the_scores_of_single_tokens_of_a_model_with_a_crf(
    tiny_vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = about("tags")
    said = replace(said, task=replace(said.task, labels=("O", "B-X", "I-X")), crf=True)
    module = OBJECTIVES["tags"](MODEL, tiny_vocabulary.size, 3, torch.Generator().manual_seed(5), "cls", None).eval()
    add_chain(module, said.task)
    save_tuned(str(tmp_path / "m"), module, said, MODEL, tiny_vocabulary, beside=tuned_files(said, MODEL))
    assert "so its answers differ. For the best tag sequence" in (tmp_path / "m" / "README.md").read_text()
    printed = run(tmp_path / "m", monkeypatch, capsys)
    assert len(printed) == len(examples(tmp_path / "m")) == 2 and "'tags': " in printed[1]
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(str(tmp_path / "m")).eval()
    assert theirs.config.crf is True
    ids = torch.tensor([[2, 7, 9, 11, 3]])
    batch = Batch(
        ids_T=ids[0],
        segments_T=torch.zeros(5, dtype=torch.int64),
        positions_T=torch.arange(5),
        offsets=torch.tensor([0, 5], dtype=torch.int32),
        maximum_length=5,
    )
    with torch.inference_mode():
        torch.testing.assert_close(theirs(ids).logits[0], module.logits(batch), atol=1e-5, rtol=1e-5)


def test_later_pieces_with_a_tag_of_their_own_are_named_on_the_card() -> None:
    said = about("tags")
    own = replace(said, cutting=replace(said.cutting, label_all_pieces=True, continuation="own"))
    line = "trained to have the tag ##: read a word's tag from its first piece."
    assert line in tuned_files(own, MODEL)["README.md"] and line not in tuned_files(said, MODEL)["README.md"]


def test_transformers_is_not_named_where_it_would_answer_otherwise(tiny_vocabulary: Vocabulary) -> None:
    mean = tuned_files(about("classification", pooling="mean"), MODEL)
    assert "`transformers` would give other answers: the head reads a mean" in mean["README.md"]
    assert {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"} < mean.keys()
    assert json.loads(mean["sentence_bert_config.json"])["max_seq_length"] == 16
    assert "sentence-transformers" in yaml.safe_load(mean["README.md"].split("---\n")[1])["tags"]
    adapted = tuned_files(about("classification", pooling="mean"), MODEL, plain=False)
    assert list(adapted) == ["README.md"] and "would give other answers: the model has adapters" in adapted["README.md"]
    assert list(tuned_files(about("classification"), MODEL)) == list(tuned_files(about("tags"), MODEL)) == ["README.md"]


def test_random_blocks_that_transformers_leaves_out_are_a_limitation() -> None:
    attention = BlockSparseAttention(block_size=2, random_blocks=1)
    said = about("classification")
    long = replace(MODEL, family="bigbird", activation="gelu_new", attention=attention)
    warning = "`transformers` answers differently for texts of more than 14 tokens"
    assert warning in tuned_files(said, long)["README.md"]
    short = replace(said, cutting=replace(said.cutting, maximum_length=14))
    assert "answers differently" not in tuned_files(short, long)["README.md"] + tuned_files(said, MODEL)["README.md"]


def test_the_card_of_a_known_task_has_its_data_its_figures_and_its_base_model(
    tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    said = about(
        "classification",
        name="mrpc",
        checkpoint="hf://google/bert_uncased_L-2_H-128_A-2",
        trial="mrpc-seed1-abc",
        scores={"dev": {"accuracy": 0.75, "f1": 0.8125}, "test": {"accuracy": 0.5}},
        baselines={"dev": {"accuracy": 0.684}},
        rows={"dev": 408},
        training={"seed": 1, "steps": 1_150, "tokens": 200_000},
        chosen={"optimizer.learning_rate": 1e-4},
    )
    folder = tuned(tmp_path / "m", said, tiny_vocabulary)
    assert fields(folder) == {
        "language": ["en"],
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["bert", "bertstream"],
        "base_model": "google/bert_uncased_L-2_H-128_A-2",
        "datasets": ["nyu-mll/glue"],
        "model-index": [
            {
                "name": "mrpc-seed1-abc",
                "results": [
                    {
                        "task": {"type": "text-classification"},
                        "dataset": {
                            "type": "nyu-mll/glue",
                            "config": "mrpc",
                            "name": "mrpc dev, development set",
                            "split": "validation",
                        },
                        "metrics": [
                            {"type": "accuracy", "value": 0.75, "name": "dev accuracy"},
                            {"type": "f1", "value": 0.8125, "name": "dev f1"},
                        ],
                    }
                ],
            }
        ],
    }
    card = (folder / "README.md").read_text()
    assert (
        "| dev accuracy | 0.750 | 0.684 |" in card
        and "| dev f1 | 0.812 | – |" in card
        and "| test accuracy | 0.500 | – |" in card
    )
    assert (
        "Dev is a development set, not a test set; the settings were chosen by it." in card
        and "| steps | 1,150 |" in card
    )
    hub = pytest.importorskip("huggingface_hub")
    (accuracy, _) = hub.ModelCard(card, ignore_metadata_errors=False).data.eval_results
    assert (accuracy.dataset_split, accuracy.metric_value) == ("validation", 0.75)


def test_what_is_not_known_is_left_out_and_no_folder_is_named(tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    said = about("regression", checkpoint="/home/me/runs/mine/export", scores={"train": {"pearson": 0.5}})
    folder = tuned(tmp_path / "m", said, tiny_vocabulary)
    assert sorted(fields(folder)) == ["library_name", "pipeline_tag", "tags"]
    card = (folder / "README.md").read_text()
    assert "/home/me" not in card and "from mine/export;" in card
    assert "The scores on train say little: the model was trained on these rows." in card
    assert figures({}) == "None are recorded."


def test_every_known_data_set_is_one_of_a_known_task() -> None:
    assert set(DATASETS) <= set(known.TASKS)


def test_vectors_of_sentence_transformers_are_those_of_the_api(
    pretrained: Path, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    library = pytest.importorskip(SENTENCES)
    mean = tuned(tmp_path / "m", about("classification", pooling="mean"), tiny_vocabulary)
    for folder in (pretrained, mean):
        found = library.SentenceTransformer(str(folder), device="cpu")
        np.testing.assert_allclose(found.encode(TEXTS), api.load(str(folder)).embed(TEXTS), rtol=0, atol=1e-6)


def test_a_model_with_adapters_is_not_called_by_transformers(tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    module = OBJECTIVES["classification"](
        MODEL, tiny_vocabulary.size, 2, torch.Generator().manual_seed(5), "mean", None
    )
    add_adapter(module, Bottleneck(width=4), torch.Generator().manual_seed(2))
    said = about("classification", pooling="mean")
    beside = tuned_files(said, MODEL, plain=False)
    save_tuned(str(tmp_path / "m"), module, said, MODEL, tiny_vocabulary, Bottleneck(width=4), beside)
    assert not (tmp_path / "m" / "modules.json").exists() and len(examples(tmp_path / "m")) == 1


def test_a_fine_tuned_model_goes_out_with_a_license_and_without_folders(
    tiny_vocabulary: Vocabulary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = about("classification", pooling="mean", checkpoint="/home/me/runs/mine/export", trial="mine-seed0-abc")
    folder, target = (
        tuned(tmp_path / "trial" / "model", said, tiny_vocabulary),
        tmp_path / "trial" / "exports" / "huggingface",
    )
    notes = tmp_path / "notes.md"
    notes.write_text("By me, for **letters**.")
    assert main([str(folder), "--license", "MIT", "--language", "en", "--notes", str(notes)]) == 0
    assert "\n\nBy me, for **letters**.\n\n## Use\n" in (target / "README.md").read_text("utf-8")
    assert capsys.readouterr().out == f"huggingface: {target}; checked: read back from its files\n"
    assert (fields(target)["license"], fields(target)["language"]) == ("mit", ["en"]) and storage.damage(
        str(target)
    ) is None
    assert "/home/me" not in (target / "task.json").read_text() and (target / "modules.json").exists()
    assert api.load(str(target)).predict(TEXTS[:2]) == api.load(str(folder)).predict(TEXTS[:2])
    assert main([str(folder), "--license", "MIT"]) == 2
    assert (
        capsys.readouterr().err
        == f"error: {target} holds an export of {folder}: give --replace, or choose another --folder\n"
    )
    assert main([str(folder), "--kinds", "onnx"]) == 2
    said = "error: kinds (onnx) are for runs: a fine-tuned model is exported as huggingface only\n"
    assert capsys.readouterr().err == said
    assert main([str(folder), "--step", "2"]) == 2
    said = "error: step (2) is for runs: a fine-tuned model has a single state, so leave step out\n"
    assert capsys.readouterr().err == said
