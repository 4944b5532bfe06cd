"""Fine-tuning RoBERTa and ELECTRA in this process: what it writes, transformers and the jobs answer alike."""

from pathlib import Path

import numpy as np
import pytest
import torch

from jobs.score import main as score
from pipeline import api
from pipeline.config.cutting import Truncation
from pipeline.config.predict import Compare
from pipeline.export.tuned_card import tuned_files
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.finetune.trials import build
from pipeline.grid.comparison import sides
from pipeline.grid.inputs import read_inputs
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.tasks.task import Task
from tests.conftest import tiers
from tests.parity.families import FAMILIES, ROWS, assert_close, task_batch

transformers = pytest.importorskip("transformers")

LABELS = ("no", "yes", "maybe")
AUTOMATIC = {
    "tags": "AutoModelForTokenClassification",
    "spans": "AutoModelForQuestionAnswering",
    "choices": "AutoModelForMultipleChoice",
}
OTHERS = [name for name in FAMILIES if name != "bert"]
"""BERT's are those of tests/unit/fine_tuned/test_tuned.py."""
WITH_HEADS = [kind for kind in OBJECTIVES if kind != "similarity"]
"""Kinds whose models have a head, which transformers has too; test_similarity_task holds the other kind."""


# Heads of all kinds and families are compared by test_families, without files.
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "classification") for name in OTHERS),
        *(("electra", kind) for kind in WITH_HEADS if kind != "classification"),
        ("longformer", "choices"),
        ("bigbird", "tags"),
    ],
)
def test_what_we_saved_answers_the_same_there(name: str, kind: str, tmp_path: Path) -> None:
    row, module = ROWS[name], ROWS[name].task(kind).eval()
    labels = LABELS if kind in ("classification", "multilabel", "tags") else ()
    about = About(
        task=Task(name="a", kind=kind, labels=labels, metrics=("accuracy",)),
        cutting=Truncation(maximum_length=16, stride=4),
        pooling="cls",
        thresholds={},
        lineage={},
    )
    save_tuned(str(tmp_path / "m"), module, about, row.settings, row.vocabulary())
    found = open_tuned(str(tmp_path / "m"))
    assert found.vocabulary == row.vocabulary() and found.model == row.settings and found.about == about
    automatic = getattr(transformers, AUTOMATIC.get(kind, "AutoModelForSequenceClassification"))
    peer, info = automatic.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert set(info["missing_keys"]) == (row.unread if kind == "tags" else set())
    assert not info["unexpected_keys"] and not info["mismatched_keys"]
    batch = task_batch(row, row.vocabulary().size, kind)
    with torch.no_grad():
        ours = module.logits(batch)
        assert torch.equal(found.module.logits(batch), ours)
        for number, (start, end) in enumerate(zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist())):
            inputs = {"input_ids": batch.ids_T[None, start:end], "token_type_ids": batch.segments_T[None, start:end]}
            if row.settings.segments < 2:
                inputs.pop("token_type_ids")
            if kind == "choices":  # a row with this choice alone
                inputs = {name: tensor[None] for name, tensor in inputs.items()}
            theirs = peer.eval()(**inputs)
            logits = torch.stack((theirs.start_logits, theirs.end_logits), -1) if kind == "spans" else theirs.logits
            own = ours.flatten()[number, None] if kind == "choices" else ours[number]
            assert_close(ours[start:end] if module.per_token else own, logits[0], floor=1.0)
    card = tuned_files(about, row.settings)["README.md"]
    encoder = {"roberta": "A RoBERTa encoder with 2 layers", "electra": "An ELECTRA encoder with 2 layers"}
    encoder["distilbert"] = "A DistilBERT encoder with 2 layers"
    encoder |= {"deberta": "A DeBERTa encoder with 2 layers", "deberta-v2": "A DeBERTa v3 encoder with 2 layers"}
    encoder["longformer"] = "A Longformer encoder with 2 layers"
    encoder["modernbert"] = "A ModernBERT encoder with 4 layers"
    encoder |= {"albert": "An ALBERT encoder with 3 layers", "bigbird": "A BigBird encoder with 2 layers"}
    assert f"\n- {name}\n" in card and encoder[name] in card


@pytest.mark.parametrize("name", ["bert", "electra"])
def test_both_sides_of_a_comparison_start_from_its_encoder(name: str, tmp_path: Path) -> None:
    row, lines = ROWS[name], []
    modules = [row.module(seed) for seed in (5, 6)]
    checkpoints = tuple(str(row.save(module, tmp_path / str(number))) for number, module in enumerate(modules))
    (tmp_path / "a.csv").write_text("text,label\n" + "the house,yes\na house,no\n" * 10)
    (tmp_path / "dev.csv").write_text("text,label\nthe house?,yes\na house?,no\n")
    compared = Compare(
        checkpoint=checkpoints,
        train=str(tmp_path / "a.csv"),
        dev=str(tmp_path / "dev.csv"),
        output=str(tmp_path / "out"),
    )
    for side, module in zip(sides(compared), modules):
        inputs = read_inputs(side, lines.append)
        (problem,) = inputs.problems.values()
        found, expected = (
            part.encoder.state_dict() for part in (build(inputs.config, problem, inputs.initial, seed=1), module)
        )
        assert found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in expected)
    size = row.vocabulary().size
    said = [f"checkpoint: weights of {checkpoint}, {size} word embeddings" for checkpoint in checkpoints]
    assert [line for line in lines if " word embeddings" in line] == said


WORDS = ("kar", "lost")


@tiers("name", first=("bert",), second=FAMILIES)
def test_a_fine_tuned_model_predicts_and_is_scored(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ROWS[name]
    pretrained = row.save(row.module(), tmp_path / "run")
    texts = [f"{word} {other}" for word in WORDS for other in "abcdef"]
    labels = [text.split()[0] for text in texts]
    tuned = api.load(str(pretrained)).fit(texts * 4, labels * 4, epochs=6, rows_per_step=8, learning_rate=3e-3)
    assert tuned.scores["train"]["accuracy"] == 1.0
    tuned.save(str(tmp_path / "model"))
    again = api.load(str(tmp_path / "model"))
    answers = again.predict(texts)
    assert [answer["label"] for answer in answers] == labels and answers == tuned.predict(texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    peer = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        shares = peer(**tokenizer(texts, padding=True, return_tensors="pt")).logits.softmax(-1).numpy()
    found = [list(answer["probabilities"].values()) for answer in answers]
    np.testing.assert_allclose(found, shares, rtol=0, atol=1e-5)
    lines = "".join(f"{text},{label}\n" for text, label in zip(texts, labels))
    (tmp_path / "a.csv").write_text(f"text,label\n{lines}")
    assert score(["--checkpoint", str(tmp_path / "model"), "--input", str(tmp_path / "a.csv")]) == 0
    assert "accuracy" in capsys.readouterr().out
