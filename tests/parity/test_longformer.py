"""Longformer against transformers: lengths around the window, all kinds of global tokens, and configs of others."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from pipeline.batch import Batch
from pipeline.config.model_parts import GlobalLocalAttention
from pipeline.errors import CheckpointError
from pipeline.model.encoder import Encoder
from pipeline.model.families.longformer import LONGFORMER
from pipeline.model.global_local import GlobalUse
from pipeline.model.weights import model_settings, published_config, to_published
from tests.parity.families import ROWS, assert_close, pad, shaken, task_batch, their_inputs

transformers = pytest.importorskip("transformers")

ROW = ROWS["longformer"]
VOCABULARY = ROW.vocabulary()
SIZE = VOCABULARY.size
USES: tuple[GlobalUse, ...] = ("none", "first", "question", "second")
# The window is 8: a token sees 4 on each side. At 5 tokens all see all; at 6, two do not see each other; 9 is the whole
# window of a token in the middle; blocks have 32 tokens.
LENGTHS = [(3,), (4,), (5,), (6,), (8,), (9,), (10,), (32,), (33,), (40,), (40, 3, 6, 5, 4, 32, 40), (5, 5, 3)]


def batch_of(lengths: tuple[int, ...]) -> Batch:
    return task_batch(ROW, SIZE, "spans", lengths)


def encoders(use: GlobalUse = "none") -> tuple[Encoder, nn.Module]:
    """Our encoder and theirs, with the same weights."""
    ours = shaken(Encoder(ROW.settings, SIZE), 5)
    ours.choose_global_tokens(use)
    said = published_config(ROW.settings, SIZE, VOCABULARY.pad_id, "encoder", VOCABULARY.sep_id)
    theirs = transformers.LongformerModel(transformers.LongformerConfig(**said), add_pooling_layer=False)
    named = {f"encoder.{name}": tensor for name, tensor in ours.state_dict().items()}
    published = {name.removeprefix("longformer."): tensor for name, tensor in to_published(named, LONGFORMER).items()}
    theirs.load_state_dict(published)
    return ours, theirs.eval()


def global_mask(batch: Batch, use: GlobalUse) -> Tensor:
    """Ones for the first token, for the tokens before the first separator, or after two, sequence by sequence."""
    masks = []
    for ids in batch.ids_T.split(batch.offsets.diff().tolist()):
        question = ids.tolist().index(VOCABULARY.sep_id)
        places = torch.arange(len(ids))
        chosen = places < {"none": 0, "first": 1, "question": question, "second": 0}[use]
        masks.append(places > question + 1 if use == "second" else chosen)
    return pad(torch.cat(masks).long(), batch, 0)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_states_and_gradients_equal_theirs_below_at_and_above_the_window(
    lengths: tuple[int, ...], use: GlobalUse
) -> None:
    if use == "second" and 3 in lengths:
        pytest.skip("needs more than three tokens, for a second text")
    ours, theirs = encoders(use)
    batch = batch_of(lengths)
    inputs = their_inputs(ROW, batch)
    weights = torch.randn(batch.tokens, 32, generator=torch.Generator().manual_seed(1))
    hidden = ours(batch)
    mask = {} if use == "none" else {"global_attention_mask": global_mask(batch, use)}
    expected = theirs(**inputs, **mask).last_hidden_state[inputs["attention_mask"].bool()]
    assert_close(hidden, expected)
    for states in (hidden, expected):
        (states * weights).sum().backward()
    given = {f"encoder.{name}": weight.grad for name, weight in ours.named_parameters()}
    found = to_published({name: gradient for name, gradient in given.items() if gradient is not None}, LONGFORMER)
    wanted = {f"longformer.{name}": weight.grad for name, weight in theirs.named_parameters()}
    wanted = {name: gradient for name, gradient in wanted.items() if gradient is not None}
    assert found.keys() == wanted.keys() and any("_global" in name for name in wanted) is (use != "none")
    largest = max(gradient.abs().max().item() for gradient in wanted.values())
    for name, gradient in wanted.items():
        assert_close(found[name], gradient, 0.1 * largest, name)


@pytest.mark.parametrize("use", USES)
def test_a_dummy_sequence_changes_no_other(use: GlobalUse) -> None:
    ours, _ = encoders(use)
    with torch.no_grad():
        alone, filled = ours(batch_of((40, 9))), batch_of((40, 9, 15))
        filled = replace(filled, ids_T=torch.cat([batch_of((40, 9)).ids_T, torch.zeros(15, dtype=torch.int64)]))
        assert_close(ours(filled)[:49], alone)


@pytest.mark.parametrize("kind", ["classification", "spans"])
def test_transformers_derives_the_same_global_tokens_from_the_ids(kind: str) -> None:
    module, batch = ROW.task(kind), task_batch(ROW, SIZE, kind, (40, 12, 33, 9))
    said = published_config(ROW.settings, SIZE, VOCABULARY.pad_id, kind, VOCABULARY.sep_id)
    assert said["sep_token_id"] == VOCABULARY.sep_id
    said |= {} if kind == "spans" else {"num_labels": 3}
    peer = getattr(transformers, said["architectures"][0])(transformers.LongformerConfig(**said))
    assert not any(peer.load_state_dict(to_published(module.state_dict(), LONGFORMER)))
    inputs = their_inputs(ROW, batch)
    with torch.no_grad():
        found, theirs = module.logits(batch), peer.eval()(**inputs)
        ends = (theirs.start_logits, theirs.end_logits) if kind == "spans" else ()
        expected = torch.stack(ends, -1)[inputs["attention_mask"].bool()] if ends else theirs.logits
        assert_close(found, expected)
        module.encoder.choose_global_tokens("none")
        assert (module.logits(batch) - expected).abs().max() > 0.01 * expected.abs().max()


def config(**changes: object) -> dict:
    return published_config(ROW.settings, SIZE, VOCABULARY.pad_id) | changes


def test_configs_of_others_are_read() -> None:
    published = {
        "model_type": "longformer",
        "architectures": ["LongformerForMaskedLM"],
        "attention_mode": "longformer",
        "attention_window": [512] * 12,
        "hidden_size": 768,
        "intermediate_size": 3_072,
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 4_098,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "pad_token_id": 1,
        "sep_token_id": 2,
        "type_vocab_size": 1,
        "vocab_size": 50_265,
    }
    model = model_settings(published)  # the fields of allenai/longformer-base-4096
    assert (model.layers, model.width, model.heads, model.feed_forward) == (12, 768, 12, 3_072)
    assert (model.maximum_positions, model.position_rows, model.layer_norm_epsilon) == (4_096, 4_098, 1e-5)
    assert model.attention == GlobalLocalAttention(window=512)
    assert model_settings(published | {"attention_window": 64}).attention == GlobalLocalAttention(window=64)
    written = transformers.LongformerConfig(**config()).to_dict()
    assert model_settings(written) == ROW.settings


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (7, "attention_window is 7, but must be an even number of at least 2"),
        ("8", "attention_window is '8', but must be an even number of at least 2"),
        (
            [8, 16],
            "attention_window is [8, 16], but must be one number, or the same number for each of the 2 layers "
            "(num_hidden_layers)",
        ),
        (
            [8],
            "attention_window is [8], but must be one number, or the same number for each of the 2 layers "
            "(num_hidden_layers)",
        ),
    ],
)
def test_other_windows_are_refused_in_these_words(window: object, message: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        model_settings(config(attention_window=window))
    assert str(refused.value) == f"config.json: {message}"


@pytest.mark.parametrize("use", [use for use in USES if use != "second"])  # a long second text has many global tokens
def test_no_matrix_of_tokens_by_tokens_is_made(use: GlobalUse) -> None:
    """The largest tensor that layers save for the backward grows with the length, not with its square."""
    encoder, sizes = shaken(Encoder(replace(ROW.settings, maximum_positions=2_048), SIZE), 5), {}
    encoder.choose_global_tokens(use)
    for length in (512, 1_024, 2_048):
        batch, saved = batch_of((length,)), []
        batch.ids_T[12] = VOCABULARY.sep_id  # so that the question has the same length in all batches
        hidden, layout = encoder.embed(batch).detach(), encoder.layouts(batch)[1]

        def pack(tensor: Tensor, saved: list[int] = saved) -> Tensor:
            saved.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            encoder.layers[1](hidden, layout)
        sizes[length] = max(saved)
    assert sizes[1_024] <= 2.1 * sizes[512] and sizes[2_048] <= 2.1 * sizes[1_024]
