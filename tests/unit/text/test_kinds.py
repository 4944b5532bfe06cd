"""Byte-level BPE and unigram vocabularies: training, published forms, and which entries are text."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram

from pipeline.config.data import VocabularySettings
from pipeline.errors import ConfigError, DataError
from pipeline.text.splitting import SPECIALS, SPECIALS_OF_BYTES, Splitting
from pipeline.text.template import TWO_SEPARATORS
from pipeline.text.training import (
    REPLAYED,
    counts_table,
    iterate_counts,
    scale_counts,
    sort_rarest_scores,
    split_at_unknown,
    train_vocabulary,
    word_counts,
)
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_files import read_file
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

TEXTS = [
    "the cats sat on the mats [MASK] <mask>",
    "The dogs sat, and the cats ran.",
    "cats and dogs; dogs and cats! über Über 力加",
] * 5
BYTES = train_vocabulary(TEXTS, size=300, lowercase=False, kind="byte-bpe", unused=2)
UNIGRAM = train_vocabulary(TEXTS, size=200, lowercase=False, kind="unigram", unused=2)
UNIGRAM_UNCASED = train_vocabulary(TEXTS, size=200, lowercase=True, kind="unigram")
BYTES_UNCASED = train_vocabulary(TEXTS, size=300, lowercase=True, strip_accents=False, kind="byte-bpe")
ALL = [BYTES, UNIGRAM, BYTES_UNCASED, UNIGRAM_UNCASED]
KINDS = ["bytes", "unigram", "bytes-uncased", "unigram-uncased"]
ROBERTA = [
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    "Ġa",
    "Ġab",
    "madeupword0000",
    "<mask>",
]


def published_roberta(folder: Path) -> None:
    """vocab.json and merges.txt as fairseq's RoBERTa was published, with a tiny vocabulary."""
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(ROBERTA)}))
    (folder / "merges.txt").write_text("#version: 0.2\nĠ a\nĠa b\n")


