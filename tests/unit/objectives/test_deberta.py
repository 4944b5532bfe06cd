"""DeBERTa's pretraining against references written by hand: the encoder, the enhanced mask decoder, and replaced tokens
with gradient-disentangled embedding sharing.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.config.model_parts import BucketedAttention, DisentangledAttention, NoPositions
from pipeline.config.objective import Replaced
from pipeline.model.encoder import Encoder
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.replaced import ReplacedTokens
from tests.unit.model.deberta_reference import State, layer, linear, norm, rows_of, states, vocabulary_logits
from tests.unit.objectives.batches import VOCABULARY_SIZE, make_batch

pytestmark = pytest.mark.usefixtures("one_thread")

FIRST = Model(
    family="deberta",
    layers=2,
    width=16,
    heads=2,
    feed_forward=24,
    maximum_positions=40,
    segments=0,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    layer_norm_epsilon=1e-7,
    positions=NoPositions(),
    attention=DisentangledAttention(maximum_distance=6),
)
THIRD = replace(FIRST, family="deberta-v2", attention=BucketedAttention(buckets=8, maximum_distance=30))
SPANS = {"deberta": (6, None), "deberta-v2": (8, 30)}
"""Family -> span and farthest distance of the reference."""
LENGTHS = [7, 1, 12]


def shaken(module: torch.nn.Module) -> torch.nn.Module:
    """Random weights, so that no part is where it starts."""
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3, generator=random)
    return module


def leaves(module: torch.nn.Module, prefix: str) -> State:
    """Copies of the parameters below a prefix, which collect gradients."""
    return {
        name.removeprefix(prefix): tensor.detach().clone().requires_grad_()
        for name, tensor in module.state_dict().items()
        if name.startswith(prefix)
    }


def sequences(values: Tensor, batch: Batch) -> list[Tensor]:
    return list(values.split(batch.offsets.diff().tolist()))


def encoded(state: State, ids: Tensor, settings: Model, batch: Batch) -> list[list[Tensor]]:
    """Hidden states after each layer, of each sequence."""
    rows = [rows_of(len(part), *SPANS[settings.family]) for part in sequences(ids, batch)]
    return [
        states(state, part, table, settings.layers, settings.heads)
        for part, table in zip(sequences(ids, batch), rows, strict=True)
    ]


@pytest.mark.parametrize("settings", [FIRST, THIRD])
def test_encoder_and_its_gradients(settings: Model) -> None:
    module, batch = shaken(Encoder(settings, VOCABULARY_SIZE)), make_batch(LENGTHS)
    weights = torch.randn(sum(LENGTHS), 16, generator=torch.Generator().manual_seed(1))
    state = leaves(module, "")
    expected = torch.cat([each[-1] for each in encoded(state, batch.ids_T, settings, batch)])
    found = module(batch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    (found * weights).sum().backward(), (expected * weights).sum().backward()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad, state[name].grad, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("settings", [FIRST, THIRD])
def test_enhanced_mask_decoder(settings: Model) -> None:
    module, batch = shaken(MaskedTokens(settings, VOCABULARY_SIZE, enhanced=True)), make_batch(LENGTHS)
    state, head = leaves(module, "encoder."), leaves(module, "masked_token_head.")
    positions = leaves(module, "enhanced_decoder.")["positions.weight"]
    decoded = []
    for each in encoded(state, batch.ids_T, settings, batch):
        hidden_S = each[-2]
        rows = rows_of(len(hidden_S), *SPANS[settings.family])
        # First with absolute positions in the queries, then with the queries of the first time; the same last layer.
        first = layer(state, "layers.1", hidden_S, hidden_S + positions[: len(hidden_S)], rows, settings.heads)
        decoded.append(layer(state, "layers.1", hidden_S, first, rows, settings.heads))
    hidden_M = torch.cat(decoded)[batch.masked_positions_M]
    logits = vocabulary_logits(head, hidden_M, state["embeddings.words.weight"])
    expected = F.cross_entropy(logits, batch.masked_labels_M, reduction="sum")
    found, count = module(batch)["mlm"]
    assert count == batch.masked
    torch.testing.assert_close(module.outputs(batch)["masked"], logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    found.backward(), expected.backward()
    assert positions.grad is not None and positions.grad.abs().sum() > 0
    torch.testing.assert_close(module.enhanced_decoder.positions.weight.grad, positions.grad, atol=1e-4, rtol=1e-3)
    for name, parameter in module.encoder.named_parameters():
        torch.testing.assert_close(parameter.grad, state[name].grad, atol=1e-3, rtol=1e-3, msg=name)


def test_replaced_tokens_with_gradient_disentangled_embeddings() -> None:
    objective = Replaced(generator_share=1.0, generator_depth=0.5, embedding_sharing="gradient-disentangled", weight=5)
    module, batch = shaken(ReplacedTokens(THIRD, VOCABULARY_SIZE, objective)), make_batch(LENGTHS)
    seen: list[Batch] = []
    module.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    terms = module(batch)
    # The generator has one layer and predicts the masked tokens with its own words.
    generator, head = leaves(module, "generator.encoder."), leaves(module, "generator.masked_token_head.")
    last = encoded(generator, batch.ids_T, replace(THIRD, layers=1), batch)
    hidden_M = torch.cat([each[-1] for each in last])[batch.masked_positions_M]
    logits_M = vocabulary_logits(head, hidden_M, generator["embeddings.words.weight"])
    masked = F.cross_entropy(logits_M, batch.masked_labels_M)
    # The discriminator has two layers, and its words are the generator's without gradient plus a table of its own.
    state = leaves(module, "encoder.")
    words = state["embeddings.words.weight"] + generator["embeddings.words.weight"].detach()
    hidden = encoded(state | {"embeddings.words.weight": words}, seen[0].ids_T, THIRD, batch)
    own = leaves(module, "replaced_token_head.")
    added = [norm(own, "norm", each[-1][:1] + each[-1]) for each in hidden]
    logits_T = torch.cat([linear(own, "score", F.gelu(linear(own, "dense", states_S))) for states_S in added])[:, 0]
    labels_T = torch.zeros(batch.tokens)
    labels_T[batch.masked_positions_M] = (seen[0].ids_T[batch.masked_positions_M] != batch.masked_labels_M).float()
    replaced = F.binary_cross_entropy_with_logits(logits_T, labels_T)
    torch.testing.assert_close(terms["mlm"][0] / terms["mlm"][1], masked, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(terms["replaced"][0] / terms["replaced"][1], replaced, rtol=1e-5, atol=1e-5)
    (masked + 5 * replaced).backward()
    (
        terms["mlm"][0] / terms["mlm"][1] + module.weights["replaced"] * terms["replaced"][0] / terms["replaced"][1]
    ).backward()
    for name, parameter in module.named_parameters():
        part = next(
            wanted[name.removeprefix(prefix)]
            for prefix, wanted in (
                ("generator.encoder.", generator),
                ("generator.masked_token_head.", head),
                ("encoder.", state),
                ("replaced_token_head.", own),
            )
            if name.startswith(prefix)
        )
        torch.testing.assert_close(parameter.grad, part.grad, atol=1e-4, rtol=1e-3, msg=name)
