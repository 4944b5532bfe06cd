"""Distillation against plain torch on transformers' two models and one padded batch: losses and gradients."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.config.model import Model
from pipeline.config.objective import Distilled
from pipeline.model.families.table import family_of
from pipeline.model.weights import published_config, to_published
from pipeline.objectives.distilled import DistilledTokens
from pipeline.objectives.masked import MaskedTokens
from tests.parity.families import ROWS, Row, assert_close, pretraining_batch, shaken, their_inputs

transformers = pytest.importorskip("transformers")

PAIRS = [("distilbert", "bert-unpaired"), ("electra-masked", "distilbert")]


def peer_of(row: Row, module: MaskedTokens) -> torch.nn.Module:
    """transformers' model with the weights of a module."""
    vocabulary = row.vocabulary()
    config = published_config(row.settings, vocabulary.size, vocabulary.pad_id)
    peer = getattr(transformers, row.classes[""])(getattr(transformers, f"{row.prefix}Config")(**config))
    odd = peer.load_state_dict(to_published(module.state_dict(), family_of(row.settings)), strict=False)
    assert not odd.unexpected_keys and all("decoder" in n or "projector" in n or "lm_head" in n for n in odd[0]), odd
    peer.tie_weights()
    return peer.eval()


def answered(row: Row, peer: torch.nn.Module, batch) -> tuple[Tensor, Tensor]:
    """The logits and last hidden states of all real tokens."""
    inputs = their_inputs(row, batch)
    output = peer(**inputs, output_hidden_states=True)
    real = inputs["attention_mask"].bool()
    return output.logits[real], output.hidden_states[-1][real]


@pytest.mark.parametrize("soft_targets", ["all", "masked"])
@pytest.mark.parametrize(("student", "teacher"), PAIRS)
def test_losses_and_gradients_equal_those_of_two_models_of_transformers(
    student: str, teacher: str, soft_targets: str
) -> None:
    own, theirs = ROWS[student], ROWS[teacher]
    settings: Model = own.settings
    size = own.vocabulary().size
    module = shaken(DistilledTokens(settings, size, Distilled(soft_targets=soft_targets)), 5)
    module.learn_from(shaken(MaskedTokens(theirs.settings, size, pairs=False), 6))
    batch = pretraining_batch(own, size)
    terms = module(batch)
    peer = peer_of(own, module)
    logits, hidden_T = answered(own, peer, batch)
    with torch.no_grad():
        wanted, taught_T = answered(theirs, peer_of(theirs, module.teacher), batch)
    places = batch.masked_positions_M
    rows = places if soft_targets == "masked" else torch.arange(batch.tokens)
    soft = 4 * F.kl_div(
        F.log_softmax(logits[rows] / 2, 1), F.softmax(wanted[rows] / 2, 1), reduction="batchmean"
    )  # Hinton et al. 2015, 2
    expected = {
        "soft": soft,
        "mlm": F.cross_entropy(logits[places], batch.masked_labels_M),
        "cosine": F.cosine_embedding_loss(hidden_T, taught_T, torch.ones(batch.tokens)),
    }
    for term, (total, count) in terms.items():
        assert_close(total / count, expected[term], name=term)
    sum(module.weights[term] * total / count for term, (total, count) in terms.items()).backward()
    (5 * expected["soft"] + 2 * expected["mlm"] + expected["cosine"]).backward()
    found = to_published({name: weight.grad for name, weight in module.named_parameters()}, family_of(settings))
    gradients = {name: weight.grad for name, weight in peer.named_parameters()}
    assert found.keys() == gradients.keys()
    largest = max(gradient.abs().max().item() for gradient in gradients.values())
    for name, gradient in gradients.items():
        assert_close(found[name], gradient, 0.1 * largest, name)
