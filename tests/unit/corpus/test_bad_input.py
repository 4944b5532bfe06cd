"""Bad input of every kind, in every format: it gives documents, a drop with a reason, or a one-line error."""

import bz2
import functools
import gzip
import json
import lzma
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

from pipeline.config.data import Preparation
from pipeline.corpus import unsupported
from pipeline.corpus.formats import FORMATS
from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_documents, file_records
from pipeline.corpus.sources import parse
from pipeline.errors import DataError
from pipeline.text.documents import BROKEN_FILE, Dropped
from tests.refusals import refusal

SETTINGS = Preparation(piece_characters=1000, minimum_characters=1, minimum_letters=0)
TEXT = "the cat sat on a mat and saw one of many dogs that ran by so fast it was gone"
WORDS = TEXT.split()
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": functools.partial(bz2.compress, compresslevel=1),
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


def sentences(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [f"Sentence {number} says {' '.join(draw.choices(WORDS, k=9))}." for number in range(count)]


@functools.cache
def compressed(format: str, suffix: str) -> tuple[list[str], bytes]:
    """Lines and their compressed file: several blocks of bzip2, or enough that most is read before the end."""
    lines = sentences(3_500)
    return lines, COMPRESSIONS[suffix](FORMS[format](lines))


def text_file(lines: list[str]) -> bytes:
    return "\n".join(lines).encode()


def wiki_file(lines: list[str]) -> bytes:
    return "".join(
        f'<doc id="{number}" url="u" title="T{number}">\nT{number}\n\n{line}\n\n</doc>\n'
        for number, line in enumerate(lines)
    ).encode()


def json_file(lines: list[str]) -> bytes:
    return "".join(json.dumps({"text": line}) + "\n" for line in lines).encode()


def gutenberg_file(lines: list[str]) -> bytes:
    return (
        "Title: X\n\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\n\n"
        + "\n\n".join(lines)
        + "\n\n*** END OF THE PROJECT GUTENBERG EBOOK X ***\n"
    ).encode()


def dump_file(lines: list[str]) -> bytes:
    pages = "".join(
        f"<page><title>T{number}</title><ns>0</ns><id>{number + 1}</id>"
        f"<revision><text>{line}</text></revision></page>\n"
        for number, line in enumerate(lines)
    )
    return f'<mediawiki xml:lang="en">\n{pages}</mediawiki>\n'.encode()


def warc_file(lines: list[str]) -> bytes:
    return "".join(
        f"WARC/1.0\nWARC-Type: conversion\nContent-Length: {len(line)}\n\n{line}\n\n" for line in lines
    ).encode()


FORMS: dict[str, Callable[[list[str]], bytes]] = {
    "text": text_file,
    "sentences": lambda lines: "\n\n".join(lines).encode(),
    "bookscorpus": text_file,
    "wikiextractor": wiki_file,
    "jsonl": json_file,
    "gutenberg": gutenberg_file,
    "warc": warc_file,
} | ({"wikipedia-dump": dump_file} if "wikipedia-dump" in FORMATS else {})


def read(path: Path, format: str | None = None) -> tuple[list[str], dict[str, int]]:
    """Return the texts of a file's documents and {reason: count}; its name tells the format unless one is given."""
    texts: list[str] = []
    dropped: Counter[str] = Counter()
    (file,) = list_files(parse(f"{path}::format={format}" if format else str(path)))
    for item in file_documents(file, SETTINGS):
        if isinstance(item, Dropped):
            dropped[item.reason] += 1
        else:
            texts.append(item.text)
    return texts, dict(dropped)


def read_below(folder: Path) -> tuple[list[str], dict[str, int]]:
    """The same of the one file in a folder."""
    (file,) = list_files(parse(str(folder)))
    items = list(file_documents(file, SETTINGS))
    return [item.text for item in items if not isinstance(item, Dropped)], dict(
        Counter(item.reason for item in items if isinstance(item, Dropped))
    )


def kept(texts: list[str]) -> str:
    return "\n".join(texts)


def test_every_format_that_reads_bytes_is_tried():
    assert set(FORMS) == set(FORMATS) - {"builtin", "pairs", "parquet", "parquet-sentences"}


@pytest.mark.parametrize("format", FORMS)
def test_line_ends_and_a_bom_change_nothing(tmp_path: Path, format: str):
    lines = sentences(30)
    for ends in ("\n", "\r\n", "\r"):
        (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + FORMS[format](lines).replace(b"\n", ends.encode()))
        texts, dropped = read(tmp_path / "a", format)
        assert kept(texts).split("\n") == lines and dropped == {}, ends


DAMAGED = [*zip(FORMS, 2 * list(COMPRESSIONS)), ("wikipedia-dump", ".bz2")]
"""Every format in one compression, and dumps as they are published: readers do not know how their bytes were stored."""


@pytest.mark.parametrize(("format", "suffix"), DAMAGED)
def test_a_truncated_file_keeps_its_beginning(tmp_path: Path, format: str, suffix: str):
    lines, whole = compressed(format, suffix)
    (tmp_path / f"a{suffix}").write_bytes(whole[: len(whole) * 9 // 10])
    texts, dropped = read(tmp_path / f"a{suffix}", format)
    found = kept(texts).split("\n")
    assert dropped.pop("truncated file") == 1  # said once, by the compression and by the dump's XML
    assert set(dropped) <= {"broken record"} and dropped.get("broken record", 0) <= 1
    assert found[:-1] == lines[: len(found) - 1] and len(found) > 1500


@pytest.mark.parametrize(("format", "suffix"), DAMAGED)
def test_flipped_bytes_in_compressed_data_are_damage(tmp_path: Path, format: str, suffix: str):
    lines, whole = compressed(format, suffix)
    data = bytearray(whole)
    middle = len(data) * 19 // 20
    data[middle : middle + 64] = bytes(byte ^ 0xA5 for byte in data[middle : middle + 64])
    (tmp_path / f"a{suffix}").write_bytes(data)
    texts, dropped = read(tmp_path / f"a{suffix}", format)
    assert dropped.pop("damaged file") == 1 and set(dropped) <= {"broken record", "not UTF-8", "empty"}
    assert kept(texts).startswith(kept(lines[:1000]))


@pytest.mark.parametrize("format", FORMS)
def test_a_few_undecodable_bytes_cost_one_document(tmp_path: Path, format: str):
    lines = sentences(200)
    data = FORMS[format](lines).replace(b"Sentence 100 ", b"Sentence \xff\xfe ")
    (tmp_path / "a").write_bytes(data)
    texts, dropped = read(tmp_path / "a", format)
    assert sum(dropped.values()) == 1 and set(dropped) <= {"not UTF-8", "broken record"}
    assert lines[0] in kept(texts) and lines[199] in kept(texts) and "Sentence 100 " not in kept(texts)


@pytest.mark.parametrize("format", FORMS)
def test_nuls_are_removed_or_break_one_record(tmp_path: Path, format: str):
    lines = sentences(200)
    (tmp_path / "a").write_bytes(FORMS[format](lines).replace(b"Sentence 100 ", b"Sent\0ence 100 "))
    texts, dropped = read(tmp_path / "a", format)
    assert (
        kept(texts).split("\n") == lines
        and dropped == {}
        or (kept(texts).split("\n") == lines[:100] + lines[101:] and dropped == {"broken record": 1})
    )


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(256)) * 40,
        "Größe, Öl. ".encode("utf-16-le") * 40,
        b"\xff\xfe" + random.Random(0).randbytes(9000),
        b"\xe4\x01" * 99,
    ],
)
def test_nuls_and_much_that_is_no_encoding_of_text_are_binary(tmp_path: Path, content: bytes):
    (tmp_path / "a.txt").write_bytes(content)
    assert read(tmp_path / "a.txt") == ([], {"binary": 1})


