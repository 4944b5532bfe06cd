"""BigBird against transformers: lengths around full attention, with the random blocks of training, and configs.

In transformers, blocks depend on a batch's padding, a short batch turns the model's attention to full for good, and
evaluation draws no random blocks. So sequences go there alone, into attention that is set before each, with tables that
are drawn as in training.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline.batch import Batch, MaskedBatch
from pipeline.config.data import NextSentence, Sampling
from pipeline.config.model import Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.config.objective import Masked
from pipeline.errors import CheckpointError
from pipeline.model.encoder import Encoder
from pipeline.model.families.bigbird import BIGBIRD
from pipeline.model.random_blocks import random_blocks
from pipeline.model.weights import model_settings, published_config, to_published, without_memory
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.table import build_objective
from tests.parity.families import ROWS, assert_close, shaken, task_batch, their_inputs
from tests.unit.objectives.batches import tokens_of

transformers = pytest.importorskip("transformers")
modeling = pytest.importorskip("transformers.models.big_bird.modeling_big_bird")

# Attention is full up to length (5 + 2 * 2) * 16 = 144. Sequences of 1,024 tokens have the paper's draw.
SETTINGS = replace(
    ROWS["bigbird"].settings,
    maximum_positions=1_024,
    attention=BlockSparseAttention(block_size=16, random_blocks=2),
)
ROW = replace(ROWS["bigbird"], settings=SETTINGS)
SIZE = ROW.vocabulary().size
MANY = (160, 144, 9, 145, 161, 300, 1)


@pytest.fixture(autouse=True)
def drawn_in_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give transformers' attention our tables."""

    def with_head(self: nn.Module, from_seq_length: int, *_: object, **__: object) -> list[np.ndarray]:
        blocks = from_seq_length // self.block_size
        return list(random_blocks(self.seed, self.num_attention_heads, blocks, SETTINGS.attention, self.max_seqlen))

    def of_paper(self: nn.Module, *_: object, **__: object) -> np.ndarray:  # called for each head, and always for 1,024
        self.head = (getattr(self, "head", -1) + 1) % self.num_attention_heads
        return random_blocks(self.seed, self.num_attention_heads, 64, SETTINGS.attention, self.max_seqlen)[self.head]

    sparse = modeling.BigBirdBlockSparseAttention
    monkeypatch.setattr(sparse, "_bigbird_block_rand_mask_with_head", with_head)
    monkeypatch.setattr(sparse, "_bigbird_block_rand_mask", of_paper)


def batch_of(lengths: tuple[int, ...], kind: str = "classification") -> Batch:
    return task_batch(ROW, SIZE, kind, lengths)


def theirs_of(name: str, ours: nn.Module, use: str) -> nn.Module:
    """A class of transformers with our weights."""
    labels = {"num_labels": 3} if use in ("classification", "tags") else {}
    config = published_config(SETTINGS, SIZE, ROW.vocabulary().pad_id, use)
    made = getattr(transformers, name)(transformers.BigBirdConfig(**config, **labels)).eval()
    state = to_published(ours.state_dict(), BIGBIRD)
    if use == "encoder":
        state = {name.removeprefix("bert."): tensor for name, tensor in state.items()}
    odd = made.load_state_dict(state, strict=False)
    assert {key.split(".")[1] for key in odd.unexpected_keys} <= ({"seq_relationship"} if "MaskedLM" in name else set())
    assert {key.split(".")[1] for key in odd.missing_keys} <= {"pooler", "predictions"}
    return made


def alone(theirs: nn.Module, batch: Batch) -> list:
    """The outputs of transformers' model for each sequence alone."""
    encoder, outputs = getattr(theirs, "bert", theirs), []
    for start, end in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist()):
        encoder.set_attention_type("block_sparse")
        part = {"input_ids": batch.ids_T[None, start:end], "token_type_ids": batch.segments_T[None, start:end]}
        outputs.append(theirs(**part, attention_mask=torch.ones_like(part["input_ids"])))
    return outputs


