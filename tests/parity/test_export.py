"""An exported folder as transformers sees it."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.config.jobs import Pretrain
from pipeline.config.training import AdamW
from pipeline.errors import CheckpointError
from pipeline.export.card import Lineage
from pipeline.export.huggingface import check, export, largest_difference, published_logits
from pipeline.export.probe import TOLERANCE
from pipeline.export.trained import load_trained
from pipeline.files import storage
from pipeline.optim.build import build_optimizer
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.checkpoint import State, save

transformers = pytest.importorskip("transformers")

SENTENCE_FILES = ["1_Pooling/config.json", "modules.json", "sentence_bert_config.json"]
FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
TEXTS = ["Kar kand, kap!", "lost LOST lol", "", "what the model has never seen: 你好 é", "[MASK] is no word"]


@pytest.fixture
def checkpoint(training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path) -> str:
    """Save a model whose weights are far from their initial values, so that a wrong weight changes the logits."""
    module = training.module(tiny_config)
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.empty_like(parameter).normal_(std=0.1, generator=generator)
    return save(
        str(tmp_path / "run"),
        State(step=7),
        module,
        build_optimizer(AdamW(), module),
        tiny_vocabulary,
    )


@pytest.fixture
def exported(checkpoint: str, tiny_lineage: Lineage, tmp_path: Path) -> Path:
    assert (
        export(checkpoint, str(tmp_path / "export"), tiny_lineage)
        == "checked: logits equal transformers' within 1e-05 of the largest"
    )
    return tmp_path / "export"


def test_the_folder_holds_the_published_files_and_says_where_they_are_from(exported: Path, checkpoint: str) -> None:
    wanted = sorted([*FILES, *SENTENCE_FILES, "README.md"])
    files = [path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()]
    assert sorted(files) == sorted([*wanted, "manifest.json"])
    assert storage.damage(str(exported)) is None
    manifest = json.loads((exported / "manifest.json").read_text())
    assert manifest["checkpoint"] == checkpoint and sorted(manifest["files"]) == wanted


def test_nothing_is_missing_or_unexpected(exported: Path) -> None:
    for kind in (transformers.AutoModelForPreTraining, transformers.AutoModelForMaskedLM, transformers.AutoModel):
        _, info = kind.from_pretrained(exported, output_loading_info=True)
        assert not info["missing_keys"] and not info["mismatched_keys"]
    _, info = transformers.AutoModelForPreTraining.from_pretrained(exported, output_loading_info=True)
    assert not info["unexpected_keys"]


def test_it_says_what_published_ones_say_and_both_heads_are_found(exported: Path) -> None:
    assert json.loads((exported / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    both = transformers.AutoModelForPreTraining.from_pretrained(exported)
    masked = transformers.AutoModelForMaskedLM.from_pretrained(exported)
    assert type(both).__name__ == "BertForPreTraining" and type(masked).__name__ == "BertForMaskedLM"
    written = load_file(exported / "model.safetensors")
    for name in ("bert.pooler.dense.weight", "cls.seq_relationship.weight", "cls.predictions.bias"):
        assert torch.equal(both.state_dict()[name], written[name])
    shared = [name for name in masked.state_dict() if name in both.state_dict()]
    assert len(shared) >= 30 and all(torch.equal(masked.state_dict()[name], both.state_dict()[name]) for name in shared)
    ((answer, *_),) = [transformers.pipeline("fill-mask", model=str(exported))("kar [MASK]")]
    assert 0 < answer["score"] < 1


def test_logits_are_equal(exported: Path, checkpoint: str) -> None:
    assert (
        check(exported, load_trained(checkpoint)) == "checked: logits equal transformers' within 1e-05 of the largest"
    )
    trained = load_trained(checkpoint)
    assert 0 <= largest_difference(published_logits(exported, trained), trained) <= TOLERANCE == 1e-5


def test_the_tokenizer_gives_our_ids(exported: Path, tiny_vocabulary: Vocabulary) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    wordpiece, (cls, sep) = CachedTokenizer(tiny_vocabulary), (tiny_vocabulary.cls_id, tiny_vocabulary.sep_id)
    for text in TEXTS[:-1]:
        assert tokenizer(text)["input_ids"] == [cls, *wordpiece.encode([text])[0].tolist(), sep], text
    pair = tokenizer(TEXTS[0], TEXTS[1])
    (a, b), (one, two) = TEXTS[:2], (wordpiece.encode([text])[0].tolist() for text in TEXTS[:2])
    assert pair["input_ids"] == [cls, *one, sep, *two, sep] == tokenizer([[a, b]])["input_ids"][0]
    assert pair["token_type_ids"] == [0] * (len(one) + 2) + [1] * (len(two) + 1)
    # People who use the model write [MASK] and mean the mask; in a corpus it is text.
    assert (
        tokenizer(TEXTS[-1])["input_ids"][1] == tiny_vocabulary.mask_id
        and tiny_vocabulary.mask_id not in wordpiece.encode([TEXTS[-1]])[0]
    )


def test_unsaved_differences_in_the_architecture_are_found(exported: Path, checkpoint: str) -> None:
    # transformers goes by config.json, we by our settings: where the two part, the logits do.
    config = json.loads((exported / "config.json").read_text())
    (exported / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    with pytest.raises(CheckpointError) as refused:
        check(exported, load_trained(checkpoint))
    assert str(refused.value).startswith(f"export {exported}: transformers logits differ from the checkpoint's by ")
    assert str(refused.value).endswith(", more than 1e-05")


@pytest.mark.parametrize(
    "name",
    [
        "cls.predictions.bias",
        "cls.seq_relationship.bias",
    ],
)
def test_a_weight_that_is_no_number_is_found(exported: Path, checkpoint: str, name: str) -> None:
    tensors = load_file(exported / "model.safetensors")
    tensors[name][1] = np.nan
    save_file(tensors, exported / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="logits differ from the checkpoint's by nan"):
        check(exported, load_trained(checkpoint))


def test_a_weight_that_is_not_the_checkpoints_is_found(exported: Path, checkpoint: str) -> None:
    tensors = load_file(exported / "model.safetensors")
    tensors["cls.predictions.bias"][3] += 1
    save_file(tensors, exported / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="logits differ from the checkpoint's by 0[.]"):
        check(exported, load_trained(checkpoint))
    assert storage.damage(str(exported)) == "model.safetensors does not match its SHA-256"


def test_a_damaged_checkpoint_publishes_nothing(checkpoint: str, tiny_lineage: Lineage, tmp_path: Path) -> None:
    weights = bytearray(Path(checkpoint, "model.safetensors").read_bytes())
    weights[-1] ^= 1
    Path(checkpoint, "model.safetensors").write_bytes(weights)
    with pytest.raises(CheckpointError) as refused:
        export(checkpoint, str(tmp_path / "refused"), tiny_lineage)
    assert str(refused.value) == f"checkpoint {checkpoint} is damaged (model.safetensors does not match its SHA-256)"
    assert not (tmp_path / "refused").exists()


def test_without_transformers_it_says_so(
    checkpoint: str, tiny_lineage: Lineage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "transformers" else found(name, *rest)
    )
    assert (
        export(checkpoint, str(tmp_path / "export"), tiny_lineage)
        == "checked: read again, its logits are equal within 1e-05 of the largest; to compare them with transformers': "
        "pip install 'bertstream[export]'"
    )
    assert {*FILES, "README.md", "manifest.json", "modules.json"} <= {
        path.name for path in (tmp_path / "export").iterdir()
    }
