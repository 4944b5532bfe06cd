import dataclasses
import importlib.util
import math
import sys
import types

import pytest
import torch

from pipeline.config.model import Model
from pipeline.model import vocabulary_loss
from pipeline.model.encoder import initialize
from pipeline.model.heads import MaskedTokenHead, NextSentenceHead

SETTINGS = Model(layers=1, width=4, heads=1, feed_forward=8)


def make_head(vocabulary_size: int) -> tuple[MaskedTokenHead, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    head = MaskedTokenHead(SETTINGS, vocabulary_size)
    initialize(head, 0.5, generator)
    return head, torch.randn(vocabulary_size, 4, generator=generator, requires_grad=True)


def test_logits_by_hand():
    # A dense layer of identity weights; GELU(0) = 0 and GELU(10) = 10, so LayerNorm sees 0, 10, 0, 10 and gives -1, 1,
    # -1, 1.
    head = MaskedTokenHead(SETTINGS, 2)
    with torch.no_grad():
        head.dense.weight.copy_(torch.eye(4))
        head.dense.bias.zero_()
        head.bias.copy_(torch.tensor([0.5, 0.0]))
    words = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 0.0]])
    assert head(torch.tensor([[0.0, 10.0, 0.0, 10.0]]), words).flatten().tolist() == pytest.approx([2.5, 1.0], abs=1e-4)


def test_loss_of_equal_logits_is_the_logarithm_of_their_number():
    head, words = make_head(8)
    loss = head.loss(torch.randn(5, 4), torch.zeros_like(words), torch.tensor([0, 1, 2, 7, 7]))
    assert loss.item() == pytest.approx(5 * math.log(8), rel=1e-6)


@pytest.mark.parametrize("entries", [11, 64, 65])
@pytest.mark.parametrize("positions", [1, 40, 41, 115])
def test_loss_in_parts_equals_the_loss_of_all(positions, entries, monkeypatch):
    monkeypatch.setattr(vocabulary_loss, "LOGIT_BYTES", 40 * 64 * 4)  # 40 rows of 64 entries at once
    head, words = make_head(entries)
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(positions, 4, generator=generator, requires_grad=True)
    labels = torch.randint(0, 11, (positions,), generator=generator)
    logits = head(hidden, words)
    whole = (logits.logsumexp(1) - logits[torch.arange(positions), labels]).sum()
    parameters = [hidden, words, *head.parameters()]
    expected = torch.autograd.grad(whole, parameters)
    loss = head.loss(hidden, words, labels)
    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), expected, atol=1e-5, rtol=1e-4)


def test_a_label_of_no_chance_at_all_has_a_finite_loss():
    # Logits 0 and 200 apart: the share of the label is e^-200, which float32 does not hold.
    head, words = make_head(2)
    with torch.no_grad():
        head.bias.copy_(torch.tensor([200.0, 0.0]))
    assert head.loss(torch.zeros(1, 4), torch.zeros_like(words), torch.tensor([1])).item() == pytest.approx(200)


def test_a_kernel_that_cannot_be_compiled_is_left_out_with_a_warning(monkeypatch):
    def uncompiled(logits, labels):
        raise RuntimeError("no C compiler\nof many lines")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "triton")
    monkeypatch.setattr(torch, "zeros", lambda *shape, dtype, device: None)  # there is no such device
    kernel = types.SimpleNamespace(to_gradients=uncompiled)
    monkeypatch.setitem(sys.modules, "pipeline.model.vocabulary_kernel", kernel)
    wanted = "^the loss takes several kernels, because Triton cannot compile one: no C compiler$"
    with pytest.warns(UserWarning, match=wanted):
        assert vocabulary_loss._kernel.__wrapped__(torch.device("cuda"), torch.bfloat16, 64) is None
    assert vocabulary_loss._kernel(torch.device("cpu"), torch.bfloat16, 64) is None


def test_vocabulary_padding_gets_no_probability():
    words, bias = vocabulary_loss.pad_vocabulary(torch.ones(3, 2), torch.zeros(3))
    assert words.shape == (64, 2) and not words[3:].any()
    assert bias.tolist() == [0.0] * 3 + [-math.inf] * 61
    assert vocabulary_loss.pad_vocabulary(torch.ones(128, 2), torch.zeros(128))[0].shape == (128, 2)


def test_bfloat16_loss_and_gradients_match_float32():
    head, words = make_head(11)
    generator = torch.Generator().manual_seed(2)
    hidden, labels = (
        torch.randn(50, 4, generator=generator, requires_grad=True),
        torch.randint(0, 11, (50,), generator=generator),
    )
    parameters = [hidden, words, *head.parameters()]
    wide = head.loss(hidden, words, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = head.loss(hidden, words, labels)
    assert narrow.item() == pytest.approx(wide.item(), rel=1e-2)
    for found, wanted in zip(
        torch.autograd.grad(narrow, parameters), torch.autograd.grad(wide, parameters), strict=True
    ):
        torch.testing.assert_close(found, wanted, atol=2e-2 * wanted.abs().max().item(), rtol=0)


def test_no_masked_positions_lose_nothing():
    head, words = make_head(11)
    loss = head.loss(torch.zeros(0, 4, requires_grad=True), words, torch.zeros(0, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0.0
    assert words.grad.abs().max() == 0


def test_logits_and_loss_are_float32_under_autocast():
    head, words = make_head(11)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert head.transform(torch.randn(3, 4)).dtype == torch.float32
        assert head(torch.randn(3, 4), words).dtype == torch.float32
        assert head.loss(torch.randn(3, 4), words, torch.tensor([1, 2, 3])).dtype == torch.float32


def test_heads_add_the_published_number_of_parameters():
    # With both heads 110,106,428 at base size, without 109,482,240; the tied matrix is counted once.
    base = dataclasses.replace(SETTINGS, width=768, heads=12)
    with torch.device("meta"):
        heads = [MaskedTokenHead(base, 30_522), NextSentenceHead(base)]
    assert sum(parameter.numel() for head in heads for parameter in head.parameters()) == 110_106_428 - 109_482_240