def assert_gradients_close(ours: nn.Module, theirs: nn.Module, encoder_alone: bool) -> None:
    prefixes = ("encoder.", "bert.") if encoder_alone else ("", "")
    given = {f"{prefixes[0]}{name}": part.grad for name, part in ours.named_parameters() if part.grad is not None}
    found = to_published(given, BIGBIRD)
    wanted = {f"{prefixes[1]}{name}": part.grad for name, part in theirs.named_parameters() if part.grad is not None}
    assert found.keys() == wanted.keys()
    largest = max(gradient.abs().max().item() for gradient in wanted.values())
    for name, gradient in wanted.items():
        assert_close(found[name], gradient, 0.1 * largest, name)


# 144 is the longest sequence with full attention; 160 has whole blocks; 161 has one token in its last block.
@pytest.mark.parametrize("lengths", [(1,), (16,), (143,), (144,), (145,), (159,), (160,), (161,), (1_024,), MANY])
def test_states_and_gradients_equal_theirs_below_at_and_above_full_attention(lengths: tuple[int, ...]) -> None:
    ours = shaken(Encoder(SETTINGS, SIZE), 5)
    batch = batch_of(lengths)
    weights = torch.randn(batch.tokens, 32, generator=torch.Generator().manual_seed(1))
    hidden = ours(batch)
    named = nn.ModuleDict({"encoder": ours})
    theirs = theirs_of("BigBirdModel", named, "encoder")
    expected = torch.cat([output.last_hidden_state[0] for output in alone(theirs, batch)])
    assert_close(hidden, expected)
    for states in (hidden, expected):
        (states * weights).sum().backward()
    assert_gradients_close(ours, theirs, encoder_alone=True)


def test_padding_to_whole_blocks_in_a_batch_of_theirs_gives_our_states() -> None:
    """Sequences of 155 and 160 tokens have 10 blocks each, so padding them to 160 changes no block."""
    ours, batch = shaken(Encoder(SETTINGS, SIZE), 5), batch_of((155, 160))
    theirs = theirs_of("BigBirdModel", nn.ModuleDict({"encoder": ours}), "encoder")
    inputs = their_inputs(ROW, batch)
    with torch.no_grad():
        assert_close(ours(batch), theirs(**inputs).last_hidden_state[inputs["attention_mask"].bool()])


def test_a_dummy_sequence_changes_no_other() -> None:
    ours = shaken(Encoder(SETTINGS, SIZE), 5)
    for dummy in (15, 200):
        filled = batch_of((*MANY, dummy))
        filled = replace(filled, ids_T=torch.cat([batch_of(MANY).ids_T, torch.zeros(dummy, dtype=torch.int64)]))
        with torch.no_grad():
            assert_close(ours(filled)[: sum(MANY)], ours(batch_of(MANY)))


def test_heads_of_pretraining_equal_theirs() -> None:
    sampling = Sampling(maximum_length=1_024, pairs=NextSentence())
    ours = shaken(build_objective(Masked(), sampling, SETTINGS, SIZE), 5)
    batch = batch_of(MANY)
    masked = torch.arange(0, batch.tokens, 7)
    labels = batch.ids_T[masked].flip(0)
    batch = MaskedBatch(**tokens_of(batch), masked_positions_M=masked, masked_labels_M=labels)
    both = alone(theirs_of("BigBirdForPreTraining", ours, "masked"), batch)
    masked_alone = alone(theirs_of("BigBirdForMaskedLM", ours, "masked"), batch)
    with torch.no_grad():
        found = ours.outputs(batch)
    assert_close(found["masked"], torch.cat([output.prediction_logits[0] for output in both])[masked])
    assert_close(found["masked"], torch.cat([output.logits[0] for output in masked_alone])[masked])
    assert_close(found["pairs"], torch.cat([output.seq_relationship_logits for output in both]))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("classification", "BigBirdForSequenceClassification"),
        ("tags", "BigBirdForTokenClassification"),
        ("spans", "BigBirdForQuestionAnswering"),
    ],
)
def test_heads_of_tasks_equal_theirs_on_long_texts(kind: str, name: str) -> None:
    ours, batch = ROW.task(kind), batch_of(MANY, kind)
    theirs = theirs_of(name, ours, kind)
    logits, outputs = ours.logits(batch), alone(theirs, batch)
    if kind == "spans":
        expected = torch.cat([torch.stack((output.start_logits[0], output.end_logits[0]), 1) for output in outputs])
    else:
        expected = torch.cat([output.logits if kind == "classification" else output.logits[0] for output in outputs])
    assert_close(logits, expected)
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    for values in (logits, expected):
        (values * weights).sum().backward()
    assert_gradients_close(ours, theirs, encoder_alone=False)


