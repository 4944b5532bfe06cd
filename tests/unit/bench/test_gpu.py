from pathlib import Path

import pytest
import torch

from pipeline.bench import gpu
from pipeline.bench.cases import Case, automatic_rows
from pipeline.bench.gpu import _config_of_training, choice_beside_best, main
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.token_file_saving import save_tokens
from pipeline.presets.table import PRESETS
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.automatic import FreeMemory


@pytest.mark.long
def test_the_bench_on_a_cpu(
    tiny_corpus: Corpus,
    tiny_vocabulary: Vocabulary,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu, "REPETITIONS", 1)
    monkeypatch.setattr(gpu, "LEAST_SECONDS", 0.1)
    location = str(tmp_path / "tokens.arrow")
    save_tokens(location, tiny_corpus, CachedTokenizer(tiny_vocabulary))
    words = ["--sizes", "tiny", "--lengths", "16", "--modes", "eager", "--slots", "64", "512", "--train", "tiny"]
    assert main([*words, "--token-file", location, "--output", str(tmp_path), "--minutes", "0.2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line[:1].isdigit()][:2] == ["64", "512"]
    assert "bert-tiny, 16 tokens, 8 rows, eager" in lines
    assert any(line.startswith("aten::") for line in lines) and any("held-out MLM loss" in line for line in lines)


def test_the_chosen_slot_stands_beside_the_best() -> None:
    """The choice for bert-base on an H200, and on a GPU whose memory holds fewer rows."""
    case = Case(size="base", rows=1, length=128, lengths="full", attention_dropout=True)
    assert automatic_rows(case, FreeMemory(gpu="NVIDIA H200", bytes=141_000_000_000)) == 256
    assert automatic_rows(case, FreeMemory(gpu="a small one", bytes=8_000_000_000)) == 64
    assert choice_beside_best(32_768, 128, {4_096: 300e3, 32_768: 588e3, 131_072: 600e3}) == (
        "batch.rows_per_slot auto: 256 rows, 32,768 tokens: 588,000 tokens/s, 98.0% of the best (131,072 tokens: "
        "600,000 tokens/s)"
    )
    assert choice_beside_best(32_768, 128, {}).endswith("32,768 tokens, which was not measured")


def test_rows_of_any_length_and_slots_of_any_size_divide_into_slots() -> None:
    h200 = FreeMemory(gpu="NVIDIA H200", bytes=141_000_000_000)
    cases = [
        Case(size="base", rows=1, length=length, lengths="full", attention_dropout=True) for length in (100, 200, 2_048)
    ]
    assert [automatic_rows(case, h200) for case in cases] == [320, 160, 16]
    config = _config_of_training(PRESETS["bert-tiny"], 97, seconds=60, per_step=0.1)
    assert config.batch.rows_per_step == 96


def test_the_sizes_of_gpus_are_refused_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    with pytest.raises(SystemExit):
        main([])
    assert "this process sees no GPU" in capsys.readouterr().err
