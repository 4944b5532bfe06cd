import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import smart_open
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.data import Preparation
from pipeline.corpus.builtin import read_docstrings, unwrap
from pipeline.corpus.formats import FORMATS, HEAD_BYTES, recognise
from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_documents
from pipeline.corpus.plain import SENTENCES_A_DOCUMENT, read_bookscorpus, read_sentences, read_text
from pipeline.corpus.sources import parse
from pipeline.corpus.warc import read_warc
from pipeline.corpus.wikiextractor import read_wikiextractor
from pipeline.errors import DataError
from pipeline.files.opening import LONGEST_LINE, Opened, blocks, lines
from pipeline.text.documents import Dropped, Record

WIKI = """<doc id="12" url="https://x.org?curid=12" title="Tom &amp; "Jerry"">
Tom & "Jerry"

Tom is a cat.
Jerry is a mouse.
</doc>
<doc id="13" url="u" title="Other">
No title line here.

</doc>
"""


def opened(content: str | bytes, size: int = 1, name: str = "f") -> Opened:
    """A file in blocks of one byte: readers may not rely on where blocks end."""
    data = content.encode() if isinstance(content, str) else content
    return Opened(
        location=f"/folder/{name}", name=name, blocks=iter([data[at : at + size] for at in range(0, len(data), size)])
    )


def read(reader: Callable, content: str | bytes, name: str = "f") -> list[tuple]:
    """(id, title, paragraphs) or (id, reason, sample)."""
    found = []
    for item in reader(opened(content, name=name)):
        found.append(
            (item.id, item.reason, item.sample)
            if isinstance(item, Dropped)
            else (item.id, item.title, list(item.paragraphs))
        )
    return found


def documents_of(location: object, format: str | None = None) -> tuple[list[str], dict[str, int]]:
    """The texts of a file's documents and {reason: count} of what is dropped of it."""
    (file,) = list_files(parse(str(location) + (f"::format={format}" if format else "")))
    texts: list[str] = []
    dropped: dict[str, int] = {}
    for item in file_documents(file, Preparation(piece_characters=1000, minimum_characters=1, minimum_letters=0)):
        if isinstance(item, Dropped):
            dropped[item.reason] = dropped.get(item.reason, 0) + 1
        else:
            texts.append(item.text)
    return texts, dropped


def compressed(path: Path, data: bytes) -> bytes:
    """Return the bytes that smart_open writes to a file of this name."""
    with smart_open.open(str(path), "wb") as stream:
        stream.write(data)
    return path.read_bytes()


ARCHIVE = """WARC/1.0
WARC-Type: warcinfo
Content-Length: 9

isPartOf: A

WARC/1.0
WARC-Type: conversion
WARC-Target-URI: http://a.example/b
WARC-Identified-Content-Language: deu,eng
Content-Type: text/plain

Eine Seite.
WARC/1.0

Mehr Text.

WARC/1.0
WARC-Type: resource
Content-Type: text/plain; charset=utf-8
WARC-Target-URI: <http://a.example/robots.txt>

A text.

WARC/1.0
WARC-Type: response

HTTP/1.1 200 OK

<html>

""".replace("\n", "\r\n")


def test_a_web_archive_is_a_document_for_each_text_without_headers():
    """A line "WARC/1.0" within a paragraph is text; pages in HTML are dropped."""
    items = list(read_warc(opened(ARCHIVE)))
    assert [(item.id, item.language, [line for line in item.paragraphs if line]) for item in items[:2]] == [
        ("f:1:http://a.example/b", "de", ["Eine Seite.", "WARC/1.0", "Mehr Text."]),
        ("f:2:http://a.example/robots.txt", None, ["A text."]),
    ]
    assert items[2:] == [Dropped(id="f:3", reason="web page not text", sample="HTTP/1.1 200 OK  <html>  ")]


def test_a_web_archive_is_recognised_and_its_members_are_one_stream(tmp_path: Path):
    members = ARCHIVE.split("WARC/1.0\r\nWARC-Type")
    data = b"".join(gzip.compress(f"WARC/1.0\r\nWARC-Type{member}".encode()) for member in members[1:])
    (tmp_path / "a.warc.wet.gz").write_bytes(data)
    assert documents_of(tmp_path / "a.warc.wet.gz") == (
        ["Eine Seite.\nWARC/1.0\nMehr Text.", "A text."],
        {"web page not text": 1},
    )