def test_parameter_counts_are_the_published_ones() -> None:
    model = Model(
        family="bigbird",
        layers=12,
        width=768,
        heads=12,
        feed_forward=3_072,
        activation="gelu_new",
        maximum_positions=4_096,
        attention=BlockSparseAttention(),
    )
    with without_memory():
        whole = MaskedTokens(model, 50_358, pairs=True)
    counted = tuple(sum(weight.numel() for weight in part.parameters()) for part in (whole.encoder, whole))
    assert counted == (127_468_800, 128_112_824)


def config(**changes: object) -> dict:
    return published_config(SETTINGS, SIZE, 0) | changes


def test_configs_of_others_are_read() -> None:
    model = model_settings(transformers.BigBirdConfig().to_dict())
    assert (model.layers, model.width, model.heads, model.feed_forward) == (12, 768, 12, 3_072)
    assert model.attention == BlockSparseAttention(block_size=64, random_blocks=3)
    assert (model.activation, model.maximum_positions, model.segments) == ("gelu_new", 4_096, 2)
    left_out = ("hidden_act", "block_size", "num_random_blocks")
    stated = {name: value for name, value in transformers.BigBirdConfig().to_dict().items() if name not in left_out}
    assert model_settings(stated) == model
    assert model_settings(config()) == SETTINGS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"attention_type": "original_full"},
            "config.json: attention_type is 'original_full', but only 'block_sparse' can be loaded",
        ),
        ({"use_bias": False}, "config.json: use_bias is False, but only True can be loaded"),
        ({"rescale_embeddings": True}, "config.json: rescale_embeddings is True, but only False can be loaded"),
        ({"hidden_act": "relu"}, "config.json: hidden_act is 'relu', only 'gelu_new' can be loaded"),
        ({"block_size": 0}, "config.json: block_size is 0, but must be a whole number of at least 1"),
        (
            {"num_random_blocks": 2.5},
            "config.json: num_random_blocks is 2.5, but must be a whole number of at least 0",
        ),
    ],
)
def test_other_configs_are_refused_in_these_words(change: dict, message: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        model_settings(config(**change))
    assert str(refused.value) == message


def test_transformers_in_evaluation_reads_the_first_block_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why an exported model's states of long texts differ in transformers: it draws in training alone."""
    monkeypatch.undo()
    ours, batch = shaken(Encoder(SETTINGS, SIZE), 5), batch_of((200,))
    theirs = theirs_of("BigBirdModel", nn.ModuleDict({"encoder": ours}), "encoder")

    def states(model: nn.Module) -> Tensor:
        theirs.set_attention_type("block_sparse")
        return model(input_ids=batch.ids_T[None], token_type_ids=batch.segments_T[None]).last_hidden_state[0]

    with torch.no_grad():
        assert (states(theirs.eval()) - ours(batch)).abs().max() > 0.01
        for module in theirs.modules():
            if not isinstance(module, nn.Dropout):
                module.training = True
        assert_close(ours(batch), states(theirs))
