import bz2
from pathlib import Path

import pytest

from pipeline.errors import DataError
from tests.benchmarks.__main__ import main
from tests.benchmarks.wikitext import markers, measure, table

DUMP = """<mediawiki xml:lang="en">
<page><title>Cat</title><ns>0</ns><id>1</id><revision><text>The [[cat]] sat on the mat.</text></revision></page>
<page><title>Dog</title><ns>0</ns><id>2</id><revision><text>A dog barks at the cat.</text></revision></page>
<page><title>Mouse</title><ns>0</ns><id>3</id><revision><text>#REDIRECT [[Cat]]</text></revision></page>
</mediawiki>
"""
EXTRACTED = """<doc id="1" url="u" title="Cat">
Cat

The cat sat on the big mat.
</doc>
<doc id="9" url="u" title="Other">
Other

It is of no account here.
</doc>
"""


@pytest.fixture
def dump(tmp_path: Path) -> str:
    (tmp_path / "dump.xml").write_text(DUMP)
    return str(tmp_path / "dump.xml")


def test_markers_are_counted_for_a_million_words():
    found = markers(["a [[b | c", "d http://x __"])
    assert found["words"] == 7 and found["[[ per million words"] == pytest.approx(1e6 / 7)
    assert {name for name, count in found.items() if count} == {
        "words",
        *(f"{marker} per million words" for marker in ("[[", "|", "http", "__")),
    }


def test_a_dump_is_measured_against_wikiextractors_words(tmp_path: Path):
    (tmp_path / "dump.xml").write_text(DUMP)
    (tmp_path / "AA").mkdir()
    (tmp_path / "AA" / "wiki_00").write_text(EXTRACTED)
    found = measure(str(tmp_path / "dump.xml"), str(tmp_path / "AA"))
    assert (found["articles"], found["dropped: redirect"], found["words"], found["pages in both"]) == (2, 1, 12, 1)
    assert (found["recall"], found["length"]) == (6 / 7, 6 / 7) and found["megabytes a second"] > 0
    assert not any(count for name, count in found.items() if name.endswith("per million words"))
    assert "recall" not in measure(str(tmp_path / "dump.xml"))


def test_the_table_by_hand() -> None:
    found = {
        "articles": 2,
        "words": 1200,
        "dropped: redirect": 1,
        "| per million words": 2.5,
        "< per million words": 0.0,
        "megabytes a second": 7.25,
    }
    assert table(found).split("\n") == [
        "articles                         2         1,200 words",
        "redirect                         1",
        "left per million words         2.5  | 2.5",
        "MB/s of XML, one core          7.2",
    ]
    compared = table(found | {"pages in both": 1, "recall": 0.5, "length": 1.5})
    assert (
        "next to WikiExtractor            1 pages: 50.0% of WikiExtractor's words are in our text, which has 1.50 "
        "times as many words" in compared
    )


def test_the_job_prints_the_table(dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wiki_00").write_text(EXTRACTED)
    assert main(["wikitext", "--dump", dump, "--extracted", str(tmp_path / "wiki_00")]) == 0
    printed = capsys.readouterr().out
    assert (
        "articles                         2            12 words" in printed
        and "85.7% of WikiExtractor's words are in our text, which has 0.86 times as many" in printed
    )


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "cannot be read"),
        (b"A text.", "is not a MediaWiki dump: it begins with b'A text.', but a dump begins with <mediawiki"),
        (b"", "it begins with b''"),
        (b"BZh91AY&SY" + b"x" * 99, "is damaged; download it again"),
    ],
)
def test_what_is_no_dump_is_one_line(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "dump.xml").write_bytes(content)
    assert main(["wikitext", "--dump", str(tmp_path / "dump.xml")]) == 2
    printed = capsys.readouterr().err
    assert message in printed and "dump.xml" in printed and printed.count("\n") == 1


def test_the_output_of_another_wiki_is_refused(dump: str, tmp_path: Path) -> None:
    (tmp_path / "wiki_00").write_text(EXTRACTED.replace("Cat", "Katze"))
    with pytest.raises(
        DataError,
        match="no page in .*wiki_00 has the title of any of the dump's 2 articles; give WikiExtractor's "
        "output of the same wiki",
    ):
        measure(dump, str(tmp_path / "wiki_00"))


def test_a_dump_that_is_cut_off_is_measured_as_far_as_it_goes(tmp_path: Path) -> None:
    packed = b"".join(bz2.compress(part.encode()) for part in (DUMP[:300], DUMP[300:]))
    (tmp_path / "dump.xml.bz2").write_bytes(packed[:-20])
    assert measure(str(tmp_path / "dump.xml.bz2"))["articles"] == 2
