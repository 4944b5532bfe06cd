"""A loaded folder's vectors, states, attention and blanks, as transformers computes them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline import api
from pipeline.config.jobs import Pretrain
from pipeline.config.training import AdamW
from pipeline.errors import CheckpointError
from pipeline.export.card import Lineage
from pipeline.export.huggingface import export
from pipeline.optim.build import build_optimizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.checkpoint import State, save

transformers = pytest.importorskip("transformers")

TEXTS = ["Kar kand, kap!", "lost LOST lol " * 20, "", "unseen: 你好 é", "[MASK] is no word", ("kap kar", "lost mist")]
CLOSE = {"rtol": 0.0, "atol": 1e-5}


@pytest.fixture(scope="module")
def folder(
    tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tiny_lineage: Lineage, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An export whose weights are far from where they start."""
    from pipeline.objectives.masked import MaskedTokens

    place, generator = tmp_path_factory.mktemp("api"), torch.Generator().manual_seed(6)
    module = MaskedTokens(tiny_config.model, tiny_vocabulary.size, generator)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.empty_like(parameter).normal_(std=0.1, generator=generator)
    saved = save(str(place / "run"), State(step=7), module, build_optimizer(AdamW(), module), tiny_vocabulary)
    export(saved, str(place / "export"), tiny_lineage)
    return place / "export"


@pytest.fixture(scope="module")
def theirs(folder: Path):
    """Return a function: transformers' outputs for a text, with all states and attentions."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForPreTraining.from_pretrained(folder, attn_implementation="eager").eval()

    def outputs(text: api.Text):
        pair = text if isinstance(text, tuple) else (text,)
        inputs = tokenizer(*pair, return_tensors="pt", truncation=True, max_length=32, return_offsets_mapping=True)
        spans = inputs.pop("offset_mapping")[0].numpy()
        with torch.inference_mode():
            found = model(**inputs, output_hidden_states=True, output_attentions=True)
            found["pooled"] = model.bert.pooler(found.hidden_states[-1])
        return inputs, spans, found

    return [outputs(text) for text in TEXTS]


def test_tokens_are_theirs(folder: Path, theirs) -> None:
    model = api.load(str(folder))
    for text, (inputs, spans, _) in zip(TEXTS, theirs, strict=True):
        found = model.tokenize(text)
        assert (
            found.ids.tolist() == inputs["input_ids"][0].tolist()
            and found.segments.tolist() == inputs["token_type_ids"][0].tolist()
        )
        assert found.spans.tolist() == spans.tolist() and len(found.pieces) == len(found.ids) <= 32


def test_states_and_vectors_are_theirs(folder: Path, theirs) -> None:
    model = api.load(str(folder))
    last, several = model.hidden(TEXTS), model.hidden(TEXTS, layers=(0, -2, 2))
    for place, (_, _, found) in enumerate(theirs):
        states = [state[0].numpy() for state in found.hidden_states]
        np.testing.assert_allclose(last[place], states[-1], **CLOSE)
        np.testing.assert_allclose(several[place], np.stack([states[0], states[-2], states[2]]), **CLOSE)
    by_text = [found.hidden_states[-1][0].numpy() for _, _, found in theirs]
    np.testing.assert_allclose(model.cls(TEXTS), [states[0] for states in by_text], **CLOSE)
    np.testing.assert_allclose(model.pooled(TEXTS), [found["pooled"][0].numpy() for _, _, found in theirs], **CLOSE)
    means = np.stack([states.mean(0) for states in by_text])
    np.testing.assert_allclose(model.embed(TEXTS), means / np.linalg.norm(means, axis=1, keepdims=True), **CLOSE)


def test_attentions_and_blanks_are_theirs(folder: Path, theirs) -> None:
    model = api.load(str(folder))
    for place in (0, 5):
        wanted = torch.stack(theirs[place][2].attentions)[:, 0].numpy()
        np.testing.assert_allclose(model.attentions(TEXTS[place]), wanted, **CLOSE)
    ((best, second, *_),) = model.fill("[MASK] is no word")
    shares = theirs[4][2].prediction_logits[0, 1].softmax(-1)
    tokens = model.vocabulary.tokens
    assert [one["token"] for one in (best, second)] == [tokens[i] for i in shares.topk(2).indices.tolist()]
    assert best["probability"] == pytest.approx(shares.max().item(), abs=1e-5)


def test_the_mean_of_the_last_four_layers_is_theirs(tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    torch.manual_seed(0)
    settings = transformers.BertConfig(
        vocab_size=tiny_vocabulary.size, hidden_size=16, num_hidden_layers=5, num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32, attn_implementation="eager",
    )  # fmt: skip
    encoder = transformers.BertModel(settings, add_pooling_layer=False).eval()
    encoder.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tiny_vocabulary.tokens))
    model = api.load(str(tmp_path))
    ids = torch.tensor(model.tokenize("kar kand").ids)[None]
    with torch.inference_mode():
        states = encoder(ids, output_hidden_states=True).hidden_states
    (found,) = model.hidden(["kar kand"], layers="mean of last four")
    np.testing.assert_allclose(found, torch.stack(states[-4:]).mean(0)[0].numpy(), **CLOSE)
    with pytest.raises(CheckpointError, match=r"has no pooler: use \.cls or \.embed$"):
        model.pooled(["kar"])
    with pytest.raises(CheckpointError, match=r"has no head for masked tokens: load a pretrained model"):
        model.fill("[MASK] kar")
