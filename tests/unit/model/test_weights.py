import dataclasses

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.config.model import Model
from pipeline.errors import CheckpointError, ConfigError
from pipeline.model.encoder import Encoder
from pipeline.model.families.bert import BERT
from pipeline.model.heads import AnswerHead, ClassificationHead
from pipeline.model.weights import model_settings, published_config, take, take_all, to_published
from pipeline.objectives.masked import MaskedTokens

SETTINGS = Model(layers=12, width=4, heads=2, feed_forward=6, maximum_positions=9)
VOCABULARY_SIZE = 11


def make_state() -> dict[str, torch.Tensor]:
    model = MaskedTokens(SETTINGS, VOCABULARY_SIZE)
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(tensor.shape, generator=generator) for name, tensor in model.state_dict().items()}


def from_published(published: dict[str, torch.Tensor], settings: Model) -> dict[str, torch.Tensor]:
    return take_all(published, MaskedTokens(settings, VOCABULARY_SIZE).state_dict(), settings)


def make_published() -> dict[str, torch.Tensor]:
    return to_published(make_state(), BERT)


def test_names_by_hand():
    published = make_published()
    assert len(published) == 5 + 12 * 16 + 2 + 5 + 2
    for name in (
        "bert.embeddings.word_embeddings.weight",
        "bert.embeddings.LayerNorm.bias",
        "bert.encoder.layer.0.attention.self.query.weight",
        "bert.encoder.layer.11.attention.output.LayerNorm.weight",
        "bert.encoder.layer.1.output.dense.bias",
        "bert.pooler.dense.weight",
        "cls.predictions.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.seq_relationship.weight",
    ):
        assert name in published, name
    assert "cls.predictions.decoder.weight" not in published


def test_query_key_and_value_are_the_thirds_of_qkv():
    state = make_state()
    published = to_published(state, BERT)
    qkv = state["encoder.layers.10.attention.qkv.weight"]
    for i, part in enumerate(("query", "key", "value")):
        assert torch.equal(published[f"bert.encoder.layer.10.attention.self.{part}.weight"], qkv[4 * i : 4 * i + 4])


def test_every_row_of_the_table_names_a_module():
    modules = {
        name.replace("layers.0", "layers.#") for name, _ in MaskedTokens(SETTINGS, VOCABULARY_SIZE).named_modules()
    }
    of_tasks = {"classification_head", "tag_head", "answer_head", "choice_head", "attention_pooling"}
    assert BERT.names.keys() - modules == of_tasks
    alike = ("tag_head", "choice_head")  # they have the name of the classifier of texts
    named = [name for ours, name in BERT.names.items() if ours not in alike]
    assert len(set(named)) == len(named)


def test_there_and_back_changes_nothing():
    state = make_state()
    back = from_published(to_published(state, BERT), SETTINGS)
    assert list(back) == list(state)
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())
    MaskedTokens(SETTINGS, VOCABULARY_SIZE).load_state_dict(back)


def test_published_tensors_can_be_written_to_a_file(tmp_path):
    published = make_published()
    save_file(published, tmp_path / "model.safetensors")
    loaded = load_file(tmp_path / "model.safetensors")
    assert loaded.keys() == published.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in published.items())


def test_copies_of_tied_weights_and_constants_are_left_out():
    published = make_published()
    published["cls.predictions.decoder.weight"] = published["bert.embeddings.word_embeddings.weight"].clone()
    published["cls.predictions.decoder.bias"] = published["cls.predictions.bias"].clone()
    published["bert.embeddings.position_ids"] = torch.arange(9)[None]
    assert from_published(published, SETTINGS).keys() == make_state().keys()


def test_a_bias_under_its_second_name_is_found():
    published = make_published()
    published["cls.predictions.decoder.bias"] = published.pop("cls.predictions.bias")
    assert torch.equal(
        from_published(published, SETTINGS)["masked_token_head.bias"], make_state()["masked_token_head.bias"]
    )


def test_gamma_and_beta_are_weight_and_bias():
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in make_published().items()
    }
    assert "bert.encoder.layer.0.output.LayerNorm.gamma" in old
    state = from_published(old, SETTINGS)
    assert all(torch.equal(state[name], tensor) for name, tensor in make_state().items())


def refusal(published: dict[str, torch.Tensor], settings: Model = SETTINGS) -> str:
    with pytest.raises(CheckpointError) as error:
        from_published(published, settings)
    return str(error.value)


def test_a_missing_tensor_is_named():
    published = make_published()
    del published["bert.encoder.layer.3.attention.self.key.bias"]
    assert (
        refusal(published)
        == "tensor bert.encoder.layer.3.attention.self.key.bias is missing: only complete checkpoints can be loaded"
    )
    assert "bert.embeddings.word_embeddings.weight is missing" in refusal({})