def test_an_address_in_another_encoding_can_be_written():
    archive = "WARC/1.0\nWARC-Type: conversion\nWARC-Target-URI: http://a.example/caf\xe9\n\nOne.\n".encode("latin-1")
    assert [item.id for item in read_warc(opened(archive))] == ["f:0:http://a.example/caf?"]


def test_text_before_the_first_record_of_a_web_archive_is_broken():
    assert read(read_warc, "lost\n\nWARC/1.0\nWARC-Type: conversion\n\nOne.\n") == [
        ("f:0", "broken record", "lost"),
        ("f:1", "", ["One.", ""]),
    ]


def test_lines_end_at_every_systems_line_ends_and_only_there():
    assert list(
        lines(
            iter(
                [
                    b"\xef\xbb\xbfa\r",
                    b"\nb\rc\n",
                    "d\u2028\x0b\x0c\x85e".encode()[:3],
                    "d\u2028\x0b\x0c\x85e".encode()[3:],
                ]
            )
        )
    ) == ["a", "b", "c", "d\u2028\x0b\x0c\x85e"]


@given(st.text(), st.integers(1, 7))
def test_lines_do_not_depend_on_where_blocks_end(text: str, size: int):
    data = text.encode()
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    assert list(lines(iter(parts))) == text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def test_a_line_without_end_comes_in_parts():
    text = "word " * (LONGEST_LINE // 5 * 2 + 10)
    parts = list(lines(iter([text.encode()])))
    assert "".join(parts) == text and len(parts) == 3 and all(part.endswith(" ") for part in parts)


def test_text_is_one_document_with_its_title_line_or_file_name():
    assert read(read_text, "# Title: Emma\n\nOne.\nTwo.") == [("f", "Emma", ["", "One.", "Two."])]
    assert read(read_text, "Title: Emma\nOne.") == [("f", "Emma", ["One."])]
    assert read(read_text, "One.\nTitle: Emma") == [("f", "f", ["One.", "Title: Emma"])]


def test_sentences_have_blank_lines_between_documents():
    assert read(read_sentences, "\n\nA one.\nA two.\n\n \nB one.\n") == [
        ("f:0", "", ["A one.", "A two."]),
        ("f:1", "", ["B one."]),
    ]
    assert all(record.lines_are_sentences for record in read_sentences(opened("a")) if isinstance(record, Record))


def test_sentences_without_a_last_line_end():
    assert [list(record.paragraphs) for record in read_sentences(opened("a\nb\n\nc\nd"))] == [["a", "b"], ["c", "d"]]


def test_wikiextractor_unescapes_titles_and_drops_the_repeated_one():
    assert read(read_wikiextractor, WIKI) == [
        ("f:0", 'Tom & "Jerry"', ["", "Tom is a cat.", "Jerry is a mouse."]),
        ("f:1", "Other", ["No title line here.", ""]),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('<doc id="1" url="u" title="T">\nT\n\nCut o', [("f:0", "broken record", '<doc id="1" url="u" title="T"> T')]),
        (
            '<doc id="1" url="u" title="T">\nLost.\n<doc id="2" url="u" title="U">\nKept.\n</doc>',
            [("f:0", "broken record", '<doc id="1" url="u" title="T"> Lost.'), ("f:1", "U", ["Kept."])],
        ),
        (
            'Stray.\n<doc id="2" url="u" title="U">\nKept.\n</doc>\n',
            [("f:0", "broken record", "Stray."), ("f:1", "U", ["Kept."])],
        ),
        ("</doc>\n", []),
    ],
)
def test_wikiextractor_broken_records(content: str, expected: list):
    assert read(read_wikiextractor, content) == expected


WIKI_JSON = """{"id": "12", "revid": "1", "url": "https://x.org?curid=12", "title": "Tom \\"T\\" Cat", \
"text": "Tom \\"T\\" Cat\\n\\nTom is a cat.\\nJerry is a mouse."}
{"id": "13", "url": "u", "title": "Other", "text": "No title line here."}
{"id": "14", "url": "u", "title": "Cut", "text": "Cut o
"""


def test_wikiextractors_json_is_read_like_its_elements():
    found = read(read_wikiextractor, "\n" + WIKI_JSON)
    assert found[:2] == [
        ("f:0:12", 'Tom "T" Cat', ["", "Tom is a cat.", "Jerry is a mouse."]),
        ("f:1:13", "Other", ["No title line here."]),
    ]
    assert [item[:2] for item in found[2:]] == [("f:2", "broken record")]