OTHER = {
    "latin-1": "äöü ß",
    "cp1251": "Война и мир. ",
    "koi8-r": "Война и мир. ",
    "gb18030": "战争与和平。",
    "shift-jis": "戦争と平和。",
}


@pytest.mark.parametrize("encoding", OTHER)
def test_a_text_in_another_encoding_is_called_so(tmp_path: Path, encoding: str):
    (tmp_path / "a.txt").write_bytes((OTHER[encoding] * 400).encode(encoding))
    assert read_below(tmp_path) == ([], {"file not UTF-8": 1})
    with pytest.raises(DataError) as refused:
        read(tmp_path / "a.txt")
    assert (
        str(refused.value)
        == f"{tmp_path}/a.txt: this is text in another encoding, not UTF-8: save it as UTF-8, for example with "
        "iconv -f ENCODING -t UTF-8"
    )


@pytest.mark.parametrize("format", FORMS)
def test_utf_16_with_its_mark_is_read(tmp_path: Path, format: str):
    lines = [f"{line} Schön, 雨, 😀." for line in sentences(300)]
    for encoding in ("utf-16-le", "utf-16-be"):
        (tmp_path / "a").write_bytes(("\ufeff" + FORMS[format](lines).decode()).encode(encoding))
        texts, dropped = read(tmp_path / "a", format)
        assert kept(texts).split("\n") == lines and dropped == {}, encoding


