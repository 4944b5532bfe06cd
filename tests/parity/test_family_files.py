"""Each family's tokenizer, sizes and arithmetic beside published ones, and the folders that others wrote of it: read as
the start of a run, and in Python.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from jobs.pretrain import main as pretrain
from pipeline.batch import MaskedBatch
from pipeline.config.model import LearnedPositions, Model
from pipeline.errors import ConfigError
from pipeline.model.flops import TokenCounts
from pipeline.model.weights import model_settings
from pipeline.objectives.replaced import ReplacedTokens
from pipeline.objectives.table import build_objective, flops_per_token
from pipeline.presets.table import PRESETS
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from tests.parity.families import ROWS, TEXTS, Row

transformers = pytest.importorskip("transformers")

VOCABULARIES = (
    *("bert", "bert-cased", "bert-multilingual", "roberta", "roberta-wordpiece"),
    *("distilbert", "albert", "xlm-roberta"),
)
CLOSE = {"rtol": 0.0, "atol": 1e-5}


@pytest.fixture(params=VOCABULARIES)
def row(request: pytest.FixtureRequest) -> Row:
    return ROWS[request.param]


def encoded(vocabulary: Vocabulary, *texts: str) -> list[int]:
    """Ids of a text, or of a pair in the template of the vocabulary's special tokens."""
    parts = [CachedTokenizer(vocabulary).encode([text])[0].tolist() for text in texts]
    separators = [vocabulary.sep_id] * (2 if vocabulary.specials[2] == "<s>" else 1)
    joined = parts[0] if len(parts) == 1 else [*parts[0], *separators, *parts[1]]
    return [vocabulary.cls_id, *joined, vocabulary.sep_id]


def test_our_tokenizer_files_say_the_same_to_both(row: Row, tmp_path: Path) -> None:
    vocabulary = row.vocabulary()
    save_vocabulary(vocabulary, tmp_path, 40, row.settings.segments)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(list(TEXTS))["input_ids"] == [encoded(vocabulary, text) for text in TEXTS]
    assert (theirs.pad_token_id, theirs.mask_token_id) == (vocabulary.pad_id, vocabulary.mask_id)
    pair = theirs(TEXTS[0], TEXTS[3], return_token_type_ids=True)
    assert pair["input_ids"] == encoded(vocabulary, TEXTS[0], TEXTS[3])
    assert set(pair["token_type_ids"]) == set(range(max(1, row.settings.segments)))
    assert ("token_type_ids" in theirs(TEXTS[0])) == (row.settings.segments > 1)
    assert load_vocabulary(str(tmp_path), None) == vocabulary


def test_pairs_of_roberta_have_two_separators_and_one_segment(tmp_path: Path) -> None:
    vocabulary = ROWS["roberta"].vocabulary()
    save_vocabulary(vocabulary, tmp_path, 40)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    asked = theirs("The house", "The", return_token_type_ids=True)
    assert theirs.convert_ids_to_tokens(asked["input_ids"])[-4:-1] == ["</s>", "</s>", "The"]
    assert theirs.convert_ids_to_tokens([asked["input_ids"][0]]) == ["<s>"] and set(asked["token_type_ids"]) == {0}


@pytest.mark.parametrize("name", ["bert", "bert-cased", "bert-multilingual"])
def test_what_their_tokenizer_saved_gives_their_ids_here(name: str, tmp_path: Path) -> None:
    vocabulary = ROWS[name].vocabulary()
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary.tokens), encoding="utf-8")
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path, do_lower_case=vocabulary.lowercase)
    theirs.save_pretrained(tmp_path / "saved")
    found = load_vocabulary(str(tmp_path / "saved"), None)
    expected = [encoded(vocabulary, text) for text in TEXTS]
    assert found.lowercase == vocabulary.lowercase
    assert [encoded(found, text) for text in TEXTS] == theirs(list(TEXTS))["input_ids"] == expected


