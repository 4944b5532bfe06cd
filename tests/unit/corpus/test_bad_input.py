"""Bad input of every kind, in every format: it ends in documents, in something dropped by name, or in an error of one line."""

import bz2
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
from pipeline.corpus.formats import FORMATS
from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_documents, file_records
from pipeline.corpus.sources import parse
from pipeline.errors import DataError
from pipeline.text.documents import Dropped

SETTINGS = Preparation(piece_characters=1000, minimum_characters=1, minimum_letters=0)
WORDS = "the cat sat on a mat and saw one of many dogs that ran by so fast it was gone".split()
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}


def sentences(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [f"Sentence {number} says {' '.join(draw.choices(WORDS, k=9))}." for number in range(count)]


def text_file(lines: list[str]) -> bytes:
    return "\n".join(lines).encode()


def wiki_file(lines: list[str]) -> bytes:
    return "".join(f'<doc id="{number}" url="u" title="T{number}">\nT{number}\n\n{line}\n\n</doc>\n' for number, line in enumerate(lines)).encode()


def json_file(lines: list[str]) -> bytes:
    return "".join(json.dumps({"text": line}) + "\n" for line in lines).encode()


def gutenberg_file(lines: list[str]) -> bytes:
    return ("Title: X\n\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\n\n" + "\n\n".join(lines) + "\n\n*** END OF THE PROJECT GUTENBERG EBOOK X ***\n").encode()


def dump_file(lines: list[str]) -> bytes:
    pages = "".join(
        f"<page><title>T{number}</title><ns>0</ns><id>{number + 1}</id><revision><text>{line}</text></revision></page>\n" for number, line in enumerate(lines)
    )
    return f'<mediawiki xml:lang="en">\n{pages}</mediawiki>\n'.encode()


FORMS: dict[str, Callable[[list[str]], bytes]] = {
    "text": text_file,
    "sentences": lambda lines: "\n\n".join(lines).encode(),
    "bookscorpus": text_file,
    "wikiextractor": wiki_file,
    "jsonl": json_file,
    "gutenberg": gutenberg_file,
} | ({"wikipedia-dump": dump_file} if "wikipedia-dump" in FORMATS else {})


def read(path: Path, format: str | None = None) -> tuple[list[str], dict[str, int]]:
    """The texts of a file's documents and {reason: count}; a name of its own tells the format but where one is given."""
    texts: list[str] = []
    dropped: Counter[str] = Counter()
    (file,) = list_files(parse(f"{path}::format={format}" if format else str(path)))
    for item in file_documents(file, SETTINGS):
        if isinstance(item, Dropped):
            dropped[item.reason] += 1
        else:
            texts.append(item.text)
    return texts, dict(dropped)


def kept(texts: list[str]) -> str:
    return "\n".join(texts)


def test_every_format_that_reads_bytes_is_tried():
    assert set(FORMS) == set(FORMATS) - {"builtin", "parquet", "parquet-sentences"}


@pytest.mark.parametrize("format", FORMS)
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_line_ends_and_a_bom_change_nothing(tmp_path: Path, format: str, ends: str):
    lines = sentences(30)
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + FORMS[format](lines).replace(b"\n", ends.encode()))
    texts, dropped = read(tmp_path / "a", format)
    assert kept(texts).split("\n") == lines and dropped == {}


@pytest.mark.parametrize("format", FORMS)
@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_truncated_file_keeps_its_beginning(tmp_path: Path, format: str, suffix: str):
    lines = sentences(20_000)  # two blocks of bzip2
    whole = COMPRESSIONS[suffix](FORMS[format](lines))
    (tmp_path / f"a{suffix}").write_bytes(whole[: len(whole) * 9 // 10])
    texts, dropped = read(tmp_path / f"a{suffix}", format)
    found = kept(texts).split("\n")
    assert dropped.pop("truncated file") == 1
    assert set(dropped) <= {"broken record"} and dropped.get("broken record", 0) <= 1
    assert found[:-1] == lines[: len(found) - 1] and len(found) > 3000


@pytest.mark.parametrize("format", FORMS)
@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_flipped_bytes_in_compressed_data_are_damage(tmp_path: Path, format: str, suffix: str):
    lines = sentences(20_000)
    data = bytearray(COMPRESSIONS[suffix](FORMS[format](lines)))
    middle = len(data) * 19 // 20
    data[middle : middle + 64] = bytes(byte ^ 0xA5 for byte in data[middle : middle + 64])
    (tmp_path / f"a{suffix}").write_bytes(data)
    texts, dropped = read(tmp_path / f"a{suffix}", format)
    assert dropped.pop("damaged file") == 1 and set(dropped) <= {"broken record", "not UTF-8"}
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
    assert kept(texts).split("\n") == lines and dropped == {} or (kept(texts).split("\n") == lines[:100] + lines[101:] and dropped == {"broken record": 1})


def test_much_that_is_undecodable_and_nuls_are_binary(tmp_path: Path):
    for content in (bytes(range(256)) * 40, "Größe, Öl und Übermut. ".encode("utf-16") * 40, "äöü ß".encode("latin-1") * 400):
        (tmp_path / "a.txt").write_bytes(content)
        assert read(tmp_path / "a.txt") == ([], {"binary": 1})


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
