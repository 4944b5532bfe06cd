"""Each family with its heads against transformers: the same weights give the same logits, losses and gradients, and
files go both ways.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from pipeline.batch import MaskedBatch, NextSentenceBatch, SentenceOrderBatch, TaskBatch
from pipeline.errors import CheckpointError
from pipeline.export.trained import load_trained
from pipeline.model.families.table import family_of
from pipeline.model.weights import model_settings, published_config, take_all, to_published
from pipeline.objectives.replaced import ReplacedTokens
from pipeline.objectives.table import Pretraining
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.saved.model import open_saved
from tests.parity.families import (
    CLASSES,
    FAMILIES,
    ROWS,
    WITHOUT_CHOICES,
    Row,
    assert_close,
    pad,
    pretraining_batch,
    task_batch,
)
from tests.parity.families import their_inputs as inputs_of

transformers = pytest.importorskip("transformers")

TASK_CLASSES = {"tags": "ForTokenClassification", "spans": "ForQuestionAnswering", "choices": "ForMultipleChoice"}
PROBLEMS = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}
PAIR_LOGITS = {"seq_relationship_logits", "sop_logits"}
OF_VOCABULARIES = ("bert-cased", "bert-multilingual", "roberta-wordpiece")
"""Rows with the models of other rows; tests/parity/test_family_files.py compares their vocabularies."""


def load_whole(name: str, folder: Path) -> nn.Module:
    """A class of transformers from a folder, in which nothing is missing, unexpected or of another shape."""
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    return model.eval()


@pytest.fixture(scope="module", params=[name for name in ROWS if name not in OF_VOCABULARIES])
def row(request: pytest.FixtureRequest) -> Row:
    return ROWS[request.param]


@pytest.fixture(scope="module")
def ours(row: Row) -> Pretraining:
    return row.module()


@pytest.fixture(scope="module")
def folder(row: Row, ours: Pretraining, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return row.save(ours, tmp_path_factory.mktemp("family"))


@pytest.fixture(scope="module")
def theirs(row: Row, folder: Path) -> dict[str, nn.Module]:
    """Folder of a published model -> transformers' model of it."""
    return {name: load_whole(kind, folder / name) for name, kind in row.classes.items()}


@pytest.fixture
def batch(row: Row) -> MaskedBatch:
    return pretraining_batch(row, row.vocabulary().size)


def masked_model(theirs: dict[str, nn.Module]) -> nn.Module:
    return theirs.get("generator", theirs[""])


def test_logits_equal_theirs(row: Row, ours: Pretraining, theirs: dict[str, nn.Module], batch: MaskedBatch) -> None:
    inputs = inputs_of(row, batch)
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        found = ours.outputs(batch)
        output = masked_model(theirs)(**inputs)
        expected = {"masked": output["prediction_logits" if "prediction_logits" in output else "logits"]}
        expected = {"masked": expected["masked"][real][batch.masked_positions_M]}
        for logits in PAIR_LOGITS & output.keys():
            expected["pairs"] = output[logits]
        if "generator" in theirs:
            expected["replaced"] = theirs[""](**inputs).logits[real]
    assert found.keys() == expected.keys()
    for head, logits in expected.items():
        assert_close(found[head], logits, name=head)


def seen_by_discriminator(ours: ReplacedTokens, batch: MaskedBatch) -> tuple[dict, Tensor]:
    """The terms of a forward, and the ids with the generator's samples in them."""
    seen: list[Tensor] = []
    hook = ours.encoder.register_forward_pre_hook(lambda module, given: seen.append(given[0].ids_T))
    torch.manual_seed(3)
    terms = ours(batch)
    hook.remove()
    return terms, seen[0]


def test_losses_and_gradients_equal_theirs(
    row: Row, ours: Pretraining, theirs: dict[str, nn.Module], batch: MaskedBatch
) -> None:
    ours.zero_grad(), [model.zero_grad() for model in theirs.values()]
    labels = torch.full_like(batch.ids_T, -100)
    labels[batch.masked_positions_M] = batch.masked_labels_M
    asked = inputs_of(row, batch) | {"labels": pad(labels, batch, -100)}
    if isinstance(batch, NextSentenceBatch):
        asked["next_sentence_label"] = batch.not_next_N
    if isinstance(batch, SentenceOrderBatch):
        asked["sentence_order_label"] = batch.swapped_N
    expected = masked_model(theirs)(**asked).loss
    if isinstance(ours, ReplacedTokens):
        terms, seen_T = seen_by_discriminator(ours, batch)
        replaced_T = torch.zeros_like(labels)
        replaced_T[batch.masked_positions_M] = (seen_T[batch.masked_positions_M] != batch.masked_labels_M).long()
        assert replaced_T.sum() > 0 and (seen_T != batch.ids_T).sum() <= batch.masked
        sampled = inputs_of(row, replace(batch, ids_T=seen_T))
        expected = expected + 50 * theirs[""](**sampled, labels=pad(replaced_T, batch, 0)).loss
    else:
        terms = ours(batch)
    found = sum(ours.weights.get(term, 1) * total / count for term, (total, count) in terms.items() if count)
    assert_close(found, expected)
    found.backward(), expected.backward()
    gradients = {name: weight.grad for name, weight in ours.named_parameters() if weight.grad is not None}
    wanted = _their_gradients(row, theirs)
    largest = max(gradient.abs().max().item() for gradient in wanted.values())
    assert wanted.keys() == {key for model in ours.models() for key in _keys(model, gradients)}
    for model in ours.models():
        for (folder, name), gradient in _keys(model, gradients).items():
            assert_close(gradient, wanted[folder, name], 0.1 * largest, f"{folder} {name}")


