"""SentencePiece models, written byte by byte: entries, special tokens, normalisation, and files that are refused."""

import json
import struct
from pathlib import Path

import pytest

from pipeline.errors import ConfigError, DataError
from pipeline.files.wire_format import fields
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.sentencepiece_model import parse
from pipeline.text.vocabulary_loading import load_vocabulary

NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
SPECIALS = (("<pad>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN), *((f"[{name}]", 0.0, CONTROL) for name in ("CLS", "SEP")))
MASK = ("[MASK]", 0.0, CONTROL)
TEXT = (("▁the", -1.0, NORMAL), ("▁", -2.0, NORMAL), *((letter, -3.0, NORMAL) for letter in "catseyé9,"))
PIECES = (*SPECIALS, MASK, *TEXT)


def message(number: int, content: bytes) -> bytes:
    """A field that holds a message or a text of at most 16,383 bytes."""
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + length + content


def piece(text: str, score: float, kind: int) -> bytes:
    return message(1, message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind]))


def model(pieces: tuple = PIECES, *, trainer: bytes = b"", characters: bytes = b"") -> bytes:
    return b"".join(piece(*row) for row in pieces) + message(2, trainer) + message(3, message(2, characters))


def x_becomes_y() -> bytes:
    """A compiled table of characters with one row: a double array of 512 units, and the text "y"."""
    units = [0] * 512
    units[0] = 1 << 10  # children of the root lie at 1 ^ their byte
    units[1 ^ ord("x")] = ord("x") | 1 << 8 | 256 << 10  # x ends a row, whose leaf lies 256 units away
    return struct.pack("<I512I", 4 * len(units), *units) + b"y\0"


def vocabulary_of(content: bytes, folder: Path, **config: bool):
    (folder / "spiece.model").write_bytes(content)
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_vocabulary(str(folder), None)


def deberta_of(content: bytes, folder: Path, **config: bool):
    (folder / "spm.model").write_bytes(content)
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_vocabulary(str(folder), None)


def pieces_of(vocabulary, text: str) -> list[str]:
    return [vocabulary.tokens[i] for i in CachedTokenizer(vocabulary).encode([text])[0]]


def test_a_message_is_read_by_its_wire_types() -> None:
    # Field 1 = 300, field 2 = "ab", field 3 = 1.0 as four bytes, field 1 again = 2.
    content = b"\x08\xac\x02" + b"\x12\x02ab" + b"\x1d" + struct.pack("<f", 1.0) + b"\x08\x02"
    assert fields(content) == {1: [300, 2], 2: [b"ab"], 3: [struct.pack("<f", 1.0)]}
    with pytest.raises(ValueError, match="^a field is longer than its message$"):
        fields(b"\x12\x03ab")


def test_entries_are_the_pieces_and_control_pieces_are_special(tmp_path: Path) -> None:
    found = vocabulary_of(model((*PIECES, ("(", 0.0, USER))), tmp_path)
    assert found.tokens == (*(row[0] for row in PIECES), "(") and found.kind == "unigram" and found.lowercase
    assert found.specials == ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    assert pieces_of(found, "The  cat") == ["▁the", "▁", "c", "a", "t"]
    assert pieces_of(found, "cat (") == ["▁", "c", "a", "t", "▁", "("]
    assert "[CLS]" not in pieces_of(found, "[CLS]")  # in a text, it is text


def test_accents_and_characters_are_normalised_as_the_files_say(tmp_path: Path) -> None:
    content = model(characters=x_becomes_y())
    assert pieces_of(vocabulary_of(content, tmp_path), "xéY") == ["▁", "y", "e", "y"]
    kept = vocabulary_of(content, tmp_path, keep_accents=True, do_lower_case=False)
    assert not kept.lowercase and pieces_of(kept, "xé") == ["▁", "y", "é"]
    assert pieces_of(kept, "Y") == ["▁", "<unk>"]


def test_text_is_not_lower_cased_if_many_entries_have_capitals(tmp_path: Path) -> None:
    found = vocabulary_of(model((*PIECES, ("T", -3.0, NORMAL))), tmp_path)
    assert not found.lowercase
    with pytest.raises(ConfigError, match=r"^vocabulary.lowercase \(True\) differs from normalizer in .* \(False\)"):
        load_vocabulary(str(tmp_path / "spiece.model"), True)


def test_a_digit_and_a_comma_are_two_pieces_even_if_the_model_has_one_for_both() -> None:
    scores = dict(parse(model((*PIECES, ("9,", -1.0, NORMAL), ("e,", -1.5, NORMAL), (",", -3.0, NORMAL)))).pieces)
    assert (scores["9,"], scores["e,"], scores[","]) == (-101.0, -1.5, -3.0)


DEBERTA = (
    *((f"[{name}]", 0.0, CONTROL) for name in ("PAD", "CLS", "SEP")),
    ("[UNK]", 0.0, UNKNOWN),
    *TEXT,
    ("T", -3.0, NORMAL),
    ("9,", -1.0, NORMAL),
)
"""Entries in the order of the published spm.model, which has no [MASK]."""


def test_deberta_s_model_gets_a_mask_and_keeps_accents_quotes_and_commas(tmp_path: Path) -> None:
    found = deberta_of(model(DEBERTA, characters=x_becomes_y()), tmp_path)
    assert found.tokens == (*(row[0] for row in DEBERTA), "[MASK]") and not found.lowercase
    assert found.specials == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert (found.pad_id, found.cls_id, found.sep_id, found.mask_id) == (0, 1, 2, len(DEBERTA))
    assert pieces_of(found, " the  xT 9, ") == ["▁the", "▁", "y", "T", "▁", "9,"]
    assert pieces_of(found, "é''") == ["▁", "é", "[UNK]"]
    lower = deberta_of(model(DEBERTA), tmp_path, do_lower_case=True)
    assert lower.lowercase and pieces_of(lower, "The") == ["▁the"]


def test_deberta_s_model_is_not_split_at_punctuation(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tokenizer_config.json: split_by_punct \(True\) must be False: use a token"):
        deberta_of(model(DEBERTA), tmp_path, split_by_punct=True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no protocol buffer", "it is no SentencePiece model"),
        (model()[:-1], "a field is longer than its message"),
        (model(trainer=b"\x18\x02"), "it is a BPE model, and only unigram models work"),
        (model((*PIECES, ("<0x00>", 0.0, BYTE))), "it has byte pieces, and only models without them work"),
        (model(PIECES[2:]), "it has no unknown entry"),
        (model(characters=b"abc"), "cannot be read as a unigram SentencePiece model"),
        (model((*SPECIALS, *TEXT)), "has no [MASK] or <mask> among its 15 entries"),
        (b"", "it is no SentencePiece model"),
    ],
)
def test_other_files_are_refused_in_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        vocabulary_of(content, tmp_path)
    line = str(refused.value)
    assert said in line and line.startswith(str(tmp_path / "spiece.model")) and "\n" not in line
