"""Pseudo-log-likelihoods against a scorer that asks transformers for one masked sentence at a time."""

from pathlib import Path

import pytest
import torch

from pipeline.evaluation.minimal_pairs import scoring
from pipeline.evaluation.minimal_pairs.rows import encode
from pipeline.evaluation.minimal_pairs.scoring import PLL, WORD_L2R, pseudo_log_likelihoods
from pipeline.export.trained import load_trained
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.train.hardware import autocast_of
from tests.conftest import tiers
from tests.parity.families import ROWS

transformers = pytest.importorskip("transformers")

SENTENCES = ["The housing, the house.", "the house?", "a very long word - donaudampfschiff", "housing the housing"]
SENTENCES += ["A: the house?\nB: the housing."]
CPU = torch.device("cpu")


@torch.no_grad()
def score(folder: Path, model: torch.nn.Module, sentence: str, *, rest_of_word: bool) -> float:
    """Return the score of a sentence; `rest_of_word`: the later pieces of the word are masked too."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoding = tokenizer(sentence, return_tensors="pt")
    words, total = encoding.word_ids(0), 0.0
    for index, word in enumerate(words):
        if word is None:
            continue
        ids = encoding["input_ids"].clone()
        for other in range(index, len(words)):
            if other == index or rest_of_word and words[other] == word:
                ids[0, other] = tokenizer.mask_token_id
        output = model(**(encoding | {"input_ids": ids}))
        logits = output.prediction_logits if hasattr(output, "prediction_logits") else output.logits
        total += logits[0, index].log_softmax(0)[encoding["input_ids"][0, index]].item()
    return total


@tiers("name", first=("bert", "roberta", "albert"), second=("electra",))
def test_scores_equal_those_of_transformers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "TOKENS", 60)  # several batches
    row = ROWS[name]
    folder = row.save(row.module(), tmp_path / name)
    part, class_name = list(row.classes.items())[-1]
    model = getattr(transformers, class_name).from_pretrained(folder / part).eval()
    vocabulary = load_vocabulary(str(folder), None)
    scores = pseudo_log_likelihoods(
        load_trained(str(folder)).module,
        vocabulary,
        encode(SENTENCES, vocabulary, row.settings.maximum_positions, ""),
        device=CPU,
        autocast=autocast_of("float32", CPU),
    )
    for scoring_name, rest_of_word in ((PLL, False), (WORD_L2R, True)):
        expected = [score(folder, model, sentence, rest_of_word=rest_of_word) for sentence in SENTENCES]
        assert scores[scoring_name] == pytest.approx(expected, rel=1e-5)
    assert scores[PLL] != pytest.approx(scores[WORD_L2R], rel=1e-3)
