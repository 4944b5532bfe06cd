"""A ModernBERT as transformers writes it, with its own tokenizer: a run starts from it, learns and exports it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn

from pipeline.config.data import FullSentences, Sampling, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.training import AdamW
from pipeline.errors import ConfigError
from pipeline.export.inference import encode
from pipeline.objectives.masked import MLM, MaskedTokens
from pipeline.optim.build import build_optimizer
from pipeline.predict.blimp import _load_masked
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.train.checkpoint import State, save
from pipeline.train.initial import Initial, agreed_model, load_initial, read_initial
from pipeline.workflows.pretrain import _with_initial_model
from tests.conftest import text_of
from tests.parity.families import assert_close, shaken

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("one_thread")

SPECIALS = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
LONG = f"{' '.join(text_of(number) for number in range(12))} [MASK] {text_of(12)}"
TEXTS = [
    text_of(3),
    f"  {text_of(4)}   Two   spaces,\ta tab\n\nand lines",
    "mail |||EMAIL_ADDRESS||| or |||IP_ADDRESS||| now|||PHONE_NUMBER|||",
    "cafe\u0301 na\u00efve \U0001f600 [unused1] 3.14",
]


def tokenizer_of_modernbert() -> Tokenizer:
    """Byte-level BPE laid out as the published one: added tokens first and last, special tokens after the entries."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["|||IP_ADDRESS|||", "<|padding|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(map(text_of, range(20)), trainer)
    spaces = [AddedToken(" " * count, normalized=True) for count in (4, 3, 2)]
    made.add_tokens([*spaces, AddedToken("|||EMAIL_ADDRESS|||"), AddedToken("|||PHONE_NUMBER|||")])
    made.add_special_tokens(["<|endoftext|>", *(AddedToken(name, lstrip=name == "[MASK]") for name in SPECIALS)])
    made.add_tokens([f"[unused{number}]" for number in range(3)])
    ids = {name: made.token_to_id(name) for name in ("[CLS]", "[SEP]")}
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=list(ids.items())
    )
    content = json.loads(made.to_str())
    content["added_tokens"][0]["special"] = False
    return Tokenizer.from_str(json.dumps(content))


@pytest.fixture(scope="module")
def theirs() -> nn.Module:
    """A model whose embeddings are filled up to a multiple of 64 rows, and whose window is 8."""
    made = tokenizer_of_modernbert()
    names = ("cls", "sep", "pad")
    ids = {f"{name}_token_id": made.token_to_id(f"[{name.upper()}]") for name in names}
    config = transformers.ModernBertConfig(
        vocab_size=-(-made.get_vocab_size() // 64) * 64,
        **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4},
        **{"local_attention": 8, "global_attn_every_n_layers": 3, "max_position_embeddings": 8_192},
        **ids | {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]},
    )
    assert config.vocab_size > made.get_vocab_size()
    return shaken(transformers.ModernBertForMaskedLM(config), 3)


@pytest.fixture(scope="module")
def published(theirs: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    theirs.save_pretrained(folder)
    roles = {f"{name.strip('[]').lower()}_token": name for name in SPECIALS}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer_of_modernbert(),
        model_max_length=8_192,
        model_input_names=["input_ids", "attention_mask"],
        **roles,
    ).save_pretrained(folder)
    return folder


@pytest.fixture
def started(published: Path, tmp_path: Path) -> tuple[Initial, MaskedTokens, list[str]]:
    """The module of a run that starts from the folder, and what was said."""
    lines: list[str] = []
    initial = read_initial(
        str(published), VocabularySettings(), str(tmp_path / "out"), lines.append, keeps_padding=True
    )
    model = agreed_model(Model(hidden_dropout=0.0, attention_dropout=0.0), initial, str(published))
    module = MaskedTokens(model, initial.vocabulary.size, pairs=False)
    load_initial(initial, module)
    return initial, module, lines


