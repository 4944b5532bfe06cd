"""Ids against transformers' tokenizers: the one in Rust, and the one in Python that goes back to
google-research/bert.
"""

from pathlib import Path

import pytest

from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = (
    "the",
    "rain",
    "##ing",
    "##ed",
    "un",
    "##aff",
    "##able",
    "istanbul",
    "cafe",
    "naive",
    "strasse",
    "##ss",
    "don",
    "##t",
    "mask",
    "i",
    "##i",
)
SYMBOLS = (*".,;:!?'\"()[]{}<>-_/\\@#$%^&*+=|~`", *"“”—…€", *"力加勝ßıяйαςσéü𝐀が한")
CONTINUED = tuple(f"##{character}" for character in LETTERS + "ßıяйαςσéü")
UNCASED = Vocabulary(tokens=tuple(dict.fromkeys((*SPECIALS, *LETTERS, *WORDS, *SYMBOLS, *CONTINUED))), lowercase=True)
CASED = Vocabulary(tokens=(*UNCASED.tokens, *LETTERS[:26].upper(), "The", "McDonald", "É", "##É", "Ü"), lowercase=False)

TRICKY = [
    "",
    "   ",
    "The rain unaffable raining.",
    "Don't stop!!! (really?)",
    "CAFÉ café naïve NAÏVE Ünder",
    "Straße STRASSE ß ẞ",
    "İstanbul ISTANBUL ıi",
    "ς σ Σίσυφος",
    "力加勝 mixed力with加words",
    "한국어 がぎ",
    "й Йод",
    "tabs\tand\nline feeds\r\nand \u00a0 \u3000 \u2028 \u2009 spaces",
    "zero\u200bwidth soft\u00adhyphen \ufeffmark \u200djoiner",
    "nul\x00 bell\x07 escape\x1b replacement\ufffd",
    "vertical\x0btab form\x0cfeed file\x1cseparator",
    "private \ue000 flags 🇩🇪 👩‍🚀 🤖",
    "$100 + 5% = ~95^2 `code` <b>tag</b> a_b|c \\ /",
    "“quotes” — dash… €5 §1 ¡hola!",
    "𝐀𝐁 ﬁne Ⅻ ½ ²",
    "http://example.org/a?b=c&d=e user@example.org #tag",
    "a" * 100,
    "a" * 101,
    "##ing ## # the##ing",
    "McDonald MCDONALD The THE",
    "ⅷ Ⅷ ǅ ǆ ŉ",
]
# Here the two of them differ: Python lower-cases a final sigma to ς, composes to NFC, and drops unassigned characters.
TRICKY_IN_RUST = [*TRICKY, "ΑΣ", "cafe\u0301 か\u3099 и\u0306", "unassigned \U000e0080 characters"]


@pytest.mark.parametrize("vocabulary", [UNCASED, CASED], ids=["uncased", "cased"])
def test_ids_are_those_of_the_tokenizer_in_rust(vocabulary: Vocabulary, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    save_vocabulary(vocabulary, tmp_path, 512)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    wordpiece = CachedTokenizer(vocabulary)
    for text in TRICKY_IN_RUST:
        assert wordpiece.encode([text])[0].tolist() == theirs(text, add_special_tokens=False)["input_ids"], text


@pytest.mark.parametrize("vocabulary", [UNCASED, CASED], ids=["uncased", "cased"])
def test_ids_are_those_of_the_tokenizer_in_python(vocabulary: Vocabulary, tmp_path: Path) -> None:
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    save_vocabulary(vocabulary, tmp_path, 512)
    theirs = legacy.BertTokenizerLegacy(str(tmp_path / "vocab.txt"), do_lower_case=vocabulary.lowercase)
    wordpiece = CachedTokenizer(vocabulary)
    for text in TRICKY:
        expected = theirs.convert_tokens_to_ids(theirs.tokenize(text))
        assert wordpiece.encode([text])[0].tolist() == expected, text


def test_special_tokens_in_a_text_are_text() -> None:
    ids = CachedTokenizer(UNCASED).encode(["[MASK] [CLS]"])[0]
    assert UNCASED.mask_id not in ids and UNCASED.cls_id not in ids
    assert [UNCASED.tokens[i] for i in ids] == ["[", "mask", "]", "[", "c", "##l", "##s", "]"]
