"""DeBERTa beyond the table of families: published sizes, replaced tokens, both masked-token heads of transformers, the
enhanced mask decoder in files, narrow numbers, tokenizers, and settings that are refused.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from pipeline import api
from pipeline.config.objective import Masked, Replaced
from pipeline.errors import CheckpointError
from pipeline.export.huggingface import check
from pipeline.export.trained import load_trained
from pipeline.model.encoder import Encoder
from pipeline.model.families.table import family_of
from pipeline.model.states import attention_weights
from pipeline.model.weights import (
    model_settings,
    pretrained_parts,
    published_config,
    take_all,
    to_published,
    without_memory,
)
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.replaced import ReplacedTokens
from pipeline.presets.table import PRESETS
from pipeline.text.vocabulary_loading import load_vocabulary
from tests.parity.families import ROWS, TEXTS, Row, assert_close, pretraining_batch, shaken, task_batch, their_inputs
from tests.parity.test_families import load_whole
from tests.parity.test_family_errors import refusal
from tests.parity.test_family_files import encoded
from tests.unit.text.test_sentencepiece_model import DEBERTA as PIECES
from tests.unit.text.test_sentencepiece_model import model as spm_model
from tests.unit.text.test_sentencepiece_model import x_becomes_y

transformers = pytest.importorskip("transformers")
converters = pytest.importorskip("transformers.convert_slow_tokenizer")

FIRST, SECOND = (
    replace(row, vocabulary=cache(row.vocabulary))  # training a vocabulary takes longer than most tests here
    for row in (ROWS["deberta"], ROWS["deberta-v2"])
)
THIRD = replace(
    SECOND, objective=Replaced(generator_share=1.0, generator_depth=0.5, embedding_sharing="gradient-disentangled")
)
ENHANCED = replace(FIRST, objective=Masked(decoder="enhanced"))


# Parameters of transformers' AutoModel and AutoModelForMaskedLM from the published config.json files.
@pytest.mark.parametrize(
    ("preset", "encoder", "with_head"),
    [
        ("deberta-base", 138_601_728, 139_244_121),
        ("deberta-v3-xsmall", 70_682_112, 70_958_820),
        ("deberta-v3-small", 141_304_320, 142_024_548),
        ("deberta-v3-base", 183_831_552, 184_551_780),
    ],
)
def test_presets_have_the_published_number_of_parameters(preset: str, encoder: int, with_head: int) -> None:
    config = PRESETS[preset]
    with without_memory():
        plain = Encoder(config.model, config.vocabulary.size)
        masked = MaskedTokens(config.model, config.vocabulary.size, pairs=False)
    assert sum(parameter.numel() for parameter in plain.parameters()) == encoder
    assert sum(parameter.numel() for parameter in masked.parameters()) == with_head


def test_replaced_tokens_in_files(tmp_path: Path) -> None:
    module = THIRD.module()
    assert isinstance(module, ReplacedTokens)
    folder, batch = THIRD.save(module, tmp_path), pretraining_batch(THIRD, THIRD.vocabulary().size)
    inputs = their_inputs(THIRD, batch)
    real = inputs["attention_mask"].bool()
    # transformers has no head for DeBERTa's replaced tokens: the hidden states are the same, and the head is left over.
    encoder, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and {name.split(".")[0] for name in info["unexpected_keys"]} == {"mask_predictions"}
    generator = load_whole("DebertaV2ForMaskedLM", folder / "generator")
    with torch.no_grad():
        assert_close(module.encoder(batch), encoder.eval()(**inputs).last_hidden_state[real])
        logits = generator(**inputs).logits[real][batch.masked_positions_M]
        assert_close(module.predict_masked(batch), logits)
        found = load_trained(str(folder))
        assert_close(found.module.outputs(batch)["replaced"], module.outputs(batch)["replaced"])
    assert check(folder, found) == (
        "checked: the model's hidden states and its generator's logits equal transformers' within 1e-05 of the largest"
    )
    words = load_file(folder / "model.safetensors")["deberta.embeddings.word_embeddings.weight"]
    table, shared = module.encoder.embeddings.words.weight, module.words
    assert torch.equal(words, table + shared) and table.any()


def test_the_enhanced_mask_decoder_in_files(tmp_path: Path) -> None:
    module = ENHANCED.module()
    assert isinstance(module, MaskedTokens)
    folder, batch = ENHANCED.save(module, tmp_path), pretraining_batch(ENHANCED, ENHANCED.vocabulary().size)
    found = load_trained(str(folder))
    with torch.no_grad():
        assert torch.equal(found.module.outputs(batch)["masked"], module.outputs(batch)["masked"])
        plain = module.masked_logits(module.encoder(batch), batch)
        assert not torch.allclose(plain, module.outputs(batch)["masked"])
        # transformers predicts from the plain states, and leaves out the positions without a word.
        peer = load_whole("DebertaForMaskedLM", folder)
        inputs = their_inputs(ENHANCED, batch)
        real = inputs["attention_mask"].bool()
        assert_close(plain, peer(**inputs).logits[real][batch.masked_positions_M])
    assert check(folder, found) == "checked: hidden states equal transformers' within 1e-05 of the largest"
    loaded = api.load(str(folder))
    assert loaded.pretrained is not None and loaded.pretrained.module.enhanced_decoder is not None


@pytest.mark.parametrize("row", [FIRST, SECOND])
def test_transformers_legacy_head_is_read_and_the_published_one_is_not_read_by_it(row: Row, tmp_path: Path) -> None:
    size = row.vocabulary().size
    said = published_config(row.settings, size, row.vocabulary().pad_id)
    assert said["legacy"] is False
    config = getattr(transformers, f"{row.prefix}Config")(**said | {"legacy": True})
    peer = shaken(getattr(transformers, f"{row.prefix}ForMaskedLM")(config), 3)
    with torch.no_grad():
        peer.cls.predictions.decoder.bias = peer.cls.predictions.bias
    peer.save_pretrained(tmp_path / "legacy")
    batch = pretraining_batch(row, size)
    module = MaskedTokens(row.settings, size, pairs=False).eval()
    tensors = load_file(tmp_path / "legacy" / "model.safetensors")
    module.load_state_dict(take_all(tensors, module.state_dict(), row.settings))
    inputs = their_inputs(row, batch)
    with torch.no_grad():
        logits = peer(**inputs).logits[inputs["attention_mask"].bool()][batch.masked_positions_M]
        assert_close(module.outputs(batch)["masked"], logits)
    # A folder with the published names but without "legacy": false leaves transformers' head at random.
    made = row.save(row.module(), tmp_path / "ours")
    _, info = type(peer).from_pretrained(made, legacy=True, output_loading_info=True)
    assert "cls.predictions.transform.dense.weight" in info["missing_keys"]


@pytest.mark.parametrize("row", [FIRST, SECOND])
def test_attention_weights_equal_theirs(row: Row) -> None:
    module, batch = row.module(), task_batch(row, row.vocabulary().size, "tags", (21,))
    said = published_config(row.settings, row.vocabulary().size, row.vocabulary().pad_id)
    peer = getattr(transformers, f"{row.prefix}Model")(getattr(transformers, f"{row.prefix}Config")(**said)).eval()
    state = {f"encoder.{name}": value for name, value in module.encoder.state_dict().items()}
    written = to_published(state, family_of(row.settings))
    peer.load_state_dict({name.removeprefix("deberta."): value for name, value in written.items()})
    with torch.no_grad():
        theirs = peer(**their_inputs(row, batch), output_attentions=True).attentions
    assert_close(attention_weights(module.encoder, batch), torch.cat(theirs))


# A sequence of 10 tokens has distances up to 9. The maximum distance is 10 in version 1; version 2 has 4 near distances
# of their own in each direction, 8 buckets and a maximum distance of 16.
@pytest.mark.parametrize(
    "lengths",
    [(1,), (4,), (5,), (6,), (8,), (9,), (10,), (11,), (12,), (16,), (17,), (18,), (40,), (17, 40, 1, 11, 12, 40)],
    ids=str,
)
@pytest.mark.parametrize("row", [FIRST, SECOND], ids=["v1", "v2"])
def test_states_and_gradients_equal_theirs_below_at_and_above_the_maximum_distance(
    row: Row, lengths: tuple[int, ...]
) -> None:
    assert_equal_theirs(row, lengths, dummy=0)


@pytest.mark.parametrize("dummy", [1, 2, 40])
@pytest.mark.parametrize("row", [FIRST, SECOND], ids=["v1", "v2"])
def test_states_and_gradients_beside_a_dummy_sequence_equal_theirs(row: Row, dummy: int) -> None:
    """The last sequence of our batch is a dummy that no result counts, and their batch lacks it."""
    assert_equal_theirs(row, (24, 7, 11), dummy)


def assert_equal_theirs(row: Row, lengths: tuple[int, ...], dummy: int) -> None:
    """Compare hidden states and gradients; our batch also has a sequence of `dummy` tokens unless it is 0."""
    size = row.vocabulary().size
    ours = shaken(Encoder(row.settings, size), 5)
    said = published_config(row.settings, size, row.vocabulary().pad_id)
    theirs = getattr(transformers, f"{row.prefix}Model")(getattr(transformers, f"{row.prefix}Config")(**said)).eval()
    written = to_published(
        {f"encoder.{name}": value for name, value in ours.state_dict().items()}, family_of(row.settings)
    )
    theirs.load_state_dict({name.removeprefix("deberta."): value for name, value in written.items()})
    batch = task_batch(row, size, "", lengths)
    inputs, filled = their_inputs(row, batch), batch
    if dummy:
        filled = task_batch(row, size, "", (*lengths, dummy))
        filled = replace(filled, ids_T=torch.cat([batch.ids_T, torch.zeros(dummy, dtype=torch.int64)]))
    weights = torch.randn(batch.tokens, 32, generator=torch.Generator().manual_seed(1))
    hidden = ours(filled)[: batch.tokens]
    expected = theirs(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
    assert_close(hidden, expected)
    for states in (hidden, expected):
        (states * weights).sum().backward()
    given = {f"encoder.{name}": weight.grad for name, weight in ours.named_parameters()}
    found = to_published(
        {name: gradient for name, gradient in given.items() if gradient is not None}, family_of(row.settings)
    )
    wanted = {f"deberta.{name}": weight.grad for name, weight in theirs.named_parameters()}
    assert found.keys() == wanted.keys()
    largest = max(gradient.abs().max().item() for gradient in wanted.values())
    for name, gradient in wanted.items():
        assert_close(found[name], gradient, 0.1 * largest, name)


@pytest.mark.parametrize("row", [FIRST, SECOND, THIRD, ENHANCED])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_numbers_stay_finite(row: Row, dtype: torch.dtype) -> None:
    module, batch = row.module(), pretraining_batch(row, row.vocabulary().size)
    exact = {name: logits.detach() for name, logits in module.outputs(batch).items()}
    module.train()
    with torch.autocast("cpu", dtype=dtype):
        total = sum(loss for loss, _ in module(batch).values())
    total.backward()
    assert total.isfinite() and all(parameter.grad.isfinite().all() for parameter in module.parameters())
    narrow = module.to(dtype).eval()
    with torch.no_grad():
        for name, logits in narrow.outputs(batch).items():
            assert logits.isfinite().all()
            assert (logits - exact[name]).abs().max() < 0.15 * exact[name].abs().max()


def test_ids_of_the_sentencepiece_model_are_those_of_transformers(tmp_path: Path) -> None:
    unknown = b"\xc0\x02\x03"  # unk_id, field 40 of the trainer's settings, which transformers reads
    (tmp_path / "spm.model").write_bytes(spm_model(PIECES, trainer=unknown, characters=x_becomes_y()))
    for lowercase in (False, True):
        slow = SimpleNamespace(
            vocab_file=str(tmp_path / "spm.model"),
            do_lower_case=lowercase,
            split_by_punct=False,
            add_prefix_space=True,
            convert_tokens_to_ids=[row[0] for row in PIECES].index,
        )
        (tmp_path / "tokenizer_config.json").write_text(f'{{"do_lower_case": {str(lowercase).lower()}}}')
        theirs = converters.DebertaV2Converter(slow).converted()
        vocabulary = load_vocabulary(str(tmp_path), None)
        texts = [*TEXTS, "xs 9, 99,9", " the  cats, 9,", "``the'' é É"]
        wanted = [theirs.encode(text).ids for text in texts]
        assert [encoded(vocabulary, text) for text in texts] == wanted
        assert len({entry for ids in wanted for entry in ids}) > 10  # not only the unknown entry


@pytest.mark.parametrize(
    ("row", "change", "message"),
    [
        (FIRST, {"pos_att_type": "c2p"}, "pos_att_type is 'c2p', but only 'c2p|p2c' can be loaded"),
        (FIRST, {"relative_attention": False}, "relative_attention is False, but only True can be loaded"),
        (FIRST, {"position_biased_input": True}, "position_biased_input is True, but only False can be loaded"),
        (FIRST, {"talking_head": True}, "talking_head is True, but only False can be loaded"),
        (FIRST, {"embedding_size": 8}, "embedding_size is 8, but only 32 can be loaded"),
        (FIRST, {"max_relative_positions": "a"}, "max_relative_positions is 'a', which is not a whole number"),
        (SECOND, {"share_att_key": False}, "share_att_key is False, but only True can be loaded"),
        (SECOND, {"norm_rel_ebd": "none"}, "norm_rel_ebd is 'none', but only 'layer_norm' can be loaded"),
        (SECOND, {"position_buckets": -1}, "position_buckets is -1, but must be a whole number of at least 4"),
        (
            SECOND,
            {"conv_kernel_size": 3},
            "conv_kernel_size is 3, but only models without a convolution can be loaded: use DeBERTa v3, which has "
            "none",
        ),
    ],
)
def test_other_attention_is_refused_in_one_line(row: Row, change: dict, message: str) -> None:
    config = published_config(row.settings, 99, 0)
    with pytest.raises(CheckpointError) as refused:
        model_settings(config | change)
    assert str(refused.value) == f"config.json: {message}"


def test_a_teacher_with_the_enhanced_mask_decoder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ENHANCED.save(ENHANCED.module(), tmp_path)
    arguments = ["distilbert-tiny", "objective:distilled", "--objective.teacher", str(folder)]
    assert refusal(arguments, capsys, tmp_path / "out").endswith(
        "predicts masked tokens with an enhanced mask decoder, which a teacher cannot have: give a model that was "
        "trained with objective.decoder plain"
    )


def test_published_configs_are_read() -> None:
    # The fields of microsoft/deberta-base and microsoft/deberta-v3-base, where the terms are a text.
    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12}
    common = sizes | {"hidden_act": "gelu", "relative_attention": True, "position_biased_input": False}
    common |= {"max_relative_positions": -1, "type_vocab_size": 0, "layer_norm_eps": 1e-7, "initializer_range": 0.02}
    first = common | {"model_type": "deberta", "pos_att_type": "c2p|p2c", "padding_idx": 0}
    assert model_settings(first) == PRESETS["deberta-base"].model
    third = common | {"model_type": "deberta-v2", "pos_att_type": "p2c|c2p", "position_buckets": 256}
    third |= {"norm_rel_ebd": "layer_norm", "share_att_key": True}
    assert model_settings(third) == PRESETS["deberta-v3-base"].model


def test_published_discriminators_have_these_heads() -> None:
    # pytorch_model.bin of version 3 has the encoder, the masked-token head and the head for replaced tokens.
    parts = pretrained_parts(SECOND.settings, SECOND.vocabulary().size).to_empty(device="cpu")
    written = to_published(parts.state_dict(), family_of(SECOND.settings))
    assert {name.split(".")[0] for name in written} == {"deberta", "lm_predictions", "mask_predictions"}
    assert written["mask_predictions.classifier.weight"].shape == (1, 32)
    assert written["deberta.embeddings.position_embeddings.weight"].shape == (40, 32)
