"""Blocks of tokens for transformers' Trainer."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.bench.train import train_on_tokens
from pipeline.config.placement import Placement
from pipeline.corpus import token_file
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.token_file_saving import save_tokens
from pipeline.presets.modernbert import shape
from pipeline.presets.table import PRESETS
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from tests.benchmarks.run_mlm import blocks, heldout_bits, model
from tests.benchmarks.settings import RunMlm
from tests.documents import ROOT


def test_blocks_are_the_texts_between_special_tokens(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    save_tokens(str(tmp_path / "tokens.arrow"), tiny_corpus, CachedTokenizer(tiny_vocabulary))
    tokens = token_file.read(str(tmp_path / "tokens.arrow"))
    flat = blocks(tokens, 16).reshape(-1)
    special = np.isin(flat, (tiny_vocabulary.cls_id, tiny_vocabulary.sep_id))
    texts = np.concatenate([tokens.encoded_window(window).tokens for window in tokens.train])
    documents = sum(window.num_rows for window in tokens.train)
    assert 0 <= len(texts) + 2 * documents - len(flat) < 16
    assert np.array_equal(flat[~special], texts[: (~special).sum()])
    assert flat[0] == tiny_vocabulary.cls_id
    ends = np.flatnonzero(flat == tiny_vocabulary.sep_id)
    assert np.all(flat[ends[:-1] + 1] == tiny_vocabulary.cls_id) and documents - len(ends) in (0, 1)


def test_the_bits_per_byte_are_those_of_a_run_on_the_same_file(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    location = str(tmp_path / "tokens.arrow")
    save_tokens(location, tiny_corpus, CachedTokenizer(tiny_vocabulary))
    config = replace(
        PRESETS["quickstart"],
        steps=2,
        word_embeddings="random",
        model=shape(1, 64, 32),
        placement=Placement(device="cpu", precision="float32", threads=1),
        output=str(tmp_path),
        name="run",
    )
    measured = train_on_tokens(config, location, lambda line: None)
    bits = heldout_bits(measured["checkpoint"], token_file.read(location))
    assert bits == pytest.approx(measured["heldout_after"]["heldout/bits_per_byte"], rel=1e-6) and bits > 0


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_model_of_transformers_has_bits_per_byte(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path, family: Any
) -> None:
    location, folder = str(tmp_path / "tokens.arrow"), tmp_path / "model"
    save_tokens(location, tiny_corpus, CachedTokenizer(tiny_vocabulary))
    config = RunMlm(token_file=location, output=str(folder), minutes=1, family=family, layers=1, width=64)
    special = {f"{name}_token_id": getattr(tiny_vocabulary, f"{name}_id") for name in ("pad", "cls", "sep")}
    model(config, tiny_vocabulary.size, special).save_pretrained(folder)
    save_vocabulary(tiny_vocabulary, folder, config.length)
    assert heldout_bits(str(folder), token_file.read(location)) > 1


def test_a_machine_without_ray_and_mlflow_can_run_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules |= dict.fromkeys(('ray', 'mlflow'))\n"
        "from tests.benchmarks.__main__ import main\n"
        f"sys.exit(main('run-mlm --token-file {tmp_path}/none --output {tmp_path}/out --minutes 1'.split()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    # accelerate may be missing, as it is in the extra `bench`
    assert f"{tmp_path}/none is not a file" in done.stderr or "run-mlm needs transformers and accelerate" in done.stderr