def test_bookscorpus_is_cut_to_documents_of_sentences():
    text = "".join(f"sentence {number} .\n" for number in range(SENTENCES_A_DOCUMENT + 2))
    first, second = read(read_bookscorpus, text)
    assert (first[0], len(first[2]), first[2][-1]) == ("f:0", SENTENCES_A_DOCUMENT, "sentence 499 .")
    assert second == ("f:1", "", ["sentence 500 .", "sentence 501 ."])
    found = [
        (record.parent, record.lines_are_sentences, list(record.paragraphs))
        for record in read_bookscorpus(opened("a .\n\n \nb .\n"))
    ]
    assert found == [("f:0", True, ["a .", "b ."])]


RECOGNISED: list[tuple[str, bytes, str | None]] = [
    ("f", b'<doc id="1" url="" title="">\n', "wikiextractor"),
    ("f", b"\xef\xbb\xbf<doc id=", "wikiextractor"),
    ("AA/wiki_00", WIKI_JSON.encode(), "wikiextractor"),
    ("AA/wiki_00", WIKI_JSON.encode()[:110] + b"x" * 70_000, "wikiextractor"),
    ("a.json", b'{"id": "1", "label": 2, "text": "x"}', "jsonl"),
    ("f", b'{"text": "x", "id": 1}\n{', "jsonl"),
    ("f", b'{"text": "' + b"x" * 70_000, "jsonl"),
    ("f", b"{not JSON}\nbut text", "text"),
    ("a.JSONL.gz", b"", "jsonl"),
    ("a.ndjson", b"x", "jsonl"),
    ("a.parquet", b"no Parquet", "parquet"),
    ("f", b"PAR1\x15\x04", "parquet"),
    ("x/books_large_p1.txt", b"usually , he would .\n", "bookscorpus"),
    ("books_large_p2.txt.bz2", b"usually , he would .\n", "bookscorpus"),
    ("my_books_large_p1.txt", b"usually , he would .\n", "text"),
    (
        "pg1.txt",
        b"The Project Gutenberg EBook\r\n\r\n***START OF THE PROJECT GUTENBERG EBOOK X***\r\n",
        "gutenberg",
    ),
    ("pg1.txt", b"*END THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n", "gutenberg"),
    ("f", b"The words START OF THIS PROJECT GUTENBERG EBOOK in a text", "text"),
    ("f", b"Plain.", "text"),
    ("f", b"", "text"),
    ("f", b"caf\xe9 is one byte of many" * 2, "text"),
    ("f", b"a\0b", None),
    ("f", b"\x89PNG\r\n\x1a\n", "text"),
    ("f", bytes(range(128, 256)) * 9, None),
]


def test_formats_are_recognised_by_names_and_first_bytes():
    found = [(name, head, recognise(name, head[:HEAD_BYTES])) for name, head, _ in RECOGNISED]
    assert found == RECOGNISED


def test_the_table_of_formats():
    forced = {"builtin", "sentences", "parquet-sentences", "pairs"}
    assert (
        set(FORMATS) >= forced | {"text", "wikiextractor", "bookscorpus", "gutenberg", "jsonl", "parquet"}
        and list(FORMATS)[-1] == "text"
    )
    assert [name for name, row in FORMATS.items() if row.recognises is FORMATS["builtin"].recognises] == [
        name for name in FORMATS if name in forced
    ]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