def test_utf_16_is_recognised_by_content_and_broken_text_is_dropped(tmp_path: Path):
    (tmp_path / "a").write_bytes("".join(json.dumps({"text": line}) + "\n" for line in sentences(2)).encode("utf-16"))
    assert read(tmp_path / "a") == (sentences(2), {})
    lines = [f"{line}\n".encode("utf-16-le") for line in sentences(50)]
    (tmp_path / "b").write_bytes(
        b"\xff\xfe"
        + b"".join([*lines[:30], "half\ud83d of a pair\n".encode("utf-16-le", "surrogatepass"), *lines[30:], b"\x41"])
    )
    texts, dropped = read(tmp_path / "b")
    assert kept(texts).split("\n") == sentences(50) and dropped == {"not UTF-8": 2}


def test_undecodable_paragraphs_are_dropped_and_a_tenth_of_the_text_breaks_the_file(tmp_path: Path):
    lines = [line.encode() for line in sentences(3000)]
    for every, broken in ((35, {}), (5, {"file not UTF-8": 1})):
        bad = [line.replace(b"says", b"s\xe4ys") if number % every == 0 else line for number, line in enumerate(lines)]
        (tmp_path / "a.txt").write_bytes(b"\n".join(bad))
        texts, dropped = read(tmp_path / "a.txt")
        assert kept(texts).encode().split(b"\n") == [line for number, line in enumerate(lines) if number % every]
        assert dropped == {"not UTF-8": -(-3000 // every)} | broken


FOREIGN = [
    ("a.csv", b"id,label\n1,yes\n", "CSV not JSON lines"),
    ("a.TSV", b"id\tlabel\n", "CSV not JSON lines"),
    ("a.htm", b"<p>A page.", "HTML not text"),
    ("dump.txt", b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- b -->\n<!DOCTYPE HTML PUBLIC>\n<html>", "HTML not text"),
    ("dump", b"\n<html lang=en><title>503</title>", "HTML not text"),
    ("pg1.html", b"<html>\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\n", "HTML not text"),
    ("a.xml", b"<?xml version='1.0'?>\n<TEI xmlns='a'><text><p>One.</p></text></TEI>", "XML not text"),
    ("tei.txt", b"<!DOCTYPE TEI.2 PUBLIC 'a' [<!ENTITY b 'c'>]>\n<TEI.2><text>&mdash; One.", "XML not text"),
    ("tei", b"<TEI>\n<teiHeader>a</teiHeader>\n<text>" + b"One. " * 20_000, "XML not text"),
    ("a.svg", b"<svg><path d='M0 0'/></svg>", "XML not text"),
    ("picture", b"\xef\xbb\xbf<!-- a -->\n<svg xmlns='b'><g><path/></g></svg>", "XML not text"),
    ("feed", b"<rss version='2.0'><channel><title>One.</title>", "XML not text"),
    ("broken.xml", b"<a><b>One & two", "XML not text"),
    ("prose.txt", b"<text>Some prose, <hi>marked</hi> here.</text>\n", "XML not text"),
    ("pages.txt", b"<page>\n<title>T</title>\n<ns>0</ns>", "XML not text"),
    ("a.rtf", b"{\\rtf1\\ansi\\deff0 {\\fonttbl} One.}", "RTF not text"),
    ("a.txt", b"\n{\\rtf\\mac One.}", "RTF not text"),
    ("a.json", b'[{"text": "One."}, {"text": "Two."}]', "JSON not JSON lines"),
    ("a.json", b'[\n{"text": "One."}\n]\n', "JSON not JSON lines"),
    ("a", b'[{"text": "One."}, {"text": "Two."}]', "JSON not JSON lines"),
    (
        "a.json",
        json.dumps({"default": {"features": {"text": {"dtype": "string"}}}}, indent=2).encode(),
        "JSON not JSON lines",
    ),
    ("a.ipynb", b'{\n "cells": [\n  {\n', "JSON not JSON lines"),
    ("a.warc", b"WARC/1.0\r\nWARC-Type: warcinfo\r\n\r\n\r\nWARC/1.0\r\nWARC-Type: response\r\n", "WARC not text"),
    ("a.wat", b"WARC/1.0\nWARC-Type: metadata\n\n{}\n", "WARC not text"),
    ("a.mbox", b"One.", "mail not text"),
    ("inbox", b"From ann@b.org Sat Jan  3 01:05:34 1996\nReturn-Path: <ann@b.org>\n\nOne.\n", "mail not text"),
    ("1.", b"From: Ann\r\nReceived: by b.org\r\n for c\r\nSubject: Hello\r\n\r\nOne.", "mail not text"),
    ("a.srt", b"One.", "subtitles not text"),
    ("a.txt", b"\xef\xbb\xbf1\r\n00:00:01,000 --> 00:00:04,000\r\nOne.\r\n", "subtitles not text"),
    ("a", b"WEBVTT - a film\n\n01:02.000 --> 01:04.000\nOne.\n", "subtitles not text"),
    ("a.bib", b"One.", "bibliography not text"),
    ("refs", b"% Encoding: UTF-8\n\n@article{one,\n  title = {One},\n}\n", "bibliography not text"),
    ("a.txt", b"TY  - JOUR\r\nTI  - One\r\nER  - \r\n", "bibliography not text"),
    ("de.po", b"One.", "PO not text"),
    ("de", b'# German\n#, fuzzy\nmsgid ""\nmsgstr ""\n"Language: de\\n"\n', "PO not text"),
    ("a.json", b'{"version": 1}\n', "no text column"),
    ("a.jsonl", b'{"a": "One.", "b": "Two."}\n', "no text column"),
]


def test_unsupported_files_are_dropped_in_a_folder_and_refused_if_named(tmp_path: Path):
    wrong = []
    for number, (name, content, reason) in enumerate(FOREIGN):
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        path.write_bytes(content)
        found, said = read_below(path.parent), refusal(read, path)
        if found != ([], {reason: 1}) or reason not in BROKEN_FILE or not said.startswith(str(path)):
            wrong.append((name, content[:40], reason, found, said))
    assert wrong == []


def test_what_is_nearly_one_of_those_is_read(tmp_path: Path):
    for name, content in (
        ("a.txt", b"[Illustration] and {more}"),
        ("b.json", b'{"broken\n{"text": "One."}\n'),
        ("c.txt", b"<htmlx> is no page"),
        ("comments.txt", b"<!-- a -->\n" * 200 + b"Text."),
        ("d.txt", b"a,b\nc,d"),
    ):
        (tmp_path / name).write_bytes(content)
        assert read(tmp_path / name)[0] != []
    (tmp_path / "f.json").write_bytes(b'{"broken\n {"text": "One."}\n')
    assert read(tmp_path / "f.json") == (["One."], {"broken record": 1})
    (tmp_path / "g.json").write_bytes(b'{"broken\n{"too\n')
    assert read(tmp_path / "g.json") == ([], {"broken record": 2})
    (tmp_path / "e.csv").write_bytes(b"One line, as prose.")
    assert read(tmp_path / "e.csv", "text") == (["One line, as prose."], {})


PROSE = [
    "<3 is a heart.",
    "< 5 percent of them",
    "<< Oui >>, dit-il.",
    "<b>Hello</b> world, and <i>more</i>.",
    "<em>One</em> and <em>two</em>",
    "<anna> hello\n<bert> hello you\n<anna> bye",
    "<grin> I went home. The tag <b> means bold, and </b> ends it.",
    "<!-- a note --> This is Markdown.",
    "<?xml version='1.0'?> is how XML begins, then comes <a>.",
    "<?php is a language.",
    "<!DOCTYPE html is what web pages begin with.",
    "{\\rtf1 is how Rich Text begins.",
    "<https://example.org> has more.",
    "<p>One.</p>\n<p>Two.</p>",
    "{\nOne brace opens.",
    "From one to 12:30 we waited.\nThen: nothing.",
    "From: Ann\nTo: Bert\nA letter in a novel.",
    "Subject: Hello",
    "1\n00 is how a count begins.",
    "WEBVTT is a format.",
    "@article in a tweet, one",
    "TY  - I mean it.",
    "msgid is a word.",
    "WARC is a format.",
]


def test_prose_that_begins_like_markup_is_read(tmp_path: Path):
    for name in ("a.txt", "a"):
        found = []
        for text in PROSE:
            (tmp_path / name).write_text(text)
            found.append(read(tmp_path / name))
        assert found == [([text], {}) for text in PROSE]


def test_markup_is_read_as_it_is_where_that_is_asked_for(tmp_path: Path):
    (tmp_path / "a.xml").write_text("<?xml version='1.0'?>\n<a>One.</a>")
    assert read(tmp_path / "a.xml", "text") == (["<?xml version='1.0'?>\n<a>One.</a>"], {})


def test_a_dump_behind_a_comment_is_a_dump_under_any_name(tmp_path: Path):
    lines = sentences(30)
    for name in ("a.xml", "b.txt"):
        (tmp_path / name).write_bytes(b"<!-- <page> -->\n<!DOCTYPE mediawiki>\n" + dump_file(lines))
        assert read(tmp_path / name) == (lines, {})


def test_a_dump_that_is_cut_is_a_truncated_file(tmp_path: Path):
    lines = sentences(30)
    (tmp_path / "a.xml").write_bytes(dump_file(lines)[:-60])
    assert read(tmp_path / "a.xml") == (lines[:-1], {"truncated file": 1})
    (tmp_path / "a.xml.gz").write_bytes(gzip.compress(dump_file(lines)[:-60]))
    assert read(tmp_path / "a.xml.gz") == (lines[:-1], {"truncated file": 1})


def test_the_advice_for_files_that_are_no_corpus():
    assert {reason: kind.advice for reason, kind in unsupported.UNSUPPORTED.items()} == {
        "HTML not text": "this is a web page: extract its text, or read it as it is with ::format=text",
        "XML not text": "this is XML: extract the text from its elements, or read it as it is with ::format=text; "
        "read a part of a MediaWiki dump with ::format=wikipedia-dump",
        "RTF not text": "this is Rich Text: save it as plain text in UTF-8, or read it as it is with ::format=text",
        "CSV not JSON lines": "this is a table: save it as JSON lines or Parquet, "
        "or read its lines as prose with ::format=text",
        "JSON not JSON lines": "this is JSON, but not JSON lines: write one object per line, "
        "for example with jq -c '.[]' from an array",
        "WARC not text": "this is a web archive without plain text: give the WET file of the archive (.warc.wet.gz), "
        "or extract the text of its pages",
        "mail not text": "these are messages with their headers: save their bodies as JSON lines, "
        "or read the file as it is with ::format=text",
        "subtitles not text": "these are subtitles: save the lines without numbers and times, "
        "or read the file as it is with ::format=text",
        "bibliography not text": "this is a bibliography: save its abstracts as JSON lines, "
        "or read the file as it is with ::format=text",
        "PO not text": "these are a program's messages with their translations: save the texts of one language one per "
        "line, or read the file as it is with ::format=text",
        "file not UTF-8": "this is text in another encoding, not UTF-8: "
        "save it as UTF-8, for example with iconv -f ENCODING -t UTF-8",
    }


def test_a_column_that_was_asked_for_makes_tables_the_only_formats(tmp_path: Path):
    article = {"id": "1", "url": "u", "title": "T", "text": "One."}
    (tmp_path / "a.jsonl").write_text(json.dumps(article) + "\n")
    (tmp_path / "b.md").write_text("About these files.")
    files = list_files(parse(f"{tmp_path}::column=title"))
    items = [item for file in files for item in file_documents(file, SETTINGS)]
    assert [getattr(item, "text", None) or item.reason for item in items] == ["T", "no text column"]
    with pytest.raises(
        DataError,
        match=r"b.md: ::column=title is for JSON lines and Parquet, and this file is neither: leave the option out$",
    ):
        list(file_records(list_files(parse(f"{tmp_path}/b.md::column=title"))[0]))
    with pytest.raises(
        DataError,
        match=r"a.jsonl has no column body: its columns are id, url, title, text; "
        r"name the text column with ::column=NAME$",
    ):
        list(file_records(list_files(parse(f"{tmp_path}::column=body"))[0]))


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_file_is_no_error(tmp_path: Path, format: str):
    (tmp_path / "a").write_bytes(b"")
    texts, dropped = read(tmp_path / "a", format)
    assert texts == [] and dropped in ({}, {"empty": 1}, {"damaged file": 1})


@pytest.mark.parametrize("format", ["text", "jsonl", "gutenberg", "wikiextractor"])
def test_one_line_of_fifty_million_bytes_takes_bounded_memory(tmp_path: Path, format: str):
    (tmp_path / "a").write_bytes((b"x" * 999 + b" ") * 50_000)
    (file,) = list_files(parse(f"{tmp_path / 'a'}::format={format}"))
    tracemalloc.start()
    characters = dropped = 0
    for record in file_records(file):
        if isinstance(record, Dropped):
            dropped += 1
        else:
            characters += sum(map(len, record.paragraphs))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 130_000_000 and (dropped > 0 or characters > 49_000_000)


@pytest.mark.parametrize("format", ["parquet", "parquet-sentences"])
def test_parquet_of_every_damage(tmp_path: Path, format: str):
    pq.write_table(pa.table({"text": sentences(2000)}), tmp_path / "whole.parquet", row_group_size=500)
    whole = (tmp_path / "whole.parquet").read_bytes()
    draw = random.Random(0)
    for _ in range(60):
        data = bytearray(whole)
        for at in draw.sample(range(len(data)), 3):
            data[at] ^= 1 << draw.randrange(8)
        (tmp_path / "a.parquet").write_bytes(data[: draw.choice([len(data), draw.randrange(len(data))])])
        try:
            texts, dropped = read(tmp_path / "a.parquet", format)
        except DataError as error:
            assert "\n" not in str(error)
        else:
            assert (texts or dropped) and set(dropped) <= {"damaged file", "not UTF-8", "empty"}


def test_the_same_bytes_under_a_parquets_name(tmp_path: Path):
    (tmp_path / "a.parquet").write_text("A text, not a table.\n" * 50)
    assert read(tmp_path / "a.parquet") == ([], {"damaged file": 1})