def their_logits(model: nn.Module, tokenizer: tokenizers.Tokenizer, text: str) -> Tensor:
    """Logits at the text's masks."""
    ids = torch.tensor([tokenizer.encode(text).ids])
    with torch.no_grad():
        return model(input_ids=ids).logits[0, ids[0] == tokenizer.token_to_id("[MASK]")]


def test_a_run_starts_with_its_ids_and_its_logits_in_long_rows(
    theirs: nn.Module, published: Path, started: tuple[Initial, MaskedTokens, list[str]]
) -> None:
    initial, module, (line,) = started
    tokenizer = Tokenizer.from_file(str(published / "tokenizer.json"))
    size, entries = theirs.config.vocab_size, tokenizer.get_vocab_size()
    assert (initial.model.maximum_positions, initial.vocabulary.size) == (8_192, size)
    assert line == (
        f"init: weights of {published}, {size} word embeddings; {size - entries} padding rows of the word embeddings "
        "kept as [unused] entries"
    )
    ids, offsets = CachedTokenizer(initial.vocabulary).encode(TEXTS)
    expected = [encoding.ids for encoding in tokenizer.encode_batch(TEXTS, add_special_tokens=False)]
    assert [ids[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)] == expected
    batch = encode([LONG], tokenizer, initial.vocabulary.mask_id)
    assert batch.maximum_length > 512
    assert_close(module.eval().predict_masked(batch), their_logits(theirs, tokenizer, LONG))


def test_rows_may_have_as_many_tokens_as_the_model_has_positions(published: Path, tmp_path: Path) -> None:
    def completed(length: int) -> Pretrain:
        sampling = Sampling(maximum_length=length, pairs=FullSentences())
        config = Pretrain(init=str(published), output=str(tmp_path), sampling=sampling)
        return _with_initial_model(config, lambda line: None)[0]

    assert completed(8_192).model.maximum_positions == 8_192
    message = r"sampling.maximum_length \(8193\) must be at most model.maximum_positions \(8192\)"
    with pytest.raises(ConfigError, match=message):
        completed(8_193)


def test_it_learns_and_its_export_has_its_ids_and_logits_in_transformers(
    theirs: nn.Module, published: Path, started: tuple[Initial, MaskedTokens, list[str]], tmp_path: Path
) -> None:
    initial, module, _ = started
    tokenizer = Tokenizer.from_file(str(published / "tokenizer.json"))
    batch = encode([f"{text_of(number)} [MASK]." for number in range(4)], tokenizer, initial.vocabulary.mask_id)
    batch = replace(batch, masked_labels_M=torch.full((4,), tokenizer.token_to_id("a")))
    optimizer = build_optimizer(AdamW(learning_rate=1e-2), module)
    losses = []
    for _step in range(6):
        total, count = module.train()(batch)[MLM]
        (total / count).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total.item() / count)
    assert losses[-1] < losses[0] - 1
    folder = save(str(tmp_path), State(step=6), module, optimizer, initial.vocabulary)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    again = transformers.AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == theirs.config.vocab_size == len(again)
    assert again(TEXTS)["input_ids"] == [encoding.ids for encoding in tokenizer.encode_batch(TEXTS)]
    assert again.mask_token_id == initial.vocabulary.mask_id and again.model_max_length == 8_192
    logits = module.eval().predict_masked(encode([LONG], tokenizer, initial.vocabulary.mask_id))
    assert_close(logits, their_logits(model, tokenizer, LONG))
    assert load_vocabulary(folder, None) == initial.vocabulary


def test_minimal_pairs_are_scored_with_the_published_folder(theirs: nn.Module, published: Path) -> None:
    vocabulary = load_vocabulary(str(published), None)
    tokenizer = Tokenizer.from_file(str(published / "tokenizer.json"))
    trained = _load_masked(str(published), vocabulary)
    found = trained.module.predict_masked(encode([LONG], tokenizer, vocabulary.mask_id))
    assert_close(found, their_logits(theirs, tokenizer, LONG)[:, : vocabulary.size])