def test_compressed_files_and_what_is_left_of_truncated_and_damaged_ones(tmp_path: Path, suffix: str):
    text = "".join(
        f"Line {number} is here, {number * 7919 % 10007}.\n" for number in range(60_000)
    )  # two blocks of bzip2
    path = tmp_path / f"a.txt{suffix}"
    whole = compressed(path, text.encode())
    assert b"".join(blocks(str(path))).decode() == text

    path.write_bytes(whole[: len(whole) * 3 // 4])
    found, dropped = documents_of(path)
    kept = "\n".join(found)
    assert text.startswith(kept[:-1]) and len(kept) > len(text) // 4
    assert dropped == {"truncated file": 1}

    path.write_bytes(b"no such compression " * 50)
    assert documents_of(path)[1] == {"damaged file": 1}


def test_the_reason_of_damage_is_kept(tmp_path: Path):
    """A frame with one block, whose window of 256 MiB is above the limit of the decompressor."""
    (tmp_path / "a.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00\x90\x29\x00\x00One.\n")
    (file,) = list_files(parse(str(tmp_path / "a.zst")))
    (item,) = file_documents(file, Preparation())
    assert item.reason == "damaged file" and "too much memory" in item.sample


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_small_truncated_file_keeps_what_can_be_read(tmp_path: Path, compress: Callable[[bytes], bytes]):
    suffix = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz"}[compress]
    (tmp_path / f"a.txt.{suffix}").write_bytes(compress(b"One.\nTwo.\n")[:-6])
    found, dropped = documents_of(tmp_path / f"a.txt.{suffix}")
    assert found in ([], ["One.\nTwo."]) and dropped == {"truncated file": 1}
    assert suffix != "gz" or found


def test_several_compressed_streams_in_one_file_are_read_as_one(tmp_path: Path):
    (tmp_path / "a.bz2").write_bytes(bz2.compress(b"One.\n") + bz2.compress(b"Two.\n"))
    assert documents_of(tmp_path / "a.bz2")[0] == ["One.\nTwo."]


def test_a_column_of_lists_of_lists_is_no_text(tmp_path: Path):
    pq.write_table(pa.table({"text": [[["One."], ["Two."]]], "other": ["Three."]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="a.parquet"):
        documents_of(tmp_path / "a.parquet")


def test_binary_files_are_counted_and_a_forced_format_is_obeyed(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"\0" * 100)
    assert documents_of(tmp_path / "a") == ([], {"binary": 1})
    (tmp_path / "b").write_text("One.\n\nTwo.")
    assert documents_of(tmp_path / "b", "sentences")[0] == ["One.", "Two."]
    assert documents_of(tmp_path / "b")[0] == ["One.\nTwo."]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=f"^{tmp_path}/none.gz cannot be read: .*No such file"):
        list(blocks(f"{tmp_path}/none.gz"))


def test_docstrings_of_modules_classes_and_functions_and_no_other_strings():
    long = "word " * 41
    source = f'''"""Module {long}"""
import os
class A:
    """Class {long}"""
    other = "not a docstring {long}"
    def method(self):
        """Method {long}"""
        return ["comprehension {long}" for x in range(3)]
    async def quick(self):
        """Short."""
def plain():
    return "no docstring {long}"
first = lambda: "lambda {long}"
def outer():
    def inner():
        """Inner {long}"""
'''
    found = read(FORMATS["builtin"].read, source, "pack/mod.py")
    assert [(id, title, text[0].split()[0]) for id, title, text in found] == [
        ("pack/mod.py:0", "pack.mod", "Module"),
        ("pack/mod.py:1", "pack.mod.A", "Class"),
        ("pack/mod.py:2", "pack.mod.A.method", "Method"),
        ("pack/mod.py:4", "pack.mod.outer.<locals>.inner", "Inner"),
    ]
    (record,) = read_docstrings(iter([f'"""{long}"""'.encode()]), "pack/__init__.py")
    assert (record.title, record.parent) == ("pack", "pack/__init__.py")


@pytest.mark.parametrize("source", ["print 'old'", "x = '\0'", "(" * 5000, "# coding: nonsense\n"])
def test_files_that_do_not_compile_are_dropped(source: str):
    ((id, reason, _),) = read(FORMATS["builtin"].read, source)
    assert (id, reason) == ("f", "does not compile")


def test_wrapped_lines_are_joined_and_made_ones_stay():
    text = """Return the sum of the numbers that were given, or of those numbers that
were given before, if there are none now.

Parameters
----------
first : int
    The first of the numbers, which may be as large as the memory of this
    machine allows, but not larger than the number that is called here the
second : int

- an item of a list that goes on for a long time and does not fit in one
  line
- another

The result is of the type that the first number has, which may be the type
:class:`int` or *any* other, as is said where that type is described, so that
*nothing* is lost.
:param first: a number that is at least as large as the other number is, a
:returns: a number

>>> a_very_long_function_name_that_needs_much_space(1, 2, 3, 4, 5, 6, 7)
3
"""
    assert list(unwrap(text)) == [
        "Return the sum of the numbers that were given, or of those numbers that were given before, if there are "
        "none now.",
        "Parameters",
        "first : int",
        "The first of the numbers, which may be as large as the memory of this machine allows, but not larger than "
        "the number that is called here the",
        "second : int",
        "- an item of a list that goes on for a long time and does not fit in one line",
        "- another",
        "The result is of the type that the first number has, which may be the type :class:`int` or *any* other, as "
        "is said where that type is described, so that *nothing* is lost.",
        ":param first: a number that is at least as large as the other number is, a",
        ":returns: a number",
        ">>> a_very_long_function_name_that_needs_much_space(1, 2, 3, 4, 5, 6, 7)",
        "3",
    ]