def published_albert(folder: Path) -> list[str]:
    """A tokenizer.json as ALBERT's: SentencePiece's scores, its specials among the pieces."""
    pieces = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁the", "▁", "c", "a", "t", "s", "▁cat", "[", "]", "m", "k"]
    tokenizer = Tokenizer(
        Unigram([(piece, 0.0 if i < 5 else -2.0 - i / 10) for i, piece in enumerate(pieces)], unk_id=1)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.add_special_tokens(pieces[:5])
    tokenizer.save(str(folder / "tokenizer.json"))
    return pieces


def template_of(*pair: str) -> dict:
    """A post_processor of these special tokens and the texts A and B."""
    pieces = [{"Sequence" if name in "AB" else "SpecialToken": {"id": name, "type_id": 0}} for name in pair]
    tokens = {name: {"id": name, "ids": [BYTES.ids[name]], "tokens": [name]} for name in ("<s>", "</s>")}
    return {
        "type": "TemplateProcessing",
        "single": [pieces[0], pieces[1], pieces[-1]],
        "pair": pieces,
        "special_tokens": tokens,
    }


@pytest.mark.parametrize("vocabulary", ALL, ids=KINDS)
def test_specials_come_first_then_the_unused_and_then_what_was_learnt(vocabulary: Vocabulary) -> None:
    unused = ("[unused0]", "[unused1]")[: 2 * (vocabulary in (BYTES, UNIGRAM))]
    of_bytes = vocabulary.kind == "byte-bpe"
    first = (*(("<s>", "<pad>", "</s>", "<unk>") if of_bytes else SPECIALS), *unused)
    assert vocabulary.tokens[: len(first)] == first
    assert of_bytes == (vocabulary.tokens[-1] == "<mask>") == (vocabulary.mask_id == vocabulary.size - 1)
    assert vocabulary.ordinary_ids.tolist() == list(range(len(first), vocabulary.size - of_bytes))
    assert vocabulary.ordinary_ids.dtype == np.int32 and not vocabulary.continuation[: len(first)].any()
    assert vocabulary.size <= (300 if of_bytes else 200)
    assert vocabulary.template.pair_separators == 1 + of_bytes


def test_the_ids_of_a_trained_byte_level_vocabulary_are_those_of_roberta() -> None:
    assert (BYTES.cls_id, BYTES.pad_id, BYTES.sep_id, BYTES.unk_id) == (0, 1, 2, 3) and BYTES.size == 300


def test_the_alphabet_of_wordpiece_has_at_most_the_characters_asked_for() -> None:
    ideographs = "".join(chr(0x4E00 + number) for number in range(1_500))
    texts = [ideographs, *TEXTS]
    few, many = (train_vocabulary(texts, size=8_000, lowercase=True, most_characters=most) for most in (1_000, 2_000))
    known = [sum(character in vocabulary.ids for character in ideographs) for vocabulary in (few, many)]
    assert known[0] < 1_000 < known[1] == 1_500


def test_xlm_roberta_has_a_unigram_vocabulary_with_the_ids_of_roberta() -> None:
    named = train_vocabulary(TEXTS, size=200, lowercase=False, kind="unigram", unused=2, specials=SPECIALS_OF_BYTES)
    assert named.tokens[:6] == ("<s>", "<pad>", "</s>", "<unk>", "[unused0]", "[unused1]")
    assert (named.tokens[-1], named.template) == ("<mask>", TWO_SEPARATORS)
    assert sorted(named.tokens[6:-1]) == sorted(UNIGRAM.tokens[7:])
    assert named.tokenizer().encode("the cats ☃").tokens == [
        token.replace("[UNK]", "<unk>") for token in UNIGRAM.tokenizer().encode("the cats ☃").tokens
    ]


def test_unused_entries_of_wordpiece_count_in_its_size() -> None:
    trained = train_vocabulary(TEXTS, size=100, lowercase=True, unused=30)
    assert (
        trained.tokens[:7] == (*SPECIALS, "[unused0]", "[unused1]")
        and trained.tokens[34] == "[unused29]"
        and trained.size <= 100
    )
    assert trained.ordinary_ids[0] == 35 and "the" in trained.tokens


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "unigram"])
def test_continuation_tells_the_first_piece_of_every_word(kind: str) -> None:
    vocabulary = train_vocabulary(TEXTS, size=300, lowercase=True, kind=kind)
    ids = vocabulary.tokenizer().encode(" the catsdogs ran").ids
    starts = [i for i, id in enumerate(ids) if not vocabulary.continuation[id]]
    assert len(starts) == 3 and starts[0] == 0 and len(ids) > 3


@pytest.mark.parametrize("vocabulary", ALL, ids=KINDS)
@pytest.mark.parametrize("text", ["the [MASK] cats", "[MASK]", "a<mask>b", "[PAD][UNK] [unused0]", "[CLS]"])
def test_special_tokens_in_a_text_are_text(vocabulary: Vocabulary, text: str) -> None:
    ids = set(vocabulary.tokenizer().encode(text).ids)
    special = set(range(vocabulary.size)) - set(vocabulary.ordinary_ids.tolist()) - {vocabulary.unk_id}
    assert ids and not ids & special


def test_any_text_comes_back_from_bytes() -> None:
    tokenizer = BYTES.tokenizer()
    for text in ("The cats über 力加", "nul\x00 🤖 tabs\tand\nlines", "[MASK]"):
        encoding = tokenizer.encode(text)
        assert tokenizer.decode(encoding.ids) == text and BYTES.unk_id not in encoding.ids


def test_normalisation_of_each_kind() -> None:
    assert dict(word_counts(["Über ﬁne"], Splitting(kind="unigram", lowercase=False))) == {"▁Über": 1, "▁fine": 1}
    assert dict(word_counts(["Über ﬁne"], Splitting(kind="unigram", lowercase=True))) == {"▁uber": 1, "▁fine": 1}
    assert dict(word_counts(["Über"], Splitting(kind="unigram", lowercase=True, strip_accents=False))) == {"▁über": 1}
    assert dict(word_counts(["Cat. cat"], Splitting(kind="byte-bpe", lowercase=True))) == {"Ġcat": 2, ".": 1}
    assert dict(word_counts(["Cat力"], Splitting(kind="byte-bpe", lowercase=False))) == {"ĠCatåĬĽ": 1}


