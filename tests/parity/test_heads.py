"""BERT with each of its heads and with vocabularies of each sort, from transformers to us and back: the same names,
shapes and logits.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.model.encoder import Encoder
from pipeline.model.heads import AnswerHead, ClassificationHead, MaskedTokenHead, NextSentenceHead
from pipeline.model.published import published_folder, read_config, read_weights
from pipeline.model.weights import model_settings, published_config, take, to_published
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.text.wordpiece import WordPiece

transformers = pytest.importorskip("transformers")

SETTINGS = Model(layers=2, width=32, heads=4, feed_forward=48, maximum_positions=40)
SPECIALS = ("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
CONTINUED = tuple(f"##{letter}" for letter in LETTERS)
MARKS = (",", ".", "?", "-")
CLASSES = 3


def uncased() -> Vocabulary:
    return Vocabulary(tokens=(*SPECIALS, *MARKS, *LETTERS, *CONTINUED, "the", "house", "##ing"), lowercase=True)


def cased() -> Vocabulary:
    capitals = tuple(letter.upper() for letter in LETTERS)
    return Vocabulary(
        tokens=(*SPECIALS, *MARKS, *LETTERS, *CONTINUED, *capitals, "The", "House", "Straße", "é", "##é"),
        lowercase=False,
    )


def multilingual() -> Vocabulary:
    """Cased, accents kept, letters of several scripts, Chinese characters each by itself (as
    bert-base-multilingual-cased).
    """
    others = (
        "中",
        "文",
        "字",
        "д",
        "##о",
        "##м",
        "Д",
        "ἀ",
        "##ρ",
        "ا",
        "##ل",
        "क",
        "##ि",
        "é",
        "##é",
        "ß",
        "##ß",
        "한",
        "##국",
    )
    return Vocabulary(tokens=(*SPECIALS, *MARKS, *LETTERS, *CONTINUED, "H", "T", *others), lowercase=False)


VOCABULARIES: dict[str, Callable[[], Vocabulary]] = {"uncased": uncased, "cased": cased, "multilingual": multilingual}
TEXTS = (
    "The house, the Straße.",
    "Été? été - Дом 中文字 ἀρ",
    "",
    "housing 한국 ال कि",
    "a very long word: donaudampfschiff ABC",
)


class Heads(nn.Module):
    """Our encoder with the heads of one kind of model."""

    def __init__(self, vocabulary_size: int, **heads: nn.Module) -> None:
        super().__init__()
        self.encoder = Encoder(SETTINGS, vocabulary_size)
        for name, head in heads.items():
            self.add_module(name, head)

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """Logits by head, of every token or sequence."""
        hidden = self.encoder(batch)
        words, pooled = self.encoder.embeddings.words.weight, self.encoder.pool(hidden, batch)
        calls = {
            "masked_token_head": lambda head: head(hidden, words),
            "next_sentence_head": lambda head: head(pooled),
            "classification_head": lambda head: head(pooled),
            "answer_head": lambda head: head(hidden),
        }
        return {name: calls[name](head) for name, head in self.named_children() if name != "encoder"}


class TokenHeads(Heads):
    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        return {"classification_head": self.classification_head(self.encoder(batch))}


def pretraining(size: int) -> Heads:
    return Heads(size, masked_token_head=MaskedTokenHead(SETTINGS, size), next_sentence_head=NextSentenceHead(SETTINGS))


def masked_tokens(size: int) -> Heads:
    return Heads(size, masked_token_head=MaskedTokenHead(SETTINGS, size))


def sequence_classes(size: int) -> Heads:
    return Heads(size, classification_head=ClassificationHead(SETTINGS, CLASSES))


def token_classes(size: int) -> Heads:
    return TokenHeads(size, classification_head=ClassificationHead(SETTINGS, CLASSES))


def answers(size: int) -> Heads:
    return Heads(size, answer_head=AnswerHead(SETTINGS))


POOLER = {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
KINDS = {
    "BertForPreTraining": (
        pretraining,
        {"masked_token_head": "prediction_logits", "next_sentence_head": "seq_relationship_logits"},
        set(),
    ),
    "BertForMaskedLM": (masked_tokens, {"masked_token_head": "logits"}, POOLER),
    "BertForSequenceClassification": (sequence_classes, {"classification_head": "logits"}, set()),
    "BertForTokenClassification": (token_classes, {"classification_head": "logits"}, POOLER),
    "BertForQuestionAnswering": (answers, {"answer_head": ""}, POOLER),
}
"""Kind of transformers -> our modules, our head to the field of its output, and what it does not have."""


def config_of(kind: str, vocabulary: Vocabulary) -> "transformers.BertConfig":
    labels = 2 if kind == "BertForQuestionAnswering" else CLASSES  # their number of outputs, whatever they are
    return transformers.BertConfig(
        **published_config(SETTINGS, vocabulary.size, vocabulary.pad_id)
        | {"num_labels": labels, "architectures": [kind]}
    )


def shaken(module: nn.Module, seed: int) -> nn.Module:
    """Random weights, biases and norms, none where it starts: one in the wrong place would not show there."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            is_norm = parameter.dim() == 1 and name.endswith("weight")
            parameter.normal_(mean=1.0 if is_norm else 0.0, std=0.1, generator=generator)
    return module.eval()


