"""Our flat BERT against transformers' padded one: same weights, same numbers."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.model.weights import from_published, model_settings, published_config, to_published
from pipeline.objectives.pretraining import BertPretraining

transformers = pytest.importorskip("transformers")

SETTINGS = Model(
    layers=3, width=32, heads=4, feed_forward=80, maximum_positions=24, hidden_dropout=0.0, attention_dropout=0.0
)
VOCABULARY_SIZE = 97
LENGTHS = (7, 24, 1, 13, 24)
PAD_ID = 0


@pytest.fixture(scope="module")
def ours() -> BertPretraining:
    model = BertPretraining(SETTINGS, VOCABULARY_SIZE, torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():  # away from 0 and 1, where a bias or norm in the wrong place would not show
        for parameter in model.parameters():
            parameter += torch.empty_like(parameter).normal_(std=0.2, generator=generator)
    return model


@pytest.fixture(scope="module")
def theirs(ours: BertPretraining) -> "transformers.BertForPreTraining":
    config = transformers.BertConfig(**published_config(SETTINGS, VOCABULARY_SIZE, PAD_ID))
    model = transformers.BertForPreTraining(config)
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    outcome = model.load_state_dict(to_published(ours.state_dict()), strict=False)
    assert set(outcome.missing_keys) <= tied
    assert outcome.unexpected_keys == []
    model.tie_weights()
    return model


def make_batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    # No padding entry in a text: they keep the input's gradient of that row at 0.
    ids = [torch.randint(PAD_ID + 1, VOCABULARY_SIZE, (n,), generator=generator) for n in LENGTHS]
    segments = [(torch.arange(n) > n // 2).long() for n in LENGTHS]
    offsets = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)], dtype=torch.int32)
    masked = torch.tensor([1, 5, 7, 9, 30, 31, 33, 44, 45, 68])
    return Batch(
        ids_T=torch.cat(ids),
        segments_T=torch.cat(segments),
        positions_T=torch.cat([torch.arange(n) for n in LENGTHS]),
        offsets=offsets,
        maximum_length=max(LENGTHS),
        masked_positions_M=masked,
        masked_labels_M=torch.randint(0, VOCABULARY_SIZE, masked.shape, generator=generator),
        not_next_N=torch.tensor([0, 1, 1, 0, 1]),
    )


def padded(flat: Tensor, fill: int) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(flat.split(LENGTHS)), batch_first=True, padding_value=fill)


def their_inputs(batch: Batch) -> dict[str, Tensor]:
    labels = torch.full_like(batch.ids_T, -100)
    labels[batch.masked_positions_M] = batch.masked_labels_M
    return {
        "input_ids": padded(batch.ids_T, PAD_ID),
        "token_type_ids": padded(batch.segments_T, 0),
        "attention_mask": padded(torch.ones_like(batch.ids_T), 0),
        "labels": padded(labels, -100),
        "next_sentence_label": batch.not_next_N,
    }


def test_logits_and_losses_equal_theirs(ours, theirs):
    batch = make_batch()
    ours.eval(), theirs.eval()
    with torch.no_grad():
        expected = theirs(**their_inputs(batch))
        hidden = ours.encoder(batch)
        terms = ours(batch)
    rows, columns = padded(torch.arange(sum(LENGTHS)) + 1, 0).nonzero(as_tuple=True)
    expected_tokens = expected.prediction_logits[rows, columns][batch.masked_positions_M]
    torch.testing.assert_close(ours.predict_masked(batch), expected_tokens, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.pair_logits(hidden, batch), expected.seq_relationship_logits, atol=1e-5, rtol=1e-5)
    their_mlm = F.cross_entropy(expected_tokens, batch.masked_labels_M)
    torch.testing.assert_close(terms["mlm"][0] / terms["mlm"][1], their_mlm, atol=1e-5, rtol=0)
    torch.testing.assert_close(sum(total / count for total, count in terms.values()), expected.loss, atol=1e-5, rtol=0)


def test_all_gradients_equal_theirs(ours, theirs):
    batch = make_batch()
    ours.train().zero_grad(), theirs.train().zero_grad()
    theirs(**their_inputs(batch)).loss.backward()
    sum(total / count for total, count in ours(batch).values()).backward()
    gradients = to_published({name: parameter.grad for name, parameter in ours.named_parameters()})
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(
            gradient, expected[name], atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_a_file_they_saved_loads_here(ours, theirs, tmp_path):
    theirs.save_pretrained(tmp_path)
    state = from_published(load_file(tmp_path / "model.safetensors"), SETTINGS)
    assert state.keys() == ours.state_dict().keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(state[name], tensor), name


def test_a_file_we_saved_loads_there(ours, tmp_path):
    save_file(to_published(ours.state_dict()), tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = transformers.BertConfig(**published_config(SETTINGS, VOCABULARY_SIZE, PAD_ID))
    config.save_pretrained(tmp_path)
    loaded, outcome = transformers.BertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not outcome["missing_keys"] and not outcome["unexpected_keys"] and not outcome["mismatched_keys"]
    again = from_published(dict(loaded.state_dict()), SETTINGS)
    assert all(torch.equal(again[name], tensor) for name, tensor in ours.state_dict().items())


def test_their_config_gives_our_settings():
    config = transformers.BertConfig(**published_config(SETTINGS, VOCABULARY_SIZE, PAD_ID))
    assert model_settings(config.to_dict()) == SETTINGS
    assert config.tie_word_embeddings and config.architectures == ["BertForMaskedLM"] and config.pad_token_id == PAD_ID
    assert model_settings(transformers.BertConfig().to_dict()) == dataclasses.replace(
        Model(), layers=12, width=768, heads=12, feed_forward=3072
    )