@pytest.mark.parametrize("vocabulary", ALL, ids=KINDS)
def test_what_is_saved_is_loaded(vocabulary: Vocabulary, tmp_path: Path) -> None:
    save_vocabulary(vocabulary, tmp_path, 128)
    assert load_vocabulary(str(tmp_path), None) == load_vocabulary(str(tmp_path), vocabulary.lowercase) == vocabulary
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json"} | (
        {"vocab.json", "merges.txt"} if vocabulary.kind == "byte-bpe" else set()
    )


def test_vocab_json_and_merges_are_the_same_pieces(tmp_path: Path) -> None:
    save_vocabulary(BYTES, tmp_path, 128)
    (tmp_path / "tokenizer.json").unlink()
    loaded = load_vocabulary(str(tmp_path), None)
    assert loaded.template == BYTES.template == TWO_SEPARATORS
    assert loaded.tokens == BYTES.tokens and loaded.specials == BYTES.specials
    assert loaded.tokenizer().encode("the cats").ids == BYTES.tokenizer().encode("the cats").ids


@pytest.mark.parametrize("vocabulary", ALL, ids=KINDS)
def test_transformers_reads_what_is_saved(vocabulary: Vocabulary, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    save_vocabulary(vocabulary, tmp_path, 77)
    theirs, ours = transformers.AutoTokenizer.from_pretrained(str(tmp_path)), vocabulary.tokenizer()
    for text in ("The cats, and Über dogs.", "  two  spaces ", "unseen wörds 力加 🤖 ½", "", "tab\tand\nline"):
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text).ids, text
    pair = theirs("cats", "dogs")
    first, second = ours.encode("cats").ids, ours.encode("dogs").ids
    cls, sep = [vocabulary.cls_id], [vocabulary.sep_id]
    assert pair["input_ids"] == cls + first + sep * vocabulary.template.pair_separators + second + sep
    five = (vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id)
    names = ("pad", "unk", "cls", "sep", "mask")
    assert tuple(getattr(theirs, f"{name}_token_id") for name in names) == five and theirs.model_max_length == 77


TROUBLE = [
    *(
        "The cats, and Über dogs.",
        "  two  spaces ",
        "unseen wörds 力加 🤖 ½",
        "",
        "tab\tand\nline",
        " begins",
        "I'm O'Neil's",
    ),
    "a \u00a0b \u0301c   d",
]


def test_a_trained_byte_level_vocabulary_loads_as_transformers_roberta(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    save_vocabulary(BYTES, tmp_path, 77)
    automatic = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert type(automatic) is transformers.RobertaTokenizerFast
    (tmp_path / "files").mkdir()
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "files" / name).write_bytes((tmp_path / name).read_bytes())
    alone = transformers.RobertaTokenizerFast.from_pretrained(str(tmp_path / "files"))
    ours, last = BYTES.tokenizer(), BYTES.size - 1
    for theirs in (automatic, alone):
        assert (theirs.cls_token_id, theirs.pad_token_id, theirs.sep_token_id, theirs.mask_token_id) == (0, 1, 2, last)
        for first in TROUBLE:
            assert theirs(first)["input_ids"] == [0, *ours.encode(first).ids, 2], first
            for second in filter(None, TROUBLE):
                pair = [0, *ours.encode(first).ids, 2, 2, *ours.encode(second).ids, 2]
                assert theirs(first, second)["input_ids"] == pair
    assert automatic("the <mask> sat")["input_ids"] == [0, *ours.encode("the").ids, last, *ours.encode(" sat").ids, 2]


SPACING = {"add_prefix_space": False, "trim_offsets": True}
NAMED = {"sep": ["</s>", 2], "cls": ["<s>", 0]}
ONE, TWO = template_of("<s>", "A", "</s>", "B", "</s>"), template_of("<s>", "A", "</s>", "</s>", "B", "</s>")
BEFORE = {"type": "ByteLevel", "use_regex": True} | SPACING