def ids_of(vocabulary: Vocabulary) -> list[list[int]]:
    encoded = (WordPiece(vocabulary).encode([text])[0].tolist() for text in TEXTS)
    return [[vocabulary.cls_id, *ids, vocabulary.sep_id] for ids in encoded]


def batch_of(sequences: list[list[int]]) -> Batch:
    lengths = torch.tensor([len(ids) for ids in sequences])
    return Batch(
        ids_T=torch.tensor([i for ids in sequences for i in ids]),
        segments_T=torch.cat([(torch.arange(n) > n // 2).long() for n in lengths]),
        positions_T=torch.cat([torch.arange(n) for n in lengths]),
        offsets=torch.tensor([0, *lengths.cumsum(0)], dtype=torch.int32),
        maximum_length=int(lengths.max()),
        masked_positions_M=torch.zeros(0, dtype=torch.int64),
        masked_labels_M=torch.zeros(0, dtype=torch.int64),
    )


def their_outputs(model: nn.Module, batch: Batch, fields: dict[str, str]) -> dict[str, Tensor]:
    """Their logits by our head's name, of the same tokens and sequences, without padding."""
    lengths = batch.offsets.diff().tolist()
    ids, segments, there = (
        nn.utils.rnn.pad_sequence(list(flat.split(lengths)), batch_first=True)
        for flat in (batch.ids_T, batch.segments_T, torch.ones_like(batch.ids_T))
    )
    output = model(input_ids=ids, token_type_ids=segments, attention_mask=there)
    found = {
        head: torch.stack([output.start_logits, output.end_logits], -1) if not field else output[field]
        for head, field in fields.items()
    }
    return {head: logits[there.bool()] if logits.dim() == 3 else logits for head, logits in found.items()}


def assert_equal_logits(ours: Heads, theirs: nn.Module, vocabulary: Vocabulary, fields: dict[str, str]) -> None:
    batch = batch_of(ids_of(vocabulary))
    with torch.no_grad():
        found, expected = ours.outputs(batch), their_outputs(theirs, batch, fields)
    assert found.keys() == expected.keys()
    for name, logits in expected.items():
        torch.testing.assert_close(found[name], logits, atol=1e-5, rtol=1e-5)


@pytest.fixture(params=VOCABULARIES)
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return VOCABULARIES[request.param]()


@pytest.mark.parametrize("kind", KINDS)
def test_what_they_saved_gives_their_logits_here(kind: str, vocabulary: Vocabulary, tmp_path: Path) -> None:
    build, fields, absent = KINDS[kind]
    theirs = shaken(getattr(transformers, kind)(config_of(kind, vocabulary)), 5)
    theirs.save_pretrained(tmp_path)
    ours = build(vocabulary.size).eval()
    with published_folder(str(tmp_path)) as (folder, files):
        assert model_settings(read_config(folder, files)) == SETTINGS
        taken = take(read_weights(folder, files), ours)
    assert (set(taken.missing), taken.surplus) == (absent, ())
    ours.load_state_dict(taken.state, strict=False)
    assert_equal_logits(ours, theirs, vocabulary, fields)


@pytest.mark.parametrize("kind", KINDS)
def test_what_we_saved_gives_our_logits_there(kind: str, vocabulary: Vocabulary, tmp_path: Path) -> None:
    build, fields, absent = KINDS[kind]
    ours = shaken(build(vocabulary.size), 6)
    save_file(to_published(ours.state_dict()), tmp_path / "model.safetensors", metadata={"format": "pt"})
    config_of(kind, vocabulary).save_pretrained(tmp_path)
    theirs, info = getattr(transformers, kind).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"] and set(info["unexpected_keys"]) == absent
    assert_equal_logits(ours, theirs.eval(), vocabulary, fields)


def test_the_names_and_shapes_are_theirs(vocabulary: Vocabulary) -> None:
    for kind, (build, _, absent) in KINDS.items():
        expected = {
            name: list(parameter.shape)
            for name, parameter in getattr(transformers, kind)(config_of(kind, vocabulary)).named_parameters()
        }
        found = {name: list(tensor.shape) for name, tensor in to_published(build(vocabulary.size).state_dict()).items()}
        assert {name: shape for name, shape in found.items() if name not in absent} == expected, kind


def test_the_tokenizer_files_say_the_same_to_both(vocabulary: Vocabulary, tmp_path: Path) -> None:
    save_vocabulary(vocabulary, tmp_path, 40)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(list(TEXTS))["input_ids"] == ids_of(vocabulary)
    assert load_vocabulary(str(tmp_path), None) == vocabulary


def test_what_their_tokenizer_saved_gives_their_ids_here(vocabulary: Vocabulary, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary.tokens), encoding="utf-8")
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path, do_lower_case=vocabulary.lowercase)
    theirs.save_pretrained(tmp_path / "saved")
    found = load_vocabulary(str(tmp_path / "saved"), None)
    assert found.lowercase == vocabulary.lowercase and ids_of(found) == theirs(list(TEXTS))["input_ids"] == ids_of(
        vocabulary
    )
