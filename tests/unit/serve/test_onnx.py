"""A served model whose encoder runs in onnxruntime answers as it does in torch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.config.placement import EmbedPlacement
from pipeline.config.serve import Serve
from pipeline.config.task_kind import Kind
from pipeline.errors import CheckpointError, ConfigError
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.chain import add_chain
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.serve import onnx_encoder
from pipeline.serve.model import describe_on_cpu, load
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from tests.conftest import tiers, tiny_preset

for package in ("transformers", "onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

MODEL = Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32, initializer_deviation=0.3)
TEXTS = ["kar lost kand", "mir", "nel ta sup kar lost mir kand"]


def test_vectors_and_words_are_those_of_torch(tiny_run: Path) -> None:
    asked = Serve(checkpoint=str(tiny_run), onnx=True)
    ours, theirs = load(replace(asked, onnx=False)), load(asked)
    assert "forward" in vars(theirs.loaded.encoder) and "forward" not in vars(ours.loaded.encoder)
    for vector, expected in zip(theirs.answer("embed", TEXTS), ours.answer("embed", TEXTS), strict=True):
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    blanks = ["kar [MASK] kand", "[MASK] mir [MASK]"]
    words, expected = theirs.answer("fill", blanks), ours.answer("fill", blanks)
    assert [[best[0]["token"] for best in text] for text in words] == [
        [best[0]["token"] for best in text] for text in expected
    ]
    assert describe_on_cpu(asked).precision == "float32"


@tiers(
    "kind, labels, use",
    first=[("classification", ("no", "yes"), "predict")],
    second=[("ranking", (), "rerank"), ("tags", ("O", "B-PER", "I-PER"), "tags"), ("spans", (), "answers")],
)
def test_fine_tuned_models_answer_as_in_torch(
    kind: Kind, labels: tuple[str, ...], use, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    task = Task(name="made-up", kind=kind, labels=labels, metrics=("f1",), paired=kind == "ranking")
    module = OBJECTIVES[kind](MODEL, tiny_vocabulary.size, len(labels), torch.Generator().manual_seed(5), "cls", None)
    about = About(
        task=task,
        cutting=Truncation(maximum_length=16, stride=4, question_length=4),
        pooling="cls",
        thresholds={},
        lineage={},
    )
    save_tuned(folder := str(tmp_path / kind), module, about, MODEL, tiny_vocabulary)
    rows = list(zip(TEXTS, TEXTS[1:])) if kind in ("ranking", "spans") else TEXTS
    ours, theirs = (load(Serve(checkpoint=folder, onnx=onnx)).answer(use, rows) for onnx in (False, True))
    if use in ("predict", "rerank"):
        np.testing.assert_allclose(np.array(theirs), np.array(ours), atol=1e-5)
    else:
        name = "entity" if use == "tags" else "answer"
        assert [[one[name] for one in row] for row in theirs] == [[one[name] for one in row] for row in ours]


@pytest.mark.second
def test_a_crf_answers_with_the_best_sequence_as_in_torch(tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    """The best tag of each word alone would be another answer."""
    task = Task(name="made-up", kind="tags", labels=("O", "B-PER", "I-PER"), metrics=("f1",))
    module = OBJECTIVES["tags"](MODEL, tiny_vocabulary.size, 3, torch.Generator().manual_seed(5), "cls", None).eval()
    about = About(task=task, cutting=Truncation(maximum_length=16, stride=4), pooling="cls", thresholds={}, lineage={})
    save_tuned(plain := str(tmp_path / "plain"), module, about, MODEL, tiny_vocabulary)
    add_chain(module, task)
    with torch.no_grad():
        module.tag_chain.following.normal_(std=2, generator=torch.Generator().manual_seed(1))
    save_tuned(chained := str(tmp_path / "crf"), module, replace(about, crf=True), MODEL, tiny_vocabulary)
    theirs, ours, alone = (
        load(Serve(checkpoint=folder, onnx=onnx)).answer("tags", TEXTS)
        for folder, onnx in ((chained, True), (chained, False), (plain, True))
    )
    assert tags_of(theirs) == tags_of(ours) != tags_of(alone)
    scores = [[word["score"] for text in answers for word in text] for answers in (theirs, ours)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def tags_of(answers: list[list[dict[str, Any]]]) -> list[list[str]]:
    return [[word["entity"] for word in text] for text in answers]


def test_other_states_are_refused(tiny_run: Path) -> None:
    loaded = load(Serve(checkpoint=str(tiny_run))).loaded
    with torch.no_grad():
        loaded.encoder.layers[0].attention.output.weight[0] += 0.5
    with pytest.raises(CheckpointError, match="onnxruntime's states differ from ours by .*: leave onnx out"):
        onnx_encoder.use_onnx(loaded)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpus": 1.0}, r"onnx \(True\) runs on CPUs, but gpus is 1.0"),
        ({"placement": EmbedPlacement(precision="int8")}, r"onnx \(True\) computes in float32, but .* is int8"),
    ],
)
def test_settings_that_onnx_does_not_work_with(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Serve(checkpoint="c", onnx=True, **settings)


def test_families_without_graphs_are_refused(tiny_run: Path) -> None:
    loaded = load(Serve(checkpoint=str(tiny_run))).loaded
    for family, name in (("longformer", "Longformer"), ("bigbird", "BigBird")):
        with pytest.raises(ConfigError, match=rf"onnx \(True\) is not for {name}, for which transformers has no graph"):
            onnx_encoder.require_onnx_encoder(replace(loaded, settings=tiny_preset(family).model))