@pytest.mark.parametrize(
    ("processor", "separators"),
    [
        ({"type": "RobertaProcessing"} | NAMED | SPACING, 2),
        ({"type": "BertProcessing"} | NAMED, 1),
        (ONE, 1),
        (TWO, 2),
        ({"type": "Sequence", "processors": [BEFORE, ONE]}, 1),
        (None, 2),
    ],
)
def test_the_template_is_that_of_the_file(processor: dict | None, separators: int, tmp_path: Path) -> None:
    save_vocabulary(BYTES, tmp_path, 77)
    whole = json.loads((tmp_path / "tokenizer.json").read_text()) | {"post_processor": processor}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    loaded = load_vocabulary(str(tmp_path), None)
    assert loaded.template.pair_separators == separators
    assert (loaded.fingerprint == BYTES.fingerprint) == (separators == 2)
    save_vocabulary(loaded, tmp_path / "again", 77)
    assert load_vocabulary(str(tmp_path / "again"), None) == loaded


def test_a_template_with_other_separators_is_refused(tmp_path: Path) -> None:
    save_vocabulary(BYTES, tmp_path, 77)
    whole = json.loads((tmp_path / "tokenizer.json").read_text())
    whole["post_processor"] = template_of("<s>", "A", "B", "</s>")
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(
        DataError,
        match=r"json: post_processor puts 0 special tokens between the texts of a pair: only 1 .* and 2 .* work$",
    ):
        load_vocabulary(str(tmp_path), None)


def test_a_published_roberta_keeps_its_names_and_ids(tmp_path: Path) -> None:
    published_roberta(tmp_path)
    loaded = load_vocabulary(str(tmp_path), None)
    assert (loaded.cls_id, loaded.pad_id, loaded.sep_id, loaded.unk_id, loaded.mask_id) == (0, 1, 2, 3, 263)
    assert (loaded.kind, loaded.lowercase, loaded.chinese_characters) == ("byte-bpe", False, False)
    assert loaded.ordinary_ids.tolist() == list(range(4, 262)) and loaded.tokenizer().encode("x ab").tokens == [
        "x",
        "Ġab",
    ]
    assert not {0, 263} & set(loaded.tokenizer().encode("<s><mask>").ids)
    save_vocabulary(loaded, tmp_path / "again", 512)
    assert load_vocabulary(str(tmp_path / "again"), None) == loaded
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "again"))
    assert theirs("x ab <mask>")["input_ids"] == [0, *loaded.tokenizer().encode("x ab").ids, 263, 2]
    assert theirs.pad_token == "<pad>" and type(theirs) is transformers.RobertaTokenizerFast


def test_a_published_albert_keeps_its_names_and_scores(tmp_path: Path) -> None:
    pieces = published_albert(tmp_path)
    loaded = load_vocabulary(str(tmp_path), None)
    assert loaded.tokens == tuple(pieces) and loaded.specials == ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    assert (loaded.kind, loaded.lowercase, loaded.strip_accents) == ("unigram", True, None)
    assert loaded.tokenizer().encode("The CÁTS [MASK]").tokens == [
        "▁the",
        "▁cat",
        "s",
        "▁",
        "[",
        "m",
        "a",
        "s",
        "k",
        "]",
    ]
    save_vocabulary(loaded, tmp_path / "again", 512)
    assert load_vocabulary(str(tmp_path / "again"), True) == loaded
    with pytest.raises(
        ConfigError,
        match=r"^vocabulary.lowercase \(False\) differs from normalizer in .*json \(True\): leave vocabulary.lowercase "
        r"out, or set it to True",
    ):
        load_vocabulary(str(tmp_path), False)