@pytest.mark.parametrize(
    ("preset", "vocabulary", "encoder", "whole", "generator"),
    [
        ("roberta-base", 50_265, 124_645_632, 124_697_433, None),
        ("roberta-large", 50_265, 355_359_744, 355_412_057, None),
        ("electra-small", 30_522, 13_483_008, 13_549_057, 4_620_026),
        ("electra-base", 30_522, 108_891_648, 109_483_009, 33_740_602),
        ("bert-base", 30_522, 109_482_240, 110_106_428, None),
        ("distilbert-base", 30_522, 66_362_880, 66_985_530, None),
        ("mbert-base", 119_547, 177_853_440, 178_566_653, None),
        ("xlm-roberta-base", 250_002, 278_043_648, 278_295_186, None),
        ("longformer-base", 50_265, 148_659_456, 148_711_257, None),
    ],
)
def test_parameters_are_those_of_published_models(
    preset: str, vocabulary: int, encoder: int, whole: int, generator: int | None
) -> None:
    config = PRESETS[preset]
    with torch.device("meta"):
        module = build_objective(config.objective, config.sampling, config.model, vocabulary)
    assert config.vocabulary.size == vocabulary
    width, roberta = config.model.width, config.model.family in ("roberta", "xlm-roberta", "longformer")
    pooler = width * width + width if roberta else 0  # transformers' class has one
    assert _count(module.encoder) + pooler == encoder
    made = module.generator if isinstance(module, ReplacedTokens) else None
    own = _count(module) - (_count(made) - _count(made.encoder.embeddings) if made else 0)
    assert own == whole and (_count(made) if made else None) == generator


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_their_default_configs() -> None:
    large = {"layers": 12, "heads": 12, "width": 768, "feed_forward": 3072}
    assert model_settings(transformers.BertConfig().to_dict()) == replace(Model(), **large)
    roberta = transformers.RobertaConfig(type_vocab_size=1).to_dict()
    positions = {"maximum_positions": 510, "positions": LearnedPositions(first=2), "segments": 1}
    assert model_settings(roberta) == Model(family="roberta", **large, **positions)
    with pytest.raises(ConfigError, match=r"^model\.segments \(2\) must be 1 for model\.family roberta$"):
        model_settings(transformers.RobertaConfig().to_dict())  # two rows, which no published RoBERTa has
    electra = {"layers": 12, "heads": 4, "width": 256, "feed_forward": 1024, "embedding_width": 128}
    assert model_settings(transformers.ElectraConfig().to_dict()) == Model(family="electra", **electra)
    distilbert = model_settings(transformers.DistilBertConfig().to_dict())
    assert distilbert == Model(family="distilbert", **large | {"layers": 6}, segments=0)


# A token of RoBERTa costs 6 * 12 * 12 * 768^2 in layers, 12 * 12 * 768 * 471 in attention, and 0.15 * 6 * (768^2 +
# 50,265 * 768) in the head: 597 M in all. One of ELECTRA costs 565 M in the discriminator, with 6 * (768^2 + 768) in
# its head, and 96.4 M in a generator of width 256, with 6 * 768 * 256 in its projection. One of ALBERT costs as much in
# layers and attention as one of BERT, and 4 M in the projection and the head.
@pytest.mark.parametrize(
    ("preset", "parameters", "arithmetic"),
    [
        ("roberta-base", "124.7 M (vocabulary of 50,265)", "1.15e+21"),
        ("electra-base", "119.4 M (vocabulary of 30,522)", "6.11e+19"),
        ("albert-base", "11.8 M (vocabulary of 30,000)", "1.36e+20"),
    ],
)
def test_plans_of_published_sizes(
    preset: str,
    parameters: str,
    arithmetic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.train.few_steps.free_memory", lambda device: 0)  # so that no step is timed
    assert pretrain([preset, "--plan"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"parameters {parameters}" in lines
    assert f"operations {arithmetic} floating-point operations in matrix products, forward and backward" in lines


@pytest.mark.parametrize("name", ["bert-unpaired", "roberta", "electra", "distilbert", "albert-v1"])
def test_operations_equal_what_torch_counts_of_a_step(name: str) -> None:
    # Four sequences of one length, so that nothing is padded. The training loss of masked tokens is an operator that
    # torch does not look into.
    row = ROWS[name]
    module, size = row.module(), 128
    module = build_objective(row.objective, row.sampling, row.settings, size)
    length, sequences = 32, 4
    tokens = length * sequences
    batch = MaskedBatch(
        ids_T=torch.zeros(tokens, dtype=torch.int64),
        segments_T=torch.zeros(tokens, dtype=torch.int64),
        positions_T=torch.arange(length).repeat(sequences),
        offsets=torch.arange(sequences + 1, dtype=torch.int32) * length,
        maximum_length=length,
        masked_positions_M=torch.arange(0, tokens, 4),
        masked_labels_M=torch.zeros(tokens // 4, dtype=torch.int64),
    )
    with FlopCounterMode(display=False) as counter:
        if isinstance(module, ReplacedTokens):
            hidden = module.generator.encoder(batch)[batch.masked_positions_M]
            logits = module.generator.masked_token_head(hidden, module.words)
            found = F.cross_entropy(logits, batch.masked_labels_M)
            (found + module.replaced_logits(batch).sum()).backward()
        else:
            logits = module.masked_logits(module.encoder(batch), batch)
            F.cross_entropy(logits, batch.masked_labels_M).backward()
    counted = TokenCounts(tokens=tokens, squares=sequences * length**2, masked=tokens // 4)
    ours = tokens * flops_per_token(row.objective, row.settings, size, counted)
    assert counter.get_total_flops() == pytest.approx(ours)
