"""Models of each family as others wrote them: the start of a run, and an encoder in Python."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pipeline import api
from pipeline.config.data import VocabularySettings
from pipeline.config.model import LearnedPositions, Model
from pipeline.errors import CheckpointError
from pipeline.model.weights import published_config
from pipeline.objectives.replaced import ReplacedTokens
from pipeline.objectives.table import Pretraining, build_objective, trained_parts
from pipeline.text.extension import extend_vocabulary, pieces_of_new_words
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.train.initial import Initial, agreed_model, extended_state, load_initial, read_initial
from tests.parity.families import ROWS, TEXTS, Row, shaken

transformers = pytest.importorskip("transformers")

CLASSES = {
    "BertForPreTraining": "bert",
    "BertForMaskedLM": "bert-unpaired",
    "BertModel": "bert",
    "RobertaForMaskedLM": "roberta",
    "RobertaModel": "roberta",
    "XLMRobertaForMaskedLM": "xlm-roberta",
    "XLMRobertaModel": "xlm-roberta",
    "ElectraForPreTraining": "electra",
    "ElectraForMaskedLM": "electra-masked",
    "ElectraModel": "electra",
    "DistilBertForMaskedLM": "distilbert",
    "DistilBertModel": "distilbert",
    "AlbertForPreTraining": "albert",
    "AlbertForMaskedLM": "albert-v1",
    "AlbertModel": "albert",
}
"""Class -> row that starts from it."""
MISSING = {
    "BertForMaskedLM": "",
    "BertModel": "; cls.predictions and cls.seq_relationship not in the model, so initialised at random",
    "RobertaModel": "; lm_head not in the model, so initialised at random; roberta.pooler.dense.bias, "
    "roberta.pooler.dense.weight left out",
    "XLMRobertaModel": "; lm_head not in the model, so initialised at random; roberta.pooler.dense.bias, "
    "roberta.pooler.dense.weight left out",
    "ElectraForPreTraining": "; generator not in the model, so initialised at random",
    "DistilBertModel": "; vocab_transform, vocab_layer_norm and vocab_projector not in the model, so initialised at "
    "random",
    "AlbertForMaskedLM": "",
    "AlbertModel": "; predictions and sop_classifier not in the model, so initialised at random",
    "ElectraModel": "; discriminator_predictions and generator not in the model, so initialised at random",
}
"""Class -> what the report says after the number of word embeddings."""
MASKED_TEXT = "The [MASK] house [MASK]."


@pytest.fixture(scope="module", params=CLASSES)
def named(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def row(named: str) -> Row:
    return ROWS[CLASSES[named]]


@pytest.fixture(scope="module")
def theirs(named: str, row: Row) -> nn.Module:
    vocabulary = row.vocabulary()
    config = published_config(row.settings, vocabulary.size, vocabulary.pad_id) | {"architectures": [named]}
    config = getattr(transformers, f"{row.prefix}Config")(**config)
    return shaken(getattr(transformers, named)(config), 3)


@pytest.fixture(scope="module")
def published(theirs: nn.Module, row: Row, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    theirs.save_pretrained(folder)
    save_vocabulary(row.vocabulary(), folder, 40)
    return folder


def started(row: Row, folder: Path, output: Path, lines: list[str]) -> tuple[Initial, Pretraining]:
    """The module of a run that starts from a folder."""
    used = trained_parts(row.objective, row.sampling)
    initial = read_initial(str(folder), VocabularySettings(), str(output), lines.append, used=used)
    model = agreed_model(Model(hidden_dropout=0.0, attention_dropout=0.0), initial, str(folder))
    module = build_objective(row.objective, row.sampling, model, initial.vocabulary.size)
    load_initial(initial, module)
    return initial, module.eval()


def their_states(theirs: nn.Module, ids: list[int]) -> np.ndarray:
    """The last hidden states of one text."""
    encoder = getattr(theirs, theirs.base_model_prefix, theirs)
    with torch.no_grad():
        return encoder(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()


def test_a_run_starts_with_their_weights(
    named: str, row: Row, theirs: nn.Module, published: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    initial, module = started(row, published, tmp_path, lines)
    assert initial.model == row.settings and initial.vocabulary == row.vocabulary()
    size = row.vocabulary().size
    assert lines == [f"init: weights of {published}, {size} word embeddings{MISSING.get(named, '')}"]
    model = api.load(str(published))
    (batch,) = model.batches(["The house, housing"])
    with torch.no_grad():
        states = module.encoder(batch).numpy()
    np.testing.assert_allclose(states, their_states(theirs, batch.ids_T.tolist()), rtol=0, atol=1e-5)


def test_python_has_their_vectors_and_words(named: str, row: Row, theirs: nn.Module, published: Path) -> None:
    model = api.load(str(published))
    mask = model.vocabulary.tokens[model.vocabulary.mask_id]
    tokenizer = transformers.AutoTokenizer.from_pretrained(published)
    texts = [TEXTS[0], TEXTS[3], MASKED_TEXT.replace("[MASK]", mask)]
    states = [their_states(theirs, tokenizer(text)["input_ids"]) for text in texts]
    for found, expected in zip(model.hidden(texts), states, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    means = np.stack([state.mean(0) for state in states])
    expected = means / np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(texts), expected, rtol=0, atol=1e-5)
    if not hasattr(theirs, "get_output_embeddings") or theirs.get_output_embeddings() is None:
        with pytest.raises(CheckpointError, match="has no head for masked tokens: load a pretrained model"):
            model.fill(texts[2])
        return
    asked = tokenizer(texts[2], return_tensors="pt")
    with torch.no_grad():
        output = theirs(**asked)
    logits = output["prediction_logits" if "prediction_logits" in output else "logits"]
    shares = logits[0, asked["input_ids"][0] == model.vocabulary.mask_id].softmax(-1)
    found = model.fill(texts[2], top=2)
    assert [[guess["token"] for guess in blank] for blank in found] == [
        tokenizer.convert_ids_to_tokens(best) for best in shares.topk(2).indices
    ]
    assert [blank[0]["probability"] for blank in found] == pytest.approx(shares.amax(-1).tolist(), abs=1e-5)


@pytest.mark.parametrize("name", ["bert", "roberta-wordpiece", "electra"])
def test_rows_of_new_words_are_the_means_of_their_pieces(name: str) -> None:
    row = ROWS[name]
    module, vocabulary = row.module(), row.vocabulary()
    longer = extend_vocabulary(vocabulary, ["abc", "xyz"])
    pieces = pieces_of_new_words(vocabulary, longer)
    entry = longer.ids["xyz"]
    assert len(pieces[entry]) == 3 and entry == vocabulary.size
    extended = build_objective(row.objective, row.sampling, row.settings, longer.size)
    extended.load_state_dict(extended_state(module.state_dict(), vocabulary, longer))
    torch.testing.assert_close(extended.words[entry], module.words[pieces[entry]].mean(0))
    if isinstance(extended, ReplacedTokens):
        head, before = extended.generator.masked_token_head, module.generator.masked_token_head
        assert extended.generator.encoder.embeddings.words.weight is extended.words
        torch.testing.assert_close(head.bias[entry], before.bias[pieces[entry]].mean())


def test_positions_start_after_the_padding_of_the_vocabulary(tmp_path: Path) -> None:
    row = ROWS["roberta-wordpiece"]
    assert row.vocabulary().pad_id == 0 and row.settings.positions == LearnedPositions(first=1)
    saved = row.save(row.module(), tmp_path)
    config = json.loads((saved / "config.json").read_text())
    assert (config["max_position_embeddings"], config["pad_token_id"], config["type_vocab_size"]) == (41, 0, 1)
    model = api.load(str(saved))
    theirs = transformers.AutoModel.from_pretrained(saved).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    texts = ["The House", TEXTS[4]]
    asked = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = theirs(**asked).last_hidden_state
    for text, state, mask in zip(texts, states, asked["attention_mask"], strict=True):
        np.testing.assert_allclose(model.hidden([text])[0], state[mask.bool()].numpy(), rtol=0, atol=1e-5)
    pair = tokenizer("The House", "a house", return_tensors="pt")
    with torch.no_grad():
        state = theirs(**pair).last_hidden_state[0].numpy()
    np.testing.assert_allclose(model.hidden([("The House", "a house")])[0], state, rtol=0, atol=1e-5)
