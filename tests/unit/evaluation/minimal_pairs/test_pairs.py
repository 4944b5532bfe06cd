"""Pairs of sentences: which are close, and in which precision they are scored."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline.config.model import Model
from pipeline.evaluation.minimal_pairs import pairs as module_of_pairs
from pipeline.evaluation.minimal_pairs.pairs import close_sentences, encode_pairs, score_pairs
from pipeline.evaluation.minimal_pairs.paradigms import Paradigm
from pipeline.evaluation.minimal_pairs.scoring import PLL, WORD_L2R
from pipeline.objectives.masked import MaskedTokens
from pipeline.text.vocabulary import Vocabulary

CPU = torch.device("cpu")
FLOAT32, BFLOAT16 = (torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled) for enabled in (False, True))
VOCABULARY = Vocabulary(
    tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")),
    lowercase=True,
)
PARADIGMS = [
    Paradigm(name="x", phenomenon="order", good=("a b", "ab c d", "h g f"), bad=("b a", "d c ab", "f g h")),
    Paradigm(name="y", phenomenon="order", good=("a b", "bad"), bad=("fed", "head")),
]
PAIRS = encode_pairs(PARADIGMS, VOCABULARY, 16, "")


@pytest.fixture(scope="module")
def model() -> MaskedTokens:
    settings = Model(layers=2, width=16, heads=2, feed_forward=32, maximum_positions=16, initializer_deviation=0.5)
    generator = torch.Generator().manual_seed(0)
    return MaskedTokens(settings, VOCABULARY.size, generator, pairs=False).eval()


def test_each_sentence_is_encoded_once() -> None:
    assert list(PAIRS.texts) == ["a b", "ab c d", "h g f", "b a", "d c ab", "f g h", "bad", "fed", "head"]
    assert PAIRS.good.tolist() == [0, 1, 2, 0, 6] and PAIRS.bad.tolist() == [3, 4, 5, 7, 8]


def test_close_sentences_are_those_of_the_closest_pairs_of_each_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    first = np.array([-1.0, -2, -3, -1.05, -9, -3.2, -5, -9, -9])  # pair 0 differs by 0.05 nats
    second = np.array([-1.0, -2, -3, -9, -9, -9, -5, -9, -5.099])  # the last pair by 0.099
    assert close_sentences(PAIRS, {"one": first, "other": first}).tolist() == [0, 3]  # 5% of 5 pairs: one
    assert close_sentences(PAIRS, {"one": first, "other": second}).tolist() == [0, 3, 6, 8]
    monkeypatch.setattr(module_of_pairs, "CLOSEST", 0.4)
    assert close_sentences(PAIRS, {"one": first}).tolist() == [0, 2, 3, 5]  # pair 2 differs by 0.2


def test_close_pairs_have_their_scores_in_float32_and_others_in_bfloat16(
    model: MaskedTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = score_pairs(model, VOCABULARY, PAIRS, device=CPU, autocast=FLOAT32)
    rounded = score_pairs(model, VOCABULARY, PAIRS, device=CPU, autocast=BFLOAT16, again=False)
    assert all(np.abs(exact[name] - rounded[name]).max() > 1e-3 for name in (PLL, WORD_L2R)), "bfloat16 must round"
    monkeypatch.setattr(module_of_pairs, "CLOSEST", 0.4)
    close = close_sentences(PAIRS, rounded)
    assert 0 < len(close) < len(PAIRS.texts)
    mixed = score_pairs(model, VOCABULARY, PAIRS, device=CPU, autocast=BFLOAT16)
    for name in (PLL, WORD_L2R):
        expected = rounded[name].copy()
        expected[close] = exact[name][close]
        assert mixed[name] == pytest.approx(expected, abs=1e-5)


def test_the_head_is_computed_in_float32_under_autocast(model: MaskedTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """With layers that change nothing, only the head is left."""

    class Unchanged(torch.nn.Module):
        def forward(self, hidden_T: torch.Tensor, layout: object) -> torch.Tensor:
            return hidden_T

    generator = torch.Generator().manual_seed(0)
    headless = MaskedTokens(replace(model.encoder.settings, layers=1), VOCABULARY.size, generator, pairs=False).eval()
    headless.encoder.layers = torch.nn.ModuleList([Unchanged()])
    expected = score_pairs(headless, VOCABULARY, PAIRS, device=CPU, autocast=FLOAT32)
    monkeypatch.setattr("pipeline.model.heads.ROWS_SCORED", 2)
    found = score_pairs(headless, VOCABULARY, PAIRS, device=CPU, autocast=BFLOAT16, again=False)
    for name in (PLL, WORD_L2R):
        assert found[name] == pytest.approx(expected[name], abs=1e-5)
