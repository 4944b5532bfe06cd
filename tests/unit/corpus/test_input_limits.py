"""Bad input of a corpus is skipped up to prepare.error_limit, and refused above it."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import DataError
from tests.books import SETTINGS, quiet_prepare, write_books


@pytest.mark.parametrize(
    ("names", "content", "words"),
    [
        (("a.png", "b.png"), b"\x89PNG\0\0", r"a.png \(binary\)"),
        (("meta.json", "more.json"), b'{"version": 1}\n', r"meta.json \(no text column\)"),
        (("labels.csv", "more.csv"), b"id,label\n", r"labels.csv \(CSV not JSON lines\)"),
    ],
)
def test_one_broken_file_is_tolerated_and_too_many_are_refused(
    names: tuple[str, str], content: bytes, words: str, tmp_path: Path
) -> None:
    data = write_books(tmp_path / "data")
    (data / names[0]).write_bytes(content)
    quiet_prepare([data], tmp_path / "one")
    (data / names[1]).write_bytes(content)
    with pytest.raises(
        DataError, match=rf"2 of 34 files are broken, more than prepare.error_limit \(0.05\); the first: {words}"
    ):
        quiet_prepare([data], tmp_path / "two")


def test_broken_records_are_limited(tmp_path: Path):
    article = '<doc id="1" url="u" title="T">\nThe text of article {} is long enough.\n'
    (tmp_path / "wiki").write_text(
        "".join(article.format(number) + ("</doc>\n" if number > 1 else "") for number in range(10))
    )
    with pytest.raises(
        DataError,
        match=r"2 of 10 records are broken, more than prepare.error_limit \(0.05\); the first: wiki:0 \(broken "
        r"record\)",
    ):
        quiet_prepare([tmp_path / "wiki"], tmp_path / "out")
    loose = replace(SETTINGS, error_limit=0.2, heldout_share=0.0)
    assert quiet_prepare([tmp_path / "wiki"], tmp_path / "out", loose).counts["pieces"] == 8


def test_a_corpus_without_text_is_refused_with_its_reasons(tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(b"\0")
    with pytest.raises(DataError, match=r"a.bin: no text of the 1 files was kept \(binary: 1\)"):
        quiet_prepare([tmp_path / "a.bin"], tmp_path / "out")
    (tmp_path / "b.txt").write_text("This is the only document there is.")
    with pytest.raises(DataError, match=r"prepare.heldout_share \(0.999\) leaves no training text"):
        quiet_prepare([tmp_path / "b.txt"], tmp_path / "out2", replace(SETTINGS, heldout_share=0.999))
