"""Positions of cuts in text, from literals; and ids of byte-level BPE and unigram against `tokenizers` for any text."""

import json
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.trainers import BpeTrainer, UnigramTrainer

from pipeline.text.cached_tokenizer import CachedTokenizer, encode_directly
from pipeline.text.cuts import CUTS, cut_of, cuts_around_words, cuts_at_plain_spaces, cuts_of_bytes
from pipeline.text.splitting import SPECIALS, Splitting
from pipeline.text.vocabulary import Vocabulary

SPACES = " \u00a0\u3000\u2009\u2028\u0085\u1680\u202f\u205f\t\n\r\x0b\x0c\x1c"
SIGNS = (
    "'\u2019`\u2018\uff07.,-_#$%&()[]{}\"\u201c\u201d\u2014\u2026\u00bd\u00b2\u2167\u0308\u0301\u0338\u20e3"
    "=<\u200b\u200d\ufeff\u00ad\ufffd\x00\x07"
)
LETTERS = "asdmtlvreASTKé\u212aİıßﬁǅ力한がかй𝐀🤖12٣"
LIKELY = [*SPACES, *SIGNS, *LETTERS, *" " * 40, *"aestl" * 8, "'s", "'ll", "'re", "'T", " '", "  ", "``", "''", "n't"]
TRICKY = [
    "",
    " ",
    "   ",
    "I'm, you're; we'll've 'twas 'S's don't O'Neil's '80s x's,",
    ".'s ''s `'s a's1's 1's_'s",
    "a  b   c \t d\t e \n f\n\n g \u00a0h \u00a0 i\u00a0 j \u3000k \u2009l \u2028m",
    "a \u0301b \u0301 c  \u0301  d \u0308\u0301, e\u0301 f",
    "end  ",
    " begin",
    "\u00a0begin",
    "\u0301begin \u0301",
    "=\u0338 a=\u0338b < \u0338c",
    "[MASK] <mask> </s> [unused0] <s>",
    "“Yes,” she said — “no…” 1,000.50% §5",
    "Straße STRASSE İstanbul ﬁne Ⅻ ½ ² ΑΣ",
    "力加勝。 mixed力with加words 한국어 がぎ か\u3099",
    "zero\u200bwidth soft\u00adhyphen \ufeffmark \u200djoiner nul\x00 bell\x07",
    "``quoted'' text ``again''",
    "x" * 300 + " " + "é" * 300,
]


def random_text(random: Random) -> str:
    """A text of likely trouble, or of any characters, or of both."""
    length = random.choice((1, 2, 3, 5, 8, 13, 30))
    share = random.choice((0.0, 0.1, 1.0))
    return "".join(
        chr(random.choice((random.randrange(0xD800), random.randrange(0xE000, 0x110000))))
        if random.random() < share
        else random.choice(LIKELY)
        for _ in range(length)
    )


def texts(count: int, seed: int) -> list[str]:
    random = Random(seed)
    return [random_text(random) for _ in range(count)]


@cache
def trained(kind: str) -> dict[str, Any]:
    """A tokenizer.json whose pieces span whatever stays together: trained on the same trouble as is tested."""
    tokenizer = Tokenizer(BPE() if kind == "byte-bpe" else Unigram())
    splitting = Splitting(kind=kind, lowercase=False)
    tokenizer.pre_tokenizer = splitting.pre_tokenizer()
    several = {"vocab_size": 1_500, "special_tokens": list(SPECIALS), "show_progress": False}
    trainer = (
        BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **several)
        if kind == "byte-bpe"
        else UnigramTrainer(unk_token="[UNK]", **several)
    )
    if kind == "unigram":
        tokenizer.normalizer = splitting.normalizer()
    random = Random(1)
    lines = ["".join(random.choices(LIKELY, k=random.randrange(30))) for _ in range(4_000)]
    tokenizer.train_from_iterator(lines + TRICKY * 5, trainer)
    return json.loads(tokenizer.to_str()) | {"added_tokens": [], "normalizer": None}