def test_published_files_that_cannot_work(tmp_path: Path) -> None:
    published_roberta(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nx y z\n")
    with pytest.raises(DataError, match="vocab.json and .*merges.txt cannot be read as byte-level BPE"):
        load_vocabulary(str(tmp_path), None)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(ConfigError, match=r"merges.txt\) cannot be read"):
        load_vocabulary(str(tmp_path), None)
    tokenizer = Tokenizer(BPE({"<s>": 0}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        DataError,
        match=r"has no \[PAD\] or <pad>, \[UNK\] or <unk>, \[SEP\] or </s>, \[MASK\] or <mask> among its 1 entries",
    ):
        load_vocabulary(str(tmp_path), None)


def test_counts_are_divided_to_the_most_that_is_replayed() -> None:
    counts = counts_table({"often": 600, **{f"rare{i}": 1 for i in range(400)}})
    assert dict(scale_counts(counts, 1_000)) == dict(iterate_counts(counts))
    tenth = dict(scale_counts(counts, 100))
    assert tenth["often"] == 60 and set(tenth.values()) == {60, 1} and 25 <= len(tenth) - 1 <= 60
    assert tenth == dict(scale_counts(counts.sort_by("word"), 100)) and REPLAYED == 50_000_000
    assert (
        dict(scale_counts(counts_table({"a": 3, "b": 2}), 2)).get("a", 0) >= 1
        and dict(scale_counts(counts_table({}), 2)) == {}
    )


def test_words_are_cut_at_unknown_characters() -> None:
    assert (
        split_at_unknown("abc", set("abc")) == ["abc"]
        and split_at_unknown("abXYc", set("abc")) == ["ab", "c"]
        and split_at_unknown("X", set("a")) == []
    )


def test_the_lowest_scores_are_dealt_by_code_point() -> None:
    assert sort_rarest_scores({"▁the": -1.0, "a": -2.0, "z": -9.0001, "y": -9.0, "x": -9.0002}) == {
        "▁the": -1.0,
        "a": -2.0,
        "x": -9.0,
        "y": -9.0001,
        "z": -9.0002,
    }
    assert sort_rarest_scores({"a": -1.0}) == {"a": -1.0} and sort_rarest_scores({}) == {}


TRAIN_ALL = """
import random
from pipeline.text.training import train_vocabulary
random.seed(1)
texts = [
    " ".join("".join(random.choices("abcdefgh力", k=random.randint(1, 6))) for _ in range(300)) for _ in range(40)
]
for kind in ("wordpiece", "byte-bpe", "unigram"):
    vocabulary = train_vocabulary(texts, size=400, lowercase=True, kind=kind)
    print(kind, vocabulary.size, vocabulary.fingerprint)
"""


def test_training_gives_the_same_entries_in_every_process() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", TRAIN_ALL], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    ]
    assert [line.split()[1] for line in runs[0].splitlines()] == ["400"] * 3 and len(set(runs)) == 1


@pytest.mark.parametrize("kind", ["byte-bpe", "unigram"])
def test_few_texts_give_fewer_entries(kind: str) -> None:
    trained = train_vocabulary(["ab ab"], size=1_000, lowercase=False, kind=kind)
    assert trained.size < 1_000 and trained.tokenizer().encode("ab").ids


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unused": -1}, r"^vocabulary.unused \(-1\) must be at least 0"),
        (
            {"size": 100, "unused": 46},
            r"^vocabulary.size \(100\) minus vocabulary.unused \(46\) must be at least 55, for "
            r"the 5 special tokens and 50 other entries$",
        ),
        (
            {"size": 260, "kind": "byte-bpe"},
            r"^vocabulary.size \(260\) minus vocabulary.unused \(0\) must be at least 261, for .* and the 256 bytes$",
        ),
        (
            {"kind": "unigram", "chinese_characters": False},
            r"^vocabulary.chinese_characters \(False\) is for vocabulary.kind wordpiece: leave the option out, "
            r"because unigram never",
        ),
    ],
)
def test_settings_that_cannot_work(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        VocabularySettings(**settings)
    assert VocabularySettings(training_characters=None, size=261, kind="byte-bpe").training_characters is None


@pytest.mark.parametrize("charsmap", ["AAAA", "AQAAAA=="])  # one fails when it is read, the other when it is used
def test_a_tokenizer_that_panics_is_named(tmp_path: Path, charsmap: str):
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "post_processor": None,
        "decoder": None,
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]]},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(
        DataError, match=rf"^{tmp_path}/tokenizer.json cannot be read as a tokenizer \(.+\): use a vocab.txt$"
    ):
        read_file(str(tmp_path))
