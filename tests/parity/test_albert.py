"""ALBERT beside transformers: published sizes, vocabulary files, and what shared layers mean for training."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pipeline.config.adapters import Freeze, LowRank
from pipeline.config.finetune import Finetune
from pipeline.config.training import AdamW, Lamb, TaskAdamW
from pipeline.errors import ConfigError
from pipeline.model.adapters import add_adapter, freeze, merge
from pipeline.model.families.albert import ALBERT
from pipeline.model.states import attention_weights, layer_states
from pipeline.model.weights import model_settings, published_config, to_published
from pipeline.objectives.table import build_objective
from pipeline.optim.build import build_optimizer
from pipeline.presets.table import PRESETS
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from tests.parity.families import ROWS, TEXTS, assert_close, pretraining_batch, task_batch, their_inputs
from tests.parity.test_family_files import encoded
from tests.unit.text.test_sentencepiece_model import PIECES, x_becomes_y

transformers = pytest.importorskip("transformers")
converters = pytest.importorskip("transformers.convert_slow_tokenizer")
ROW = ROWS["albert"]
SIZE = ROW.vocabulary().size


@pytest.mark.parametrize(
    ("name", "encoder", "both_heads"),
    [
        ("albert-base", 11_683_584, 11_813_810),
        ("albert-large", 17_683_968, 17_847_474),
        ("albert-xlarge", 58_724_864, 59_021_490),
        ("albert-xxlarge", 222_595_584, 223_158_450),
    ],
)
def test_presets_have_the_parameters_of_the_published_models(name: str, encoder: int, both_heads: int) -> None:
    preset = PRESETS[name]
    config = transformers.AlbertConfig(**published_config(preset.model, 30_000, 0))
    with torch.device("meta"):
        ours = build_objective(preset.objective, preset.sampling, preset.model, 30_000)
        theirs = transformers.AlbertForPreTraining(config)
    assert _count(ours.encoder) == _count(theirs.albert) == encoder
    assert _count(ours) == _count(theirs) == both_heads


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_default_config_of_theirs_is_xxlarge() -> None:
    assert model_settings(transformers.AlbertConfig().to_dict()) == PRESETS["albert-xxlarge"].model


def published_spiece(folder: Path) -> None:
    """spiece.model, written by the classes that protoc generates. Without user-defined pieces: the converter splits
    text at these and then puts a space after them, which SentencePiece and ALBERT's published tokenizer.json do not.
    """
    model = converters.import_protobuf().ModelProto()
    for text, score, kind in (*PIECES, ("9,", -2.5, 1), ("▁house", -2.0, 1)):
        model.pieces.add(piece=text, score=score, type=kind)
    model.trainer_spec.model_type, model.trainer_spec.unk_id = 1, 1
    model.normalizer_spec.precompiled_charsmap = x_becomes_y()
    (folder / "spiece.model").write_bytes(model.SerializeToString())


def test_a_sentencepiece_model_gives_the_ids_of_transformers_and_so_does_our_export(tmp_path: Path) -> None:
    published_spiece(tmp_path)
    slow = SimpleNamespace(
        vocab_file=str(tmp_path / "spiece.model"),
        keep_accents=False,
        do_lower_case=True,
        convert_tokens_to_ids=[row[0] for row in PIECES].index,
    )
    theirs = converters.AlbertConverter(slow).converted()
    vocabulary = load_vocabulary(str(tmp_path), None)
    texts = [*TEXTS, "xs 9, 99,9", "the cats, 9,", "``the'' É"]
    wanted = [theirs.encode(text).ids for text in texts]
    assert [encoded(vocabulary, text) for text in texts] == wanted
    assert len({id_ for ids in wanted for id_ in ids}) > 12  # not only the unknown entry
    (tmp_path / "export").mkdir()
    save_vocabulary(vocabulary, tmp_path / "export", 40)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    assert exported(texts)["input_ids"] == wanted
    assert load_vocabulary(str(tmp_path / "export"), None).tokens == vocabulary.tokens


def test_states_and_attention_have_an_entry_per_application_of_the_layer() -> None:
    module, batch = ROW.module(), task_batch(ROW, SIZE, "tags", (9,))
    config = transformers.AlbertConfig(**published_config(ROW.settings, SIZE, 0), attn_implementation="eager")
    peer = transformers.AlbertModel(config, add_pooling_layer=False).eval()
    weights = to_published({f"encoder.{name}": value for name, value in module.encoder.state_dict().items()}, ALBERT)
    peer.load_state_dict({name.removeprefix("albert."): value for name, value in weights.items()}, strict=False)
    with torch.no_grad():
        output = peer(**their_inputs(ROW, batch), output_hidden_states=True, output_attentions=True)
    states, attention = layer_states(module.encoder, batch), attention_weights(module.encoder, batch)
    assert (len(states), len(attention)) == (4, 3)
    assert_close(torch.stack(states[1:]), torch.cat(output.hidden_states[1:]))
    assert_close(attention, torch.cat(output.attentions))


def test_training_changes_the_shared_layer_once_per_step_for_each_optimiser() -> None:
    for chosen in (AdamW(learning_rate=0.01), Lamb(learning_rate=0.01)):
        module = ROW.module()
        optimizer = build_optimizer(chosen, module)
        held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        assert len(held) == len({id(parameter) for parameter in held}) == len(list(module.parameters()))
        sum(total for total, _ in module(pretraining_batch(ROW, SIZE)).values()).backward()
        optimizer.step()
        assert optimizer.state[module.encoder.layers[0].attention.qkv.weight]["step"] == 1


def test_a_low_rank_change_of_the_shared_layer_is_merged_once() -> None:
    module, batch = ROW.task("classification"), task_batch(ROW, SIZE, "classification")
    add_adapter(module, LowRank(rank=2, everywhere=True), torch.Generator().manual_seed(0))
    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad and "layers" in name]
    assert len(names) == 2 * (3 + 3)  # both factors of query, key and value, and of three linear layers
    with torch.no_grad():
        for name in names:
            module.get_parameter(name).normal_(std=0.1, generator=torch.Generator().manual_seed(1))
        adapted = module.logits(batch)
        merge(module)
        assert_close(module.logits(batch), adapted)


def test_shared_layers_are_frozen_together_or_not_at_all() -> None:
    module = ROW.task("tags")
    with pytest.raises(ConfigError, match=r"^freeze.layers \(1\) must be 0 or 3 for model.family albert: its 3 layers"):
        freeze(module, 1, embeddings=False)
    freeze(module, 0, embeddings=False)
    assert all(parameter.requires_grad for parameter in module.encoder.layers.parameters())
    freeze(module, 3, embeddings=False)
    assert not any(parameter.requires_grad for parameter in module.encoder.layers.parameters())
    with pytest.raises(ConfigError, match=r"^freeze.layers \(4\) must be at most the model's layers \(3\)$"):
        freeze(module, 4, embeddings=False)


def test_a_rate_that_falls_from_layer_to_layer_is_refused() -> None:
    said = r"^optimizer.layer_decay \(0.8\) must be 1 for model.family albert: its layers share their weights"
    with pytest.raises(ConfigError, match=said):
        replace(PRESETS["albert-tiny"], optimizer=AdamW(layer_decay=0.8))
    tuned = Finetune(checkpoint="a", task=("sst2",), data="b", optimizer=TaskAdamW(layer_decay=0.8))
    with pytest.raises(ConfigError, match=said):
        tuned.for_model(ROW.settings)
    frozen = Finetune(checkpoint="a", task=("sst2",), data="b", freeze=Freeze(layers=2))
    with pytest.raises(ConfigError, match=r"^freeze.layers \(2\) must be 0 or 3"):
        frozen.for_model(ROW.settings)
    assert Finetune(checkpoint="a", task=("sst2",), data="b").for_model(ROW.settings).optimizer.layer_decay == 1