def vocabulary(kind: str, **parts: Any) -> Vocabulary:
    """A vocabulary of this kind, with other parts of its tokenizer.json."""
    whole = trained(kind) | parts
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    ids = tokenizer.get_vocab()
    return Vocabulary(
        tokens=tuple(sorted(ids, key=ids.__getitem__)), lowercase=False, kind=kind, model=json.dumps(whole)
    )


def normalizers(kind: str, **settings: Any) -> dict[str, Any] | None:
    normalizer = Splitting(kind=kind, **settings).normalizer()
    return json.loads(normalizer.__getstate__()) if normalizer else None


def sequence(*types: str) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": [{"type": name} for name in types]}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
REPLACE = [{"type": "Replace", "pattern": {"String": sign * 2}, "content": '"'} for sign in "`'"]
PUNCTUATION = {"type": "Punctuation", "behavior": "Isolated"}
RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
ALBERT = {
    "type": "Sequence",
    "normalizers": [*REPLACE, *({"type": name} for name in ("NFKD", "StripAccents", "Lowercase")), RUNS],
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bytes": ("byte-bpe", {"pre_tokenizer": BYTE_LEVEL}),
    "bytes after a space": ("byte-bpe", {"pre_tokenizer": BYTE_LEVEL | {"add_prefix_space": True}}),
    "bytes uncased": ("byte-bpe", {"normalizer": normalizers("byte-bpe", lowercase=True)}),
    "bytes uncased after a space": (
        "byte-bpe",
        {
            "normalizer": normalizers("byte-bpe", lowercase=True),
            "pre_tokenizer": BYTE_LEVEL | {"add_prefix_space": True},
        },
    ),
    "bytes NFC": ("byte-bpe", {"normalizer": sequence("NFC")}),
    "bytes NFKD": ("byte-bpe", {"normalizer": sequence("NFKD", "StripAccents", "Lowercase")}),
    "unigram": ("unigram", {"normalizer": normalizers("unigram", lowercase=False)}),
    "unigram uncased": ("unigram", {"normalizer": normalizers("unigram", lowercase=True)}),
    "ALBERT's": (
        "unigram",
        {
            "normalizer": ALBERT,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]},
        },
    ),
}


def assert_same_ids(tested: Vocabulary, sentences: list[str], table_chunks: int) -> None:
    tokenizer = CachedTokenizer(tested, table_chunks)
    ours, theirs = tokenizer.encode(sentences), encode_directly(tested.tokenizer(), sentences)
    if not all(map(np.array_equal, ours, theirs)):  # name the text
        for text in sentences:
            assert tokenizer.encode([text])[0].tolist() == tested.tokenizer().encode(text).ids, text
    assert all(map(np.array_equal, ours, theirs))


@pytest.mark.parametrize("name", CASES)
def test_ids_are_those_of_the_tokenizer(name: str) -> None:
    tested = vocabulary(CASES[name][0], **CASES[name][1])
    assert cut_of(tested) is not None
    assert_same_ids(tested, TRICKY, 2_000)
    for seed in range(3):
        assert_same_ids(tested, texts(1_000, 100 + seed), 2_000)
    assert_same_ids(tested, [" ".join(texts(200, 7)), *TRICKY], 2_000)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_ids_of_200_000_texts_are_those_of_the_tokenizer(name: str) -> None:
    tested = vocabulary(CASES[name][0], **CASES[name][1])
    for seed in range(20):
        assert_same_ids(tested, texts(10_000, 1_000 + seed), 100_000)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("byte-bpe", {"pre_tokenizer": BYTE_LEVEL | {"use_regex": False}}),
        ("byte-bpe", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [PUNCTUATION, BYTE_LEVEL]}}),
        ("byte-bpe", {"normalizer": REPLACE[0]}),
        ("byte-bpe", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}}),
        ("unigram", {"pre_tokenizer": METASPACE | {"split": False}}),
        ("unigram", {"pre_tokenizer": METASPACE | {"prepend_scheme": "never"}}),
        ("unigram", {"normalizer": {"type": "Replace", "pattern": {"String": "a b"}, "content": "c"}}),
    ],
)  # fmt: skip
def test_unknown_parts_are_never_cut(kind: str, parts: dict[str, Any]) -> None:
    tested = vocabulary(kind, **parts)
    assert cut_of(tested) is None
    assert_same_ids(tested, [*TRICKY, *texts(300, 5)], 2_000)