def _keys(model, gradients: dict[str, Tensor]) -> dict[tuple[str, str], Tensor]:
    published = to_published(model.own(gradients), family_of(model.settings))
    return {(model.folder, name): gradient for name, gradient in published.items()}


def _their_parameters(row: Row, model: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters by name; a tied one has the name of the tensor that it repeats, which some classes list last."""
    tied = family_of(row.settings).tied
    return {tied.get(name, name): weight for name, weight in model.named_parameters()}


def _their_gradients(row: Row, theirs: dict[str, nn.Module]) -> dict[tuple[str, str], Tensor]:
    """Gradients by folder and name; those of the shared embeddings are added up, under the model's own."""
    found = {
        (folder, name): weight.grad
        for folder, model in theirs.items()
        for name, weight in _their_parameters(row, model).items()
        if weight.grad is not None
    }
    for folder, name in [key for key in found if key[0] and ".embeddings." in key[1]]:
        found["", name] = found["", name] + found.pop((folder, name))
    return found


def test_files_that_they_saved_load_here(
    row: Row, ours: Pretraining, theirs: dict[str, nn.Module], tmp_path: Path
) -> None:
    state = ours.state_dict()
    for model in ours.models():
        theirs[model.folder].save_pretrained(tmp_path / model.folder)
        saved = open_saved(str(tmp_path / model.folder))
        assert saved.settings == model.settings
        found = take_all(saved.tensors(), model.own(state), model.settings)
        own = model.own(state)
        assert found.keys() == own.keys() and all(torch.equal(found[name], own[name]) for name in own)


def test_a_checkpoint_loads_as_it_was(row: Row, ours: Pretraining, folder: Path) -> None:
    found = load_trained(str(folder))
    assert found.model == row.settings and type(found.module) is type(ours)
    state = found.module.state_dict()
    assert state.keys() == ours.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in ours.state_dict().items())


def test_output_weights_stay_tied(row: Row, ours: Pretraining, theirs: dict[str, nn.Module], folder: Path) -> None:
    model, family = masked_model(theirs), family_of(row.settings)
    output, words = model.get_output_embeddings(), model.get_input_embeddings()
    if not row.prefix.startswith("Deberta"):  # transformers multiplies by the word embeddings without a module
        assert output.weight is words.weight
    own = next(model for model in ours.models() if model.use == "masked")
    written = load_file(folder / own.path("model.safetensors"))
    assert not written.keys() & family.tied.keys()
    copy, original = next((copy, original) for copy, original in family.tied.items() if copy.endswith(".weight"))
    state = own.own(ours.state_dict())
    take_all(written | {copy: written[original]}, state, own.settings)
    with pytest.raises(
        CheckpointError, match=rf"^tensor {copy} differs from {original}: only checkpoints in which both are equal"
    ):
        take_all(written | {copy: written[original] + 1}, state, own.settings)


def test_their_tensors_have_our_names_and_shapes(row: Row, ours: Pretraining, theirs: dict[str, nn.Module]) -> None:
    for model in ours.models():
        written = to_published(model.own(ours.state_dict()), family_of(model.settings))
        shapes = {name: list(tensor.shape) for name, tensor in _their_parameters(row, theirs[model.folder]).items()}
        assert {name: list(tensor.shape) for name, tensor in written.items()} == shapes


# Similarity has no head, and ranking has that of a regression, whose losses transformers lacks.
@pytest.mark.parametrize("kind", [kind for kind in OBJECTIVES if kind not in ("similarity", "ranking")])
@pytest.mark.parametrize("name", [*FAMILIES, "xlm-roberta"])
def test_heads_of_tasks_equal_theirs(name: str, kind: str) -> None:
    if kind == "choices" and name in WITHOUT_CHOICES:
        pytest.skip("needs a class of transformers, which lacks it")
    row, module = ROWS[name], ROWS[name].task(kind)
    size, family = row.vocabulary().size, family_of(row.settings)
    # transformers' softmax over the tokens of a question runs over padding too, ours over a window's own tokens:
    # windows of one length have none.
    batch = task_batch(row, size, kind, (9, 9, 9, 9) if kind == "spans" else (9, 5, 12, 7))
    peer = _peer(row, kind, size)
    odd = peer.load_state_dict(to_published(module.state_dict(), family), strict=False)
    assert set(odd.missing_keys) == (row.unread if kind == "tags" else set()) and not odd.unexpected_keys
    total, count = module(batch)["task"]
    loss, output = total / count, _their_task(row, kind, peer.eval(), batch)
    assert_close(loss, output.loss)
    assert_close(module.logits(batch), _their_logits(row, kind, output, batch))
    loss.backward(), output.loss.backward()
    gradients = {name: weight.grad for name, weight in module.named_parameters() if weight.grad is not None}
    published = to_published(gradients, family)
    wanted = {name: weight.grad for name, weight in peer.named_parameters() if weight.grad is not None}
    assert published.keys() == wanted.keys()
    largest = max(gradient.abs().max().item() for gradient in wanted.values())
    for tensor, gradient in wanted.items():
        assert_close(published[tensor], gradient, 0.1 * largest, tensor)


