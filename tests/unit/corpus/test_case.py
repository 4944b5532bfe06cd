"""Cased or uncased, where a vocabulary is trained: what the accents of the text, the settings and earlier files say."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.data import VocabularySettings
from pipeline.corpus import vocabulary
from pipeline.corpus.prepared import Corpus, Window
from pipeline.corpus.vocabulary import chosen_case, fitting_case, splitting_of
from pipeline.files import storage
from pipeline.text.accents import LostAccents
from pipeline.text.schema import DOCUMENT

GERMAN, ENGLISH = "Große Bäume über den Häusern. " * 200, "Tall trees above the houses. " * 200
CASED = "vocabulary: cased, because uncased removes the accents of 12.5% of the letters (ä→a, ü→u); "


def corpus(folder: Path, text: str) -> Corpus:
    values = {pa.string(): "", pa.bool_(): False}
    row = {field.name: values.get(field.type, 0) for field in DOCUMENT} | {"text": text}
    pq.write_table(pa.Table.from_pylist([row], schema=DOCUMENT), folder / "shard.parquet")
    windows = (Window(shard="shard.parquet", row_group=0, documents=1, characters=len(text)),)
    return Corpus(
        folder=str(folder), fingerprint="0123456789abcdef", train=windows, heldout=(), counts={}, dropped={}, sources={}
    )


@pytest.mark.parametrize(
    ("settings", "text", "lowercase", "said"),
    [
        ({}, ENGLISH, True, []),
        ({}, GERMAN, False, [CASED + "--vocabulary.lowercase makes it uncased"]),
        (
            {"lowercase": True},
            GERMAN,
            True,
            [
                "vocabulary: uncased, which removes the accents of 12.5% of the letters (ä→a, ü→u); "
                "--vocabulary.no-lowercase or --vocabulary.no-strip-accents keeps them"
            ],
        ),
        ({"lowercase": False}, GERMAN, False, []),
        ({"strip_accents": False}, GERMAN, True, []),
        ({"strip_accents": True}, GERMAN, True, []),
        ({"kind": "byte-bpe"}, GERMAN, False, []),
    ],
)
def test_accents_of_the_text_choose_the_case(
    settings: dict, text: str, lowercase: bool, said: list[str], tmp_path: Path
) -> None:
    lines: list[str] = []
    splitting, _, _ = chosen_case(
        VocabularySettings(**settings), corpus(tmp_path, text), str(tmp_path), lines.append, 1.0
    )
    assert (splitting.lowercase, lines) == (lowercase, said)


def test_a_vocabulary_of_an_earlier_version_stays(tmp_path: Path) -> None:
    settings, german = VocabularySettings(), corpus(tmp_path, GERMAN)
    _, folder = vocabulary.place(settings, splitting_of(settings), german, str(tmp_path), 1.0)
    storage.write_json(storage.join(folder, storage.MANIFEST), {})
    lines: list[str] = []
    splitting, _, found = chosen_case(settings, german, str(tmp_path), lines.append, 1.0)
    assert splitting.lowercase and found == folder and lines == []


def test_few_accents_are_no_reason() -> None:
    splitting = splitting_of(VocabularySettings())
    assert fitting_case(VocabularySettings(), splitting, LostAccents(share=0.0049, examples=())) == (splitting, None)
