"""ModernBERT against transformers: lengths around the window, pooling, parameter counts and configs of others."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pipeline.batch import Batch
from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.config.model_parts import LocalAttention, RotaryPositions
from pipeline.errors import CheckpointError
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.model.encoder import Encoder
from pipeline.model.families.modernbert import MODERNBERT
from pipeline.model.weights import model_settings, published_config, to_published, without_memory
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.sequences import SequenceTask
from pipeline.tasks.task import Task
from pipeline.text.vocabulary_saving import save_vocabulary
from tests.parity.families import ROWS, assert_close, shaken, task_batch, their_inputs

transformers = pytest.importorskip("transformers")

ROW = ROWS["modernbert"]
SIZE = ROW.vocabulary().size
COUNTS = {  # layers, width, heads, feed-forward -> encoder, and with its masked-token head, at 50,368 entries
    (22, 768, 12, 1_152): (149_014_272, 149_655_232),
    (28, 1_024, 16, 2_624): (394_781_696, 395_881_664),
    (7, 256, 4, 384): (16_797_440, 16_913_600),  # Ettin 17M
}


def batch_of(lengths: tuple[int, ...]) -> Batch:
    return task_batch(ROW, SIZE, "classification", lengths)


def encoders() -> tuple[Encoder, nn.Module]:
    """Our encoder and theirs, with the same weights."""
    ours = shaken(Encoder(ROW.settings, SIZE), 5)
    theirs = transformers.ModernBertModel(
        transformers.ModernBertConfig(**published_config(ROW.settings, SIZE, ROW.vocabulary().pad_id, "encoder"))
    )
    named = {f"encoder.{name}": tensor for name, tensor in ours.state_dict().items()}
    published = {name.removeprefix("model."): tensor for name, tensor in to_published(named, MODERNBERT).items()}
    theirs.load_state_dict(published)
    return ours, theirs.eval()


# The window is 8: a token sees 4 on each side. At 5 tokens all see all; at 6, two do not see each other; 9 is the whole
# window of a token in the middle; blocks have 32 tokens.
@pytest.mark.parametrize(
    "lengths", [(1,), (4,), (5,), (6,), (8,), (9,), (10,), (32,), (33,), (40,), (40, 3, 6, 5, 1, 32, 40)]
)
def test_states_and_gradients_equal_theirs_below_at_and_above_the_window(lengths: tuple[int, ...]) -> None:
    ours, theirs = encoders()
    batch = batch_of(lengths)
    inputs = their_inputs(ROW, batch)
    weights = torch.randn(batch.tokens, 32, generator=torch.Generator().manual_seed(1))
    hidden = ours(batch)
    expected = theirs(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
    assert_close(hidden, expected)
    for states in (hidden, expected):
        (states * weights).sum().backward()
    given = {f"encoder.{name}": weight.grad for name, weight in ours.named_parameters()}
    found = to_published({name: gradient for name, gradient in given.items() if gradient is not None}, MODERNBERT)
    wanted = {f"model.{name}": weight.grad for name, weight in theirs.named_parameters()}
    assert found.keys() == wanted.keys()
    largest = max(gradient.abs().max().item() for gradient in wanted.values())
    for name, gradient in wanted.items():
        assert_close(found[name], gradient, 0.1 * largest, name)


def test_a_dummy_sequence_changes_no_other() -> None:
    ours, _ = encoders()
    with torch.no_grad():
        alone, filled = ours(batch_of((40, 9))), batch_of((40, 9, 15))
        filled = replace(filled, ids_T=torch.cat([batch_of((40, 9)).ids_T, torch.zeros(15, dtype=torch.int64)]))
        assert_close(ours(filled)[:49], alone)


def test_a_classifier_reads_the_mean_where_its_config_says_so(tmp_path: Path) -> None:
    module = shaken(SequenceTask(ROW.settings, SIZE, 3, kind="classification", pooling="mean"), 5)
    about = About(
        task=Task(name="a", kind="classification", labels=("no", "yes", "maybe"), metrics=("accuracy",)),
        cutting=Truncation(maximum_length=16, stride=4),
        pooling="mean",
        thresholds={},
        lineage={},
    )
    save_tuned(str(tmp_path / "m"), module, about, ROW.settings, ROW.vocabulary())
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "m").eval()
    assert theirs.config.classifier_pooling == "mean"
    batch = batch_of((9, 5, 12, 7))
    with torch.no_grad():
        logits = module.logits(batch)
        assert_close(logits, theirs(**their_inputs(ROW, batch)).logits)
    for own in ("task.json", "manifest.json"):  # as if others had published it
        (tmp_path / "m" / own).unlink()
    again = open_tuned(str(tmp_path / "m"))
    assert again.about.pooling == "mean"
    with torch.no_grad():
        assert_close(again.module.logits(batch), logits)
    config = (tmp_path / "m" / "config.json").read_text()
    (tmp_path / "m" / "config.json").write_text(config.replace('"mean"', '"max"'))
    with pytest.raises(
        CheckpointError, match=r"config.json: classifier_pooling is 'max', but only cls, mean can be loaded$"
    ):
        open_tuned(str(tmp_path / "m"))


def test_choices_of_others_are_scored_by_the_mean_where_their_config_says_so(tmp_path: Path) -> None:
    config = published_config(ROW.settings, SIZE, ROW.vocabulary().pad_id, "choices", ROW.vocabulary().sep_id)
    theirs = transformers.ModernBertForMultipleChoice(
        transformers.ModernBertConfig(**config | {"classifier_pooling": "mean"})
    )
    shaken(theirs, 5).eval().save_pretrained(tmp_path)
    save_vocabulary(ROW.vocabulary(), tmp_path, 16)
    found, batch = open_tuned(str(tmp_path)), task_batch(ROW, SIZE, "choices")
    assert (found.about.task.kind, found.about.pooling) == ("choices", "mean")
    rows = {name: tensor.unflatten(0, (-1, 2)) for name, tensor in their_inputs(ROW, batch).items()}
    with torch.no_grad():
        assert_close(found.module.logits(batch), theirs(**rows).logits)


@pytest.mark.parametrize(("shape", "counts"), COUNTS.items())
def test_parameter_counts_are_the_published_ones(shape: tuple[int, ...], counts: tuple[int, int]) -> None:
    layers, width, heads, feed_forward = shape
    sizes = {"layers": layers, "width": width, "heads": heads, "feed_forward": feed_forward}
    model = replace(ROW.settings, **sizes, maximum_positions=8_192)
    with without_memory():
        whole = MaskedTokens(model, 50_368, pairs=False)
    counted = tuple(sum(weight.numel() for weight in part.parameters()) for part in (whole.encoder, whole))
    assert counted == counts


def config(**changes: object) -> dict:
    return published_config(ROW.settings, SIZE, 0) | changes


def test_configs_of_others_are_read() -> None:
    stated = transformers.ModernBertConfig().to_dict()  # as transformers 5 writes them
    model = model_settings(stated)
    assert (model.layers, model.width, model.heads, model.feed_forward) == (22, 768, 12, 1_152)
    assert model.attention == LocalAttention(window=128, global_every=3)
    assert model.positions == RotaryPositions(theta=160_000.0, local_theta=10_000.0)
    assert (model.maximum_positions, model.layer_norm_epsilon, model.hidden_dropout) == (8_192, 1e-5, 0.0)
    old = {name: value for name, value in stated.items() if name not in ("rope_parameters", "layer_types")}
    assert model_settings(old | {"global_attn_every_n_layers": 3}) == model  # as on the hub since 2024
    assert model_settings(old | {"rope_scaling": None}) == model_settings(old | {"rope_scaling": {"type": "default"}})
    assert model_settings(old | {"global_rope_theta": 1e4}).positions == RotaryPositions(theta=1e4, local_theta=1e4)


FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"local_attention": 7}, "config.json: local_attention is 7, but must be an even number of at least 2"),
        (
            {"num_hidden_layers": 6, "layer_types": [FULL, SLIDING, SLIDING, SLIDING, FULL, FULL]},
            "config.json: layer_types can be loaded only if layers 0, n, 2 n and so on are full_attention and all "
            "others sliding_attention",
        ),
        (
            {"num_hidden_layers": 4, "layer_types": [FULL]},
            f"config.json: layer_types is ['{FULL}'], but must be a list with a kind for each of the 4 layers "
            "(num_hidden_layers)",
        ),
        (
            {"num_hidden_layers": 4, "layer_types": 5},
            "config.json: layer_types is 5, but must be a list with a kind for each of the 4 layers "
            "(num_hidden_layers)",
        ),
        (
            {"rope_parameters": [1]},
            "config.json: rope_parameters is [1], but must have settings for full_attention",
        ),
        (
            {"rope_parameters": {FULL: 3}},
            "config.json: rope_parameters is {'full_attention': 3}, but must have settings for full_attention",
        ),
        (
            {"layer_types": None, "global_attn_every_n_layers": 0},
            "config.json: global_attn_every_n_layers is 0, but must be at least 1",
        ),
        (
            {"rope_parameters": {FULL: {"rope_type": "yarn"}}},
            "config.json: rope_parameters.full_attention.rope_type is 'yarn', but only 'default' can be loaded",
        ),
        (
            {"rope_parameters": {"rope_type": "yarn"}},
            "config.json: rope_parameters is {'rope_type': 'yarn'}, but must have settings for full_attention",
        ),
        (
            {"rope_parameters": None, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            "config.json: rope_scaling is {'rope_type': 'yarn', 'factor': 4.0}, but only type 'default' can be loaded",
        ),
        (
            {"rope_parameters": None, "local_rope_theta": -1},
            "config.json: local_rope_theta is -1, but must be a number above 0",
        ),
        ({"mlp_bias": True}, "config.json: mlp_bias is True, but only False can be loaded"),
    ],
)
def test_other_configs_are_refused_in_these_words(change: dict, message: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        model_settings(config(**change))
    assert str(refused.value) == message


def test_the_layers_with_global_attention_may_be_told_by_their_kinds() -> None:
    told = config(num_hidden_layers=4, layer_types=[FULL, SLIDING, FULL, SLIDING])
    assert model_settings(told).attention == LocalAttention(window=8, global_every=2)
    assert isinstance(model_settings(config()), Model)


def test_no_matrix_of_tokens_by_tokens_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest tensor that local layers save for the backward grows with the length, not with its square."""
    settings = replace(ROW.settings, layers=2, maximum_positions=2_048)
    encoder, sizes = shaken(Encoder(settings, SIZE), 5), {}
    layer = encoder.layers[1]
    for length in (512, 1_024, 2_048):
        batch, saved = batch_of((length,)), []
        hidden, layout = encoder.embed(batch).detach(), encoder.layouts(batch)[1]

        def pack(tensor: Tensor, saved: list[int] = saved) -> Tensor:
            saved.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(hidden, layout)
        sizes[length] = max(saved)
    assert sizes[1_024] <= 2.1 * sizes[512] and sizes[2_048] <= 2.1 * sizes[1_024]