def _peer(row: Row, kind: str, size: int) -> nn.Module:
    """transformers' model with the family's head for a kind of task."""
    labels = {} if kind == "spans" else {"num_labels": 1 if kind == "regression" else CLASSES}
    said = published_config(row.settings, size, row.vocabulary().pad_id, kind, row.vocabulary().sep_id)
    wanted = f"{row.prefix}{TASK_CLASSES.get(kind, 'ForSequenceClassification')}"
    assert said["architectures"] == [wanted]
    problem = {"problem_type": PROBLEMS[kind]} if kind in PROBLEMS else {}
    config = getattr(transformers, f"{row.prefix}Config")(**said, **problem, **labels)
    return getattr(transformers, wanted)(config)


def _their_task(row: Row, kind: str, peer: nn.Module, batch: TaskBatch):
    inputs = inputs_of(row, batch)
    if kind == "spans":
        start, end = batch.labels.view(-1, 2).long().T
        return peer(**inputs, start_positions=start, end_positions=end)
    if kind == "tags":
        return peer(**inputs, labels=pad(batch.labels.long(), batch, -100))
    if kind == "choices":
        of_rows = {name: tensor.unflatten(0, (-1, 2)) for name, tensor in inputs.items()}
        return peer(**of_rows, labels=batch.labels.long())
    if kind == "multilabel":
        return peer(**inputs, labels=batch.labels.view(-1, CLASSES))
    return peer(**inputs, labels=batch.labels.long() if kind == "classification" else batch.labels)


def _their_logits(row: Row, kind: str, output, batch: TaskBatch) -> Tensor:
    real = inputs_of(row, batch)["attention_mask"].bool()
    if kind == "spans":
        return torch.stack((output.start_logits, output.end_logits), -1)[real]
    return output.logits[real] if kind == "tags" else output.logits


@pytest.mark.parametrize("name", [*FAMILIES, "xlm-roberta"])
def test_missing_fields_have_their_defaults(name: str) -> None:
    row = ROWS[name]
    family, config = family_of(row.settings), published_config(row.settings, 99, row.vocabulary().pad_id)
    # Of RoBERTa's segments, their default is 2, which no published RoBERTa has; such weights are refused.
    for field in set(family.config.values()) - {*family.size_fields, "type_vocab_size"}:
        rest = {name: value for name, value in config.items() if name != field}
        theirs = getattr(transformers, f"{row.prefix}Config")(**rest).to_dict()
        assert model_settings(rest) == model_settings(theirs), field


def test_distilberts_positions_may_have_begun_as_sines() -> None:
    row, module = ROWS["distilbert"], ROWS["distilbert"].task("classification")
    config = published_config(row.settings, row.vocabulary().size, 0, "classification") | {"sinusoidal_pos_embds": True}
    settings = transformers.DistilBertConfig(**config, num_labels=CLASSES)
    peer = transformers.DistilBertForSequenceClassification(settings).eval()
    module.load_state_dict(take_all(peer.state_dict(), module.state_dict(), model_settings(config)))
    batch = task_batch(row, row.vocabulary().size, "classification")
    assert_close(module.eval().logits(batch), peer(**inputs_of(row, batch)).logits)


@pytest.mark.parametrize(
    "name",
    [
        *("bert-unpaired", "roberta", "electra", "distilbert", "albert", "modernbert", "deberta", "deberta-v2"),
        *("longformer", "bigbird"),
    ],
)
@pytest.mark.parametrize("bare", [False, True])
def test_config_goes_both_ways(name: str, bare: bool) -> None:
    row = ROWS[name]
    settings = row.settings if not bare else replace(row.settings, embedding_width=None)
    kind = getattr(transformers, f"{row.prefix}Config")
    config = kind(**published_config(settings, 99, row.vocabulary().pad_id))
    assert model_settings(config.to_dict()) == settings
    assert config.tie_word_embeddings and config.pad_token_id == row.vocabulary().pad_id
    assert config.max_position_embeddings == 40 + settings.first_position
    assert model_settings(json.loads(config.to_json_string(use_diff=False))) == settings