def test_every_kind_has_its_cuts() -> None:
    assert set(CUTS) == {"wordpiece", "byte-bpe", "unigram"}


def chunks(cut: Any, text: str, *others: str, **settings: bool) -> list[str]:
    """The parts between the cuts of a text, with `others` as further sentences."""
    content = [part.encode() for part in (text, *others)]
    bounds = np.cumsum([0, *map(len, content)])
    whole = b"".join(content)
    cuts = cut(np.frombuffer(whole, np.uint8), bounds, **settings)
    cuts[:1] = False
    edges = [0, *np.flatnonzero(cuts), len(whole)]
    return [whole[start:end].decode() for start, end in zip(edges, edges[1:])]


def test_wordpiece_is_cut_after_spaces_and_around_punctuation_and_chinese_characters() -> None:
    def parts(text: str, chinese_characters: bool = True) -> list[str]:
        return chunks(cuts_around_words, text, chinese_characters=chinese_characters)

    assert parts("The cat's here.\nNo") == ["The ", "cat", "'", "s ", "here", ".", "\n", "No"]
    assert parts("a — “b”…c") == ["a ", "—", " ", "“", "b", "”", "…", "c"]
    assert parts("a力加b一鿿䶿é") == ["a", "力", "加", "b", "一", "鿿", "䶿é"]
    assert parts("a力加 b", chinese_characters=False) == ["a力加 ", "b"]
    assert parts("tab\tform\x0cno\u00a0break") == ["tab\tform\x0cno\u00a0break"]


def test_bytes_are_cut_before_words_and_between_letters_digits_and_signs() -> None:
    def parts(*sentences: str, normalized: bool = False) -> list[str]:
        return chunks(cuts_of_bytes, *sentences, normalized=normalized)

    assert parts("Don't say 'no', 12th (x).") == ["Don", "'t", " say", " 'no", "',", " 12", "th", " (", "x", ")."]
    assert parts("a  b \u00a0c \u2009d \u3000e \u0085f \u1680g \u205fh “i") == [
        "a ", " b \u00a0c \u2009d \u3000e \u0085f \u1680g \u205fh", " “i"
    ]  # fmt: skip
    assert parts("a \u0301b  c") == ["a", " \u0301b ", " c"]
    assert parts("a \u0301b  c d", normalized=True) == ["a \u0301b  c", " d"]
    assert parts("a  ", "b") == ["a  b"], "nothing follows the last space of a sentence"
    assert parts("a é", "b") == ["a", " éb"]


def test_unigram_is_cut_before_spaces_between_printable_characters() -> None:
    assert chunks(cuts_at_plain_spaces, "a b, \u0301c  d é e é. f") == ["a", " b, \u0301c  d é e é.", " f"]
    assert chunks(cuts_at_plain_spaces, " a ") == [" a "] and chunks(cuts_at_plain_spaces, "") == [""]


def test_a_vocabulary_of_another_tokenizer_has_another_table() -> None:
    plain = vocabulary("byte-bpe", pre_tokenizer=BYTE_LEVEL)
    assert CachedTokenizer(plain).table is CachedTokenizer(replace(plain)).table
    assert CachedTokenizer(plain).table is not CachedTokenizer(vocabulary("unigram")).table