def test_an_unexpected_tensor_is_named():
    message = (
        "tensor bert.encoder.layer.11.attention.self.query.weight is unexpected: a model with model.layers 11 "
        "has no tensor of this name"
    )
    assert refusal(make_published(), dataclasses.replace(SETTINGS, layers=11)) == message


def test_a_tensor_of_another_shape_is_named_with_both_shapes():
    message = (
        "tensor bert.embeddings.position_embeddings.weight has shape [9, 4], but the model's settings give [512, 4]"
    )
    assert refusal(make_published(), dataclasses.replace(SETTINGS, maximum_positions=512)) == message


def test_untied_output_weights_are_refused():
    published = make_published()
    published["cls.predictions.decoder.weight"] = torch.zeros(VOCABULARY_SIZE, 4)
    message = (
        "tensor cls.predictions.decoder.weight differs from bert.embeddings.word_embeddings.weight: only "
        "checkpoints in which both are equal can be loaded"
    )
    assert refusal(published) == message


def test_an_encoder_may_be_published_without_its_prefix_and_heads():
    bare = {name.removeprefix("bert."): tensor for name, tensor in make_published().items() if name.startswith("bert.")}
    taken = take(bare, MaskedTokens(SETTINGS, VOCABULARY_SIZE).state_dict(), BERT)
    assert taken.state.keys() == {name for name in make_state() if name.startswith("encoder.")}
    assert taken.surplus == () and taken.missing == (
        "cls.predictions.bias",
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
    )


def test_heads_of_other_tasks_are_told_apart():
    def parts(head: str, module: torch.nn.Module) -> torch.nn.Module:
        return torch.nn.ModuleDict({"encoder": Encoder(SETTINGS, VOCABULARY_SIZE), head: module})

    published = {name: tensor for name, tensor in make_published().items() if name.startswith("bert.")}
    published |= {"classifier.weight": torch.ones(3, 4), "classifier.bias": torch.ones(3)}
    taken = take(published, parts("classification_head", ClassificationHead(SETTINGS, 3)).state_dict(), BERT)
    assert (
        taken.state["classification_head.weight"].tolist() == [[1.0] * 4] * 3 and taken.missing == taken.surplus == ()
    )
    taken = take(published, parts("answer_head", AnswerHead(SETTINGS)).state_dict(), BERT)
    assert (taken.missing, taken.surplus) == (
        ("qa_outputs.weight", "qa_outputs.bias"),
        ("classifier.weight", "classifier.bias"),
    )
    with pytest.raises(
        CheckpointError, match=r"^tensor classifier.weight has shape \[3, 4\], but the model's settings give \[2, 4\]$"
    ):
        take(published, parts("classification_head", ClassificationHead(SETTINGS, 2)).state_dict(), BERT)


def test_config_by_hand():
    assert published_config(Model(), 30_522, 0) == {
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "num_hidden_layers": 2,
        "hidden_size": 128,
        "num_attention_heads": 2,
        "intermediate_size": 512,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "layer_norm_eps": 1e-12,
        "initializer_range": 0.02,
        "vocab_size": 30_522,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    }


def test_config_there_and_back():
    assert model_settings(published_config(SETTINGS, VOCABULARY_SIZE, 0)) == SETTINGS


def test_other_models_are_refused():
    config = published_config(SETTINGS, VOCABULARY_SIZE, 0)
    for change, message in (
        ({"hidden_act": "relu"}, "config.json: hidden_act is 'relu', but only 'gelu' can be loaded"),
        (
            {"model_type": "gpt2"},
            "config.json: model_type is 'gpt2', but only 'bert', 'roberta', 'electra', 'distilbert', 'albert', "
            "'xlm-roberta', 'modernbert', 'deberta', 'deberta-v2', 'longformer', 'bigbird' can be loaded",
        ),
        (
            {"position_embedding_type": "relative_key"},
            "config.json: position_embedding_type is 'relative_key', but only 'absolute' can be loaded",
        ),
        ({"is_decoder": True}, "config.json: is_decoder is True, but only False can be loaded"),
        (
            {"architectures": ["ElectraModel"]},
            "config.json: architectures is 'ElectraModel', but model_type 'bert' needs a class of BERT",
        ),
    ):
        with pytest.raises(CheckpointError) as error:
            model_settings(config | change)
        assert str(error.value) == message
    del config["hidden_size"]
    with pytest.raises(
        CheckpointError, match="^config.json: hidden_size is missing: BERT needs num_hidden_layers, hidden_size, "
    ):
        model_settings(config)
    with pytest.raises(ConfigError):
        model_settings(config | {"hidden_size": 5})


def test_a_head_that_only_this_project_has_may_be_left_out():
    published = make_published()
    state = from_published(published | {"crf.transitions": torch.zeros(2, 2)}, SETTINGS)
    assert state.keys() == make_state().keys()
    with pytest.raises(CheckpointError, match="tensor crfs.transitions is unexpected"):
        from_published(published | {"crfs.transitions": torch.zeros(2, 2)}, SETTINGS)
