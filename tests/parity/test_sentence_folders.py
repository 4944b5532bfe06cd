"""Vectors of folders of sentence-transformers, as SentenceTransformer(folder).encode computes them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline import api
from pipeline.adapt.start import read_start
from pipeline.errors import ConfigError

transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

TEXTS = ["The River Bank is THE bank", "the river bank", "A COVID-19 b [E1]", ""]
WORDS = ("Bank", "bank", "River", "river", "THE", "the", "The", "is", "##s", "A", "a", "B", "b", "covid", "-", "19")
ENTRIES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##o", "c", "[", "E1", "e1", "]")


@pytest.fixture(scope="module")
def cased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cased BERT with added tokens, pooled by the mean and scaled to length 1."""
    folder = tmp_path_factory.mktemp("cased")
    (folder / "vocab.txt").write_text("\n".join(ENTRIES) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=False)
    tokenizer.add_tokens(["COVID-19"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["[E1]"]})
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, initializer_range=0.5,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True})
    write(folder / "sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False})
    steps(folder, "")
    return folder


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))


def steps(folder: Path, encoder: str) -> None:
    kinds = (("Transformer", encoder), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    package = "sentence_transformers.models."
    write(
        folder / "modules.json",
        [{"idx": i, "name": str(i), "path": path, "type": package + kind} for i, (kind, path) in enumerate(kinds)],
    )


def assert_equal_vectors(folder: Path) -> np.ndarray:
    """Compare with sentence-transformers, and return our vectors."""
    ours = api.load(str(folder), "cpu").embed(TEXTS)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    return ours


def test_added_tokens_and_a_missing_folder_of_normalize(cased: Path) -> None:
    assert not (cased / "2_Normalize").exists()
    vectors = assert_equal_vectors(cased)
    assert api.load(str(cased), "cpu").tokenize(TEXTS[2]).pieces == ("[CLS]", "A", "COVID-19", "b", "[E1]", "[SEP]")
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01


def test_do_lower_case_lower_cases_before_the_tokenizer(cased: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(cased, tmp_path / "lower")
    write(folder / "sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": True})
    assert_equal_vectors(folder)
    assert api.load(str(folder), "cpu").tokenize("THE Bank").pieces == ("[CLS]", "the", "bank", "[SEP]")
    with pytest.raises(ConfigError, match=r"^init \(.*\) has do_lower_case true before a cased vocabulary, "):
        read_start(str(folder))  # the adapted encoder would read capitals
    assert read_start(str(cased)).reads == 32


def test_the_encoder_is_in_a_subfolder_in_old_folders(cased: Path, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    shutil.copytree(cased, folder / "0_Transformer", ignore=shutil.ignore_patterns("1_Pooling", "modules.json"))
    shutil.copytree(cased / "1_Pooling", folder / "1_Pooling")
    (folder / "0_Transformer/sentence_bert_config.json").rename(folder / "0_Transformer/sentence_roberta_config.json")
    write(folder / "0_Transformer/sentence_roberta_config.json", {"max_seq_length": 5, "do_lower_case": False})
    write(folder / "config.json", {"__version__": "0.3.9"})
    steps(folder, "0_Transformer")
    assert_equal_vectors(folder)
    assert api.load(str(folder), "cpu").embedding_length == 5
