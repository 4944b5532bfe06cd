import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import smart_open
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus.builtin import read_docstrings, unwrap
from pipeline.corpus.formats import FORMATS, read_sentences, read_text, read_wikiextractor, recognise
from pipeline.corpus.inputs import list_files
from pipeline.corpus.opening import LONGEST_LINE, blocks, lines
from pipeline.corpus.parts import Tally, file_rows
from pipeline.corpus.sources import parse
from pipeline.errors import DataError
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


def read(reader: Callable, content: str | bytes) -> list[tuple]:
    """(id, title, paragraphs) or (id, reason, sample), with every block of one byte: readers may not rely on where blocks end."""
    data = content.encode() if isinstance(content, str) else content
    found = []
    for item in reader(iter([data[at : at + 1] for at in range(len(data))]), "f"):
        found.append((item.id, item.reason, item.sample) if isinstance(item, Dropped) else (item.id, item.title, list(item.paragraphs)))
    return found


def rows(location: object, format: str | None = None) -> tuple[list[dict], Tally]:
    tally = Tally()
    (file,) = list_files(parse(str(location) + (f"::format={format}" if format else "")))
    return list(file_rows(file, tally, 1000, 1)), tally


def compressed(path: Path, data: bytes) -> bytes:
    """What smart_open writes under this name."""
    with smart_open.open(str(path), "wb") as stream:
        stream.write(data)
    return path.read_bytes()


def test_lines_end_at_every_systems_line_ends_and_only_there():
    assert list(lines(iter([b"\xef\xbb\xbfa\r", b"\nb\rc\n", "d\u2028\x0b\x0c\x85e".encode()[:3], "d\u2028\x0b\x0c\x85e".encode()[3:]]))) == ["a", "b", "c", "d\u2028\x0b\x0c\x85e"]


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
    assert read(read_sentences, "\n\nA one.\nA two.\n\n \nB one.\n") == [("f:0", "", ["A one.", "A two."]), ("f:1", "", ["B one."])]
    assert all(record.lines_are_sentences for record in read_sentences(iter([b"a"]), "f") if isinstance(record, Record))


def test_sentences_without_a_last_line_end():
    assert [list(record.paragraphs) for record in read_sentences(iter([b"a\nb\n\nc\nd"]), "f")] == [["a", "b"], ["c", "d"]]


def test_wikiextractor_unescapes_titles_and_drops_the_repeated_one():
    assert read(read_wikiextractor, WIKI) == [
        ("f:0", 'Tom & "Jerry"', ["", "Tom is a cat.", "Jerry is a mouse."]),
        ("f:1", "Other", ["No title line here.", ""]),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('<doc id="1" url="u" title="T">\nT\n\nCut o', [("f:0", "broken record", '<doc id="1" url="u" title="T"> T')]),
        ('<doc id="1" url="u" title="T">\nLost.\n<doc id="2" url="u" title="U">\nKept.\n</doc>', [("f:0", "broken record", '<doc id="1" url="u" title="T"> Lost.'), ("f:1", "U", ["Kept."])]),
        ('Stray.\n<doc id="2" url="u" title="U">\nKept.\n</doc>\n', [("f:0", "broken record", "Stray."), ("f:1", "U", ["Kept."])]),
        ("</doc>\n", []),
    ],
)
def test_wikiextractor_broken_records(content: str, expected: list):
    assert read(read_wikiextractor, content) == expected


@pytest.mark.parametrize(
    ("head", "format"),
    [(b'<doc id="1" url="" title="">\n', "wikiextractor"), (b"\xef\xbb\xbf<doc id=", "wikiextractor"), (b"Plain.", "text"), (b"", "text"), (b"caf\xe9 is one byte of many" * 2, "text"), (b"a\0b", None), (b"\x89PNG\r\n\x1a\n", "text"), (bytes(range(128, 256)) * 9, None)],
)
def test_formats_are_recognised_by_their_first_bytes(head: bytes, format: str | None):
    assert recognise("f", head) == format


def test_the_table_of_formats():
    assert set(FORMATS) == {"builtin", "text", "sentences", "wikiextractor"}


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
def test_compressed_files_and_what_is_left_of_truncated_and_damaged_ones(tmp_path: Path, suffix: str):
    text = "".join(f"Line {number} is here, {number * 7919 % 10007}.\n" for number in range(60_000))  # two blocks of bzip2
    path = tmp_path / f"a.txt{suffix}"
    whole = compressed(path, text.encode())
    assert b"".join(blocks(str(path))).decode() == text

    path.write_bytes(whole[: len(whole) * 3 // 4])
    found, tally = rows(path)
    kept = "\n".join(row["text"] for row in found)
    assert text.startswith(kept[:-1]) and len(kept) > len(text) // 4
    assert (tally.dropped, tally.files) == ({"truncated file": 1}, 1)

    path.write_bytes(b"no such compression " * 50)
    assert rows(path)[1].dropped == {"damaged file": 1}


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_small_truncated_file_keeps_what_can_be_read(tmp_path: Path, compress: Callable[[bytes], bytes]):
    suffix = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz"}[compress]
    (tmp_path / f"a.txt.{suffix}").write_bytes(compress(b"One.\nTwo.\n")[:-6])
    found, tally = rows(tmp_path / f"a.txt.{suffix}")
    assert [row["text"] for row in found] in ([], ["One.\nTwo."]) and tally.dropped == {"truncated file": 1}
    assert suffix != "gz" or found


def test_several_compressed_streams_in_one_file_are_read_as_one(tmp_path: Path):
    (tmp_path / "a.bz2").write_bytes(bz2.compress(b"One.\n") + bz2.compress(b"Two.\n"))
    assert [row["text"] for row in rows(tmp_path / "a.bz2")[0]] == ["One.\nTwo."]


def test_binary_files_are_counted_and_a_forced_format_is_obeyed(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"\0" * 100)
    assert rows(tmp_path / "a")[1].samples == {"binary": [["a", ""]]}
    (tmp_path / "b").write_text("One.\n\nTwo.")
    assert [row["text"] for row in rows(tmp_path / "b", "sentences")[0]] == ["One.", "Two."]
    assert [row["text"] for row in rows(tmp_path / "b")[0]] == ["One.\nTwo."]


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
    found = read(lambda data, name: read_docstrings(data, "pack/mod.py"), source)
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
    ((id, reason, _),) = read(read_docstrings, source)
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
        "Return the sum of the numbers that were given, or of those numbers that were given before, if there are none now.",
        "Parameters",
        "first : int",
        "The first of the numbers, which may be as large as the memory of this machine allows, but not larger than the number that is called here the",
        "second : int",
        "- an item of a list that goes on for a long time and does not fit in one line",
        "- another",
        "The result is of the type that the first number has, which may be the type :class:`int` or *any* other, as is said where that type is described, so that *nothing* is lost.",
        ":param first: a number that is at least as large as the other number is, a",
        ":returns: a number",
        ">>> a_very_long_function_name_that_needs_much_space(1, 2, 3, 4, 5, 6, 7)",
        "3",
    ]
