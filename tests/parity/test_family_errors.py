"""Bad input about families, each in one line and with exit code 2."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.parity.families import ROWS

pretrain: Callable[[list[str]], int] = runpy.run_path(str(Path(__file__).parents[2] / "jobs" / "pretrain.py"))["main"]


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str], output: Path) -> str:
    """The one line of error of a run that is refused."""
    capsys.readouterr()
    assert pretrain([*arguments, "--output", str(output)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert not output.exists() or not list(output.glob("runs/*"))
    return line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["roberta-tiny", "--model.segments", "2"], "model.segments (2) must be 1 for model.family roberta"),
        (["bert-tiny", "--model.segments", "1"], "model.segments (1) must be at least 2 for model.family bert"),
        (
            ["bert-tiny", "--model.embedding-width", "64"],
            "model.embedding_width (64) must be model.width (128) for model.family bert",
        ),
        (
            ["bert-tiny", "objective:replaced"],
            "objective (replaced) needs model.family electra or deberta-v2, which have a generator, but model.family "
            "is bert: choose a preset electra-* or deberta-v3-*",
        ),
        (
            ["bert-tiny", "objective:masked", "--objective.decoder", "enhanced"],
            "objective.decoder (enhanced) needs model.family deberta or deberta-v2, but model.family is bert: leave "
            "objective.decoder out",
        ),
        (
            ["bert-tiny", "model.attention:bucketed-attention"],
            "model.attention (bucketed-attention) needs model.family deberta-v2, but model.family is bert",
        ),
        (
            ["deberta-v3-tiny", "--model.maximum-positions", "64"],
            "model.maximum_positions (64) must be above model.attention.buckets (256) / 2 + 1: lower the buckets",
        ),
        (
            ["deberta-tiny", "model.attention:full-attention"],
            "model.attention (full-attention) must be disentangled-attention for model.family deberta: only "
            "model.family bert may have other parts",
        ),
        (
            ["electra-tiny", "objective:replaced", "--objective.generator-share", "1.5"],
            "objective.generator_share (1.5) must be above 0 and at most 1: with a generator wider than the "
            "discriminator, replaced tokens are too hard to detect (Clark et al. 2020, figure 3)",
        ),
        (
            ["electra-base", "objective:replaced", "--objective.generator-share", "0.4"],
            "objective.generator_share (0.4) gives a generator of width 307 with 5 heads, but the width must be a "
            "multiple of the heads: model.width is 768, model.heads 12; choose another share",
        ),
        (
            ["roberta-tiny", "sampling.pairs:next-sentence"],
            "sampling.pairs (NextSentence) makes pairs for a head that roberta does not have: choose "
            "sampling.pairs:full-sentences or sampling.pairs:single-segment",
        ),
        (
            ["electra-tiny", "sampling.pairs:sentence-order"],
            "sampling.pairs (SentenceOrder) makes pairs for a head that objective replaced does not have: choose "
            "sampling.pairs:full-sentences or sampling.pairs:single-segment",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert refusal(arguments, capsys, tmp_path / "out") == f"error: {said}"


def set_in_config(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def drop_tensors(folder: Path, *beginnings: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(beginnings)}
    save_file(kept, folder / "model.safetensors")


def rename_token(folder: Path, old: str, new: str) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text((folder / name).read_text().replace(json.dumps(old), json.dumps(new)))


NO_MASK = "tokenizer.json has no {} among its {} entries: a vocabulary needs "


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        (
            "roberta",
            lambda folder: set_in_config(folder, model_type="xlnet"),
            "config.json: model_type is 'xlnet', but only 'bert', 'roberta', 'electra', 'distilbert', 'albert', "
            "'xlm-roberta', 'modernbert', 'deberta', 'deberta-v2', 'longformer', 'bigbird' can be loaded",
        ),
        (
            "roberta",
            lambda folder: set_in_config(folder, architectures=["BertForMaskedLM"]),
            "config.json: architectures is 'BertForMaskedLM', but model_type 'roberta' needs a class of RoBERTa",
        ),
        (
            "roberta",
            lambda folder: set_in_config(folder, type_vocab_size=2),
            "model.segments (2) must be 1 for model.family roberta",
        ),
        (
            "roberta",
            lambda folder: set_in_config(folder, max_position_embeddings=40),
            "tensor roberta.embeddings.position_embeddings.weight has shape [42, 32], but the model's settings give "
            "[40, 32]",
        ),
        (
            "roberta",
            lambda folder: set_in_config(folder, pad_token_id=0),
            "config.json: pad_token_id is 0 (positions start after it), but <pad> is entry ",
        ),
        (
            "electra",
            lambda folder: set_in_config(folder, embedding_size=32),
            "tensor electra.embeddings.word_embeddings.weight has shape [65, 24], but the model's settings give [65, "
            "32]",
        ),
        (
            "electra",
            lambda folder: set_in_config(folder, num_hidden_layers=1),
            " are unexpected: an ELECTRA with the layers and heads of config.json has no tensor of that name",
        ),
        (
            "electra",
            lambda folder: drop_tensors(folder, "electra.embeddings_project."),
            "tensors electra.embeddings_project.weight, electra.embeddings_project.bias are missing: only whole "
            "heads may be missing (generator_predictions, generator_lm_head, discriminator_predictions)",
        ),
        ("roberta", lambda folder: rename_token(folder, "<mask>", "<mosk>"), NO_MASK.format("[MASK] or <mask>", 300)),
        ("electra", lambda folder: rename_token(folder, "[MASK]", "[MOSK]"), NO_MASK.format("[MASK]", 65)),
    ],
)
def test_published_models_that_do_not_fit_are_refused(
    name: str,
    spoil: Callable[[Path], None],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    row = ROWS[name]
    folder = row.save(row.module(), tmp_path)
    (folder / "manifest.json").unlink()  # as others publish
    spoil(folder)
    preset = ["continue", "objective:replaced"] if name == "electra" else ["continue"]
    line = refusal([*preset, "--init", str(folder)], capsys, tmp_path / "out")
    assert line.startswith("error: ") and said in line and str(folder) in line
