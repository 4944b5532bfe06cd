"""Read a unigram SentencePiece model (ALBERT's spiece.model, DeBERTa's spm.model) as a tokenizer of `tokenizers`.

The file is a ModelProto message (google/sentencepiece, src/sentencepiece_model.proto).
"""

import struct
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import Unigram

from pipeline.files.wire_format import Fields, fields
from pipeline.text.splitting import META_SPACE, decoder_of

PIECES, TRAINER, NORMALIZER = 1, 2, 3
"""Fields of ModelProto."""
TEXT, SCORE, TYPE = 1, 2, 3
"""Fields of a piece."""
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
"""Types of a piece; NORMAL is the default."""
MODEL_TYPE, CHARACTERS = 3, 2
"""MODEL_TYPE is the field of the trainer's settings that holds the kind of model. CHARACTERS is the field of the
normaliser's settings that holds the compiled table of character replacements.
"""
KINDS = {1: "unigram", 2: "BPE", 3: "word", 4: "character"}
COMMA_PENALTY = 100.0
"""Number subtracted from the score of each piece that ends with a digit and a comma.

As a result, "9," is always two pieces, as in ALBERT's published tokenizer.json.
"""


@dataclass(frozen=True, kw_only=True)
class SentencePieceModel:
    """Content of a SentencePiece model."""

    pieces: tuple[tuple[str, float], ...]
    """Entries by id, each with its score."""
    special: tuple[str, ...]
    """Entries that stand for no text: the unknown entry and control entries."""
    unknown: int
    """Id of the unknown entry."""
    characters: bytes
    """Compiled table of character replacements; empty if there is none."""


def parse(content: bytes, *, parts_commas: bool = True) -> SentencePieceModel:
    """Return the content of a file. If `parts_commas`, scores have COMMA_PENALTY, as ALBERT's have.

    Raises ValueError if the file is no unigram SentencePiece model.
    """
    try:
        model = fields(content)
        pieces = [fields(piece) for piece in model[PIECES]]
        trainer, normalizer = (fields(model.get(part, [b""])[-1]) for part in (TRAINER, NORMALIZER))
        types = [piece.get(TYPE, [NORMAL])[-1] for piece in pieces]
        texts = [piece[TEXT][-1].decode() for piece in pieces]
        scores = [struct.unpack("<f", piece[SCORE][-1])[0] if SCORE in piece else 0.0 for piece in pieces]
    except (IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ValueError("it is no SentencePiece model") from error
    _require_unigram(trainer, types)
    return SentencePieceModel(
        pieces=tuple(
            (text, _parting_score(text, score) if parts_commas else score)
            for text, score in zip(texts, scores, strict=True)
        ),
        special=tuple(text for text, kind in zip(texts, types, strict=True) if kind in (UNKNOWN, CONTROL)),
        unknown=types.index(UNKNOWN),
        characters=normalizer.get(CHARACTERS, [b""])[-1],
    )


def _require_unigram(trainer: Fields, types: list[int]) -> None:
    """Raise ValueError for another kind of model, for byte pieces, and if there is no unknown entry."""
    if (kind := trainer.get(MODEL_TYPE, [1])[-1]) != 1:
        raise ValueError(f"it is a {KINDS.get(kind, kind)} model, and only unigram models work")
    if BYTE in types:
        raise ValueError("it has byte pieces, and only models without them work")
    if UNKNOWN not in types:
        raise ValueError("it has no unknown entry")


def _parting_score(text: str, score: float) -> float:
    """Return a piece's score, lowered by COMMA_PENALTY if the piece ends with a digit and a comma."""
    return score - COMMA_PENALTY if text.endswith(",") and text[-2:-1].isdigit() else score


def tokenizer_of_deberta(model: SentencePieceModel, *, lowercase: bool) -> Tokenizer:
    """Return the tokenizer with DeBERTa's normalisation (transformers: DebertaV2Converter).

    Text is lower-cased if `lowercase`, spaces around it are removed, the model's table of character replacements is
    applied, if it exists, and runs of spaces become one space.
    """
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lowercase else []
    steps += [normalizers.Strip()]
    steps += [normalizers.Precompiled(model.characters)] if model.characters else []
    tokenizer = Tokenizer(Unigram(list(model.pieces), unk_id=model.unknown))
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=META_SPACE, prepend_scheme="always")
    tokenizer.decoder = decoder_of("unigram")
    return tokenizer


def tokenizer_of(model: SentencePieceModel, *, lowercase: bool, strip_accents: bool) -> Tokenizer:
    """Return the tokenizer with ALBERT's normalisation, as in its published tokenizer.json.

    Quotes in TeX's form become double quotes. Accents are removed if `strip_accents`, and text is lower-cased if
    `lowercase`. The model's table of character replacements is applied, if it exists. Runs of spaces become one space.
    """
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [normalizers.NFKD(), normalizers.StripAccents()] if strip_accents else []
    steps += [normalizers.Lowercase()] if lowercase else []
    steps += [normalizers.Precompiled(model.characters)] if model.characters else []
    tokenizer = Tokenizer(Unigram(list(model.pieces), unk_id=model.unknown))
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement=META_SPACE, prepend_scheme="always")]
    )
    tokenizer.decoder = decoder_of("unigram")
    return tokenizer
