"""Families other than BERT, end to end: pretrain, export, fine-tune on an own file, answer it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.finetune import main as finetune
from jobs.predict import main as predict
from pipeline.config.data import Preparation
from pipeline.config.jobs import Pretrain
from pipeline.config.model_parts import BlockSparseAttention, BucketedAttention
from pipeline.config.placement import Placement
from pipeline.config.training import Batch, Checkpoints, Evaluation, Tracking
from pipeline.presets.table import PRESETS
from pipeline.workflows.pretrain import pretrain
from tests.answered import without_ray

pytestmark = [pytest.mark.second, pytest.mark.usefixtures("local_ray")]

STEPS = 12
COMPARED = {
    "deberta-tiny": "hidden states",
    "deberta-v3-tiny": "the model's hidden states and its generator's logits",
    "bigbird-tiny": "logits of texts of up to 14 tokens",
}
"""Preset -> outputs of an export that transformers has too, where they are not all logits."""

ATTENTION = {
    "deberta-v3-tiny": BucketedAttention(buckets=16),
    "bigbird-tiny": BlockSparseAttention(block_size=2, random_blocks=1),
}
"""Preset -> attention for rows of 32 tokens. BigBird's is full up to 14 tokens only."""


FAMILIES = {
    "roberta-tiny": ("RobertaForSequenceClassification", {"held-out MLM loss"}),
    "electra-tiny": ("ElectraForSequenceClassification", {"held-out MLM loss", "held-out replaced tokens"}),
    "albert-tiny": ("AlbertForSequenceClassification", {"held-out MLM loss", "held-out SOP accuracy"}),
    "deberta-tiny": ("DebertaForSequenceClassification", {"held-out MLM loss"}),
    "deberta-v3-tiny": ("DebertaV2ForSequenceClassification", {"held-out MLM loss", "held-out replaced tokens"}),
    "modernbert-tiny": ("ModernBertForSequenceClassification", {"held-out MLM loss"}),
    "longformer-tiny": ("LongformerForSequenceClassification", {"held-out MLM loss"}),
    "bigbird-tiny": ("BigBirdForSequenceClassification", {"held-out MLM loss"}),
    "xlm-roberta-tiny": ("XLMRobertaForSequenceClassification", {"held-out MLM loss"}),
}
"""Preset -> class of its classifiers in transformers, and figures in the card of an export."""


def tiny(preset: str, corpus: Path, output: Path) -> Pretrain:
    """A family's preset, with sizes of a training of seconds."""
    chosen = PRESETS[preset]
    parts = {"attention": ATTENTION[preset]} if preset in ATTENTION else {}
    return replace(
        chosen,
        corpus=(str(corpus),),
        output=str(output),
        name=preset,
        steps=STEPS,
        prepare=Preparation(window_characters=6_000, piece_characters=1_000, heldout_share=0.1, near_duplicates=None),
        vocabulary=replace(chosen.vocabulary, size=300),
        sampling=replace(chosen.sampling, maximum_length=32),
        model=replace(chosen.model, **parts, layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32),
        batch=Batch(rows_per_step=8, rows_per_slot=4),
        evaluation=Evaluation(every=STEPS, rows=16),
        checkpoint=Checkpoints(every=STEPS),
        tracking=Tracking(every=1),
        placement=Placement(precision="float32", compile="off", device="cpu", threads=1),
    )


@pytest.mark.parametrize(
    "preset", ["roberta-tiny", *(pytest.param(preset, marks=pytest.mark.long) for preset in list(FAMILIES)[1:])]
)
def test_a_family_is_pretrained_exported_fine_tuned_and_asked(
    preset: str, small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_ray(monkeypatch)
    (classifier, figures), lines = FAMILIES[preset], list[str]()
    summary = pretrain(tiny(preset, small_corpus, tmp_path), lines.append)
    assert summary["steps"] == STEPS
    compared = COMPARED.get(preset, "logits")
    assert summary["export_check"] == f"checked: {compared} equal transformers' within 1e-05 of the largest"
    written = json.loads(Path(summary["export"], "config.json").read_text())["model_type"]
    assert written == preset.removesuffix("-tiny").replace("v3", "v2").replace("bigbird", "big_bird")
    card = Path(summary["export"], "README.md").read_text()
    assert all(figure in card for figure in figures), card
    again = pretrain(tiny(preset, small_corpus, tmp_path), lines.append)
    assert again["heldout_after"] == summary["heldout_after"] and "is finished" in lines[-1]

    rows = [f'"{"kar mist" if row % 2 else "lond sur"} {"nest " * (row % 7)}{row}",{row % 2}' for row in range(40)]
    (tmp_path / "my.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    asked = f"--checkpoint {summary['export']} --train {tmp_path}/my.csv --output {tmp_path} --seeds 1"
    more = "--recipe.epochs 1 --cutting.maximum-length 16 --placement.threads 1 --trials.cpus 3"
    assert finetune([*asked.split(), *more.split()]) == 0, capsys.readouterr()
    (model,) = (tmp_path / "finetune").glob("my-seed0-*/model")
    assert json.loads((model / "config.json").read_text())["architectures"] == [classifier]
    answers = tmp_path / "answers.csv"
    assert predict(["--checkpoint", str(model), "--input", f"{tmp_path}/my.csv", "--output", str(answers)]) == 0
    assert len(answers.read_text().splitlines()) == 41
