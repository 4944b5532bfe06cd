"""Ranges of a dump, in one stream or many, by an index or anywhere: together they give what the whole file gives."""

import bz2
import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus import inputs
from pipeline.corpus.inputs import InputFile, list_files, split_into_ranges
from pipeline.corpus.parts import file_records
from pipeline.corpus.sources import parse
from pipeline.errors import DataError
from pipeline.files import opening
from pipeline.text.documents import Dropped
from pipeline.wikipedia import bz2_blocks, dump, dump_ranges
from pipeline.wikipedia.bz2_blocks import Mark, find_marks
from pipeline.wikipedia.dump_ranges import RangeInput, byte_ranges, fetch_range

HEAD = """<mediawiki xml:lang="de">
  <siteinfo>
    <namespaces>
      <namespace key="6" case="first-letter">Eigenbild</namespace>
    </namespaces>
  </siteinfo>
"""
TAIL = "</mediawiki>\n"
WORDS = random.Random(0).sample([a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"], 300)


def page(id: int, text: str = "Dies ist ein ganzer Satz.") -> str:
    return (
        f"  <page>\n    <title>T{id}</title>\n    <ns>0</ns>\n    <id>{id}</id>\n    <revision>\n      "
        f"<text>{text}</text>\n    </revision>\n  </page>\n"
    )


def prose(words: int, seed: int) -> str:
    return f"Der [[Eigenbild:x.jpg]]Satz {seed} hat {' '.join(random.Random(seed).choices(WORDS, k=words))}."


def long_dump() -> str:
    """About 700 kB: short pages, pages of more than a block of 100 kB, and what is dropped."""
    sizes = [random.Random(number).choice([20, 300, 3_000]) for number in range(100)] + [60_000] + [900] * 20
    pages = [page(number, prose(size, number)) for number, size in enumerate(sizes, 1)]
    return HEAD + "".join(pages) + page(900, "#REDIRECT [[T1]]") + TAIL


TEXT = long_dump().encode()
SINGLE = bz2.compress(TEXT, 1)
BY_BLOCKS_OF_PAGES = b"".join(
    bz2.compress(part.encode(), 1)
    for part in [HEAD, *("".join(map(page, range(at, at + 2))) for at in range(0, 12, 2)), TAIL]
)
THROUGH_PAGES = b"".join(bz2.compress(TEXT[at : at + 30_001], 1) for at in range(0, len(TEXT), 30_001))


def shown(records: Iterator) -> list[tuple]:
    return [
        (item.id, item.reason, item.sample)
        if isinstance(item, Dropped)
        else (item.id, item.title, list(item.paragraphs), item.language)
        for item in records
    ]


def file_at(path: Path, data: bytes) -> InputFile:
    path.write_bytes(data)
    (file,) = list_files(parse(str(path)))
    return file


def of_ranges(file: InputFile, edges: list[int], limit: int = 200) -> list[tuple]:
    """The records of a dump's ranges between these edges."""
    given = RangeInput(head=dump_ranges.read_dump_head(file.location))
    parts = [replace(file, format="wikipedia-dump", start=start, stop=stop) for start, stop in pairwise(edges)]
    return shown(item for part in parts for item in file_records(part, limit, given))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[InputFile, list[tuple]]]:
    """(file, the records of the whole) of dumps in a single stream and in many."""
    folder = tmp_path_factory.mktemp("dumps")
    found = [
        file_at(folder / f"{number}.xml.bz2", data)
        for number, data in enumerate((SINGLE, BY_BLOCKS_OF_PAGES, THROUGH_PAGES))
    ]
    return [(file, shown(file_records(file))) for file in found]


def test_the_dumps_have_many_blocks_and_long_pages(files: list[tuple[InputFile, list[tuple]]]):
    assert [sum(mark.block for mark in find_marks(data)) for data in (SINGLE, BY_BLOCKS_OF_PAGES)] == [8, 8] and len(
        find_marks(THROUGH_PAGES)
    ) == 50
    assert [len(whole) for _, whole in files] == [122, 12, 122] and max(
        len(item[2][0]) for item in files[0][1]
    ) > 200_000


@given(st.integers(0, 2), st.lists(st.floats(0, 1), max_size=6))
def test_any_ranges_give_the_records_of_the_whole_file(
    files: list[tuple[InputFile, list[tuple]]], number: int, cuts: list[float]
):
    file, whole = files[number]
    assert of_ranges(file, [0, *sorted(int(cut * file.bytes) for cut in cuts), file.bytes]) == whole


def test_tags_and_pages_that_a_block_cuts_in_two_are_of_the_first(tmp_path: Path):
    text = (HEAD + page(1) + page(2, "Noch ein Satz steht hier.") + TAIL).encode()
    for cut in range(text.index(b"<page>") - 3, len(text)):
        streams = [bz2.compress(text[:cut]), bz2.compress(text[cut : cut + 8]), bz2.compress(text[cut + 8 :])]
        file = file_at(tmp_path / "a.xml.bz2", b"".join(streams))
        middle = [len(streams[0]), len(streams[0] + streams[1])]
        found = of_ranges(file, [0, *middle, file.bytes])
        assert [item[:2] for item in found] == [("a.xml.bz2:1", "T1"), ("a.xml.bz2:2", "T2")], cut


def test_chance_magics_lose_nothing(files: list[tuple[InputFile, list[tuple]]], monkeypatch: pytest.MonkeyPatch):
    file, whole = files[0]
    monkeypatch.setattr(opening, "BLOCK_BYTES", file.bytes)
    real = [mark.bit for mark in find_marks(SINGLE)]
    wrong = [
        Mark(bit=(first + second) // 2, block=bool(number % 2)) for number, (first, second) in enumerate(pairwise(real))
    ]
    monkeypatch.setattr(
        bz2_blocks,
        "find_marks",
        lambda data, start: sorted(
            {*find_marks(data, start), *(wrong if len(data) == file.bytes and not start else [])}
        ),
    )
    assert of_ranges(file, [0, file.bytes]) == whole


def test_a_damaged_block_costs_its_pages_and_is_counted(files: list[tuple[InputFile, list[tuple]]], tmp_path: Path):
    _, whole = files[1]
    at = [mark.bit // 8 for mark in find_marks(BY_BLOCKS_OF_PAGES) if mark.block][3]
    data = bytearray(BY_BLOCKS_OF_PAGES)
    data[at + 40] ^= 1
    file = file_at(tmp_path / "1.xml.bz2", bytes(data))
    lost = ("1.xml.bz2", "damaged file", f"blocks that cannot be decompressed: 1, the first at byte {at}")
    assert of_ranges(file, [0, file.bytes]) == [*whole[:4], *whole[6:], lost]
    assert of_ranges(file, [0, at - 20, at + 1, file.bytes]) == [*whole[:4], lost, *whole[6:]]


def test_a_page_that_a_damaged_block_breaks_is_not_glued_to_another(
    files: list[tuple[InputFile, list[tuple]]], tmp_path: Path
):
    whole = {item[0]: item for item in files[2][1]}
    for at in [mark.bit // 8 for mark in find_marks(THROUGH_PAGES) if mark.block][1::4]:
        data = bytearray(THROUGH_PAGES)
        data[at + 40] ^= 1
        file = file_at(tmp_path / "2.xml.bz2", bytes(data))
        for edges in ([0, file.bytes], sorted([0, file.bytes // 3, at, file.bytes])):
            found = of_ranges(file, edges)
            kept = [item for item in found if len(item) == 4]
            assert all(whole[item[0]] == item for item in kept) and 20 < len(kept) < len(whole)
            assert [item[1] for item in found if len(item) == 3 and item[1] != "redirect"].count("damaged file") == 1


def test_a_dump_that_is_cut_off_is_said_to_be_so_once(tmp_path: Path):
    file = file_at(tmp_path / "0.xml.bz2", SINGLE[:-5_000])
    found = of_ranges(file, [0, file.bytes // 2, file.bytes])
    assert found == shown(file_records(file)) and found[-1] == ("0.xml.bz2", "truncated file", "")


def test_a_page_too_long_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dump, "LIMITS", dump.LIMITS | {"page": 50_000})
    monkeypatch.setattr(dump_ranges, "LIMITS", dump.LIMITS)
    file = file_at(
        tmp_path / "a.xml.bz2", bz2.compress((HEAD + page(1) + page(2, prose(600_000, 2)) + page(3) + TAIL).encode(), 1)
    )
    whole = shown(file_records(file))
    assert [item[:2] for item in whole] == [
        ("a.xml.bz2:1", "T1"),
        ("a.xml.bz2:2", "page too long"),
        ("a.xml.bz2:3", "T3"),
    ]
    read: list[int] = []
    real = dump_ranges.read_stored
    monkeypatch.setattr(
        dump_ranges,
        "read_stored",
        lambda *where, **more: (read.append(len(block)) or block for block in real(*where, **more)),
    )
    monkeypatch.setattr(opening, "BLOCK_BYTES", 10_000)
    assert of_ranges(file, [0, 1_000]) == whole[:2] and sum(read) < file.bytes / 3
    assert of_ranges(file, [0, 1_000, file.bytes // 2, file.bytes]) == whole


def test_a_bomb_in_a_range_is_cut_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(opening, "HARMLESS_BYTES", 1_000_000)
    streams = [
        bz2.compress(part.encode(), 1)
        for part in [HEAD + page(1), *(page(number, "x" * 99_990) for number in range(2, 20)), TAIL]
    ]
    file = file_at(tmp_path / "a.xml.bz2", b"".join(streams))
    edges = [0, len(streams[0]), file.bytes]
    found = of_ranges(file, edges)
    assert [item[0] for item in found] == [*(f"a.xml.bz2:{number}" for number in range(1, 11)), "a.xml.bz2"]
    assert found[-1][1] == "expands too far" and "the factor is above prepare.expansion_limit (200)" in found[-1][2]
    assert len(of_ranges(file, edges, 10**6)) == 19


def bz2_ends(data: bytes) -> list[int]:
    """The bytes where the streams of a file end."""
    ends = []
    while data:
        decoder = bz2.BZ2Decompressor()
        decoder.decompress(data)
        ends.append((ends[-1] if ends else 0) + len(data) - len(decoder.unused_data))
        data = decoder.unused_data
    return ends


# Where a file is cut


@pytest.mark.parametrize(
    ("name", "spec", "data", "count"),
    [
        ("a.xml.bz2", "", SINGLE, 5),
        ("a.XML.BZ2", "::format=wikipedia-dump", SINGLE, 5),
        ("multistream.xml.bz2", "", BY_BLOCKS_OF_PAGES * 80, 5),
        ("a.xml.bz2", "::format=text", SINGLE, 1),
        ("a.xml.bz2", "", SINGLE[:20_000], 1),
        ("a.txt.bz2", "", bz2.compress(TEXT[len(HEAD) :], 1), 1),
        ("a.txt.bz2", "::format=wikipedia-dump", bz2.compress(TEXT[len(HEAD) :], 1), 5),
        ("a.xml.bz2", "::format=wikipedia-dump", TEXT, 1),
        ("a.xml.bz2", "", SINGLE[:100] + b"xx" + SINGLE[102:], 1),
        ("a.xml", "", SINGLE, 1),
    ],
)
def test_which_files_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, spec: str, data: bytes, count: int
):
    monkeypatch.setattr(inputs, "RANGE_BYTES", 1 + len(data) // 5 if count > 1 else 30_000)
    (tmp_path / name).write_bytes(data)
    (file,) = list_files(parse(f"{tmp_path}/{name}{spec}"))
    parts, head = split_into_ranges(file)
    assert len(parts) == count and parts[0].location == file.location
    if count == 1:
        assert (parts, head) == ([file], b"")
    else:
        assert [part.bytes for part in parts] == [part.stop - part.start for part in parts] and sum(
            part.bytes for part in parts
        ) == file.bytes
        assert {part.format for part in parts} == {"wikipedia-dump"} and (b"<mediawiki" in head) == ("txt" not in name)


# Multistream dumps: one stream for the head, streams of a few pages each, one stream for the tail; an index beside them


def write(folder: Path, index: bool, shift: int = 0) -> Path:
    path = folder / "xxwiki-1-pages-articles-multistream3.xml-p1p9.bz2"
    path.write_bytes(BY_BLOCKS_OF_PAGES)
    starts = bz2_ends(BY_BLOCKS_OF_PAGES)[:-2]
    if index:
        lines = [
            f"{start + shift}:{id}:T{id}: a title\n"
            for number, start in enumerate(starts)
            for id in (2 * number, 2 * number + 1)
        ]
        (folder / "xxwiki-1-pages-articles-multistream-index3.txt-p1p9.bz2").write_bytes(
            bz2.compress("".join(lines).encode())
        )
    return path


def test_an_index_says_where_to_cut(tmp_path: Path):
    path = write(tmp_path, index=True)
    size = path.stat().st_size
    ends = [0, *bz2_ends(BY_BLOCKS_OF_PAGES)]
    assert byte_ranges(str(path), size, 300) == list(pairwise([0, ends[3], ends[5], size]))
    assert byte_ranges(str(path), size, size) == [(0, size)]
    next(tmp_path.glob("*index*")).unlink()
    assert byte_ranges(str(path), size, size // 3) == [
        (0, size // 3),
        (size // 3, 2 * size // 3),
        (2 * size // 3, size),
    ]


def test_ranges_by_an_index_need_nothing_beyond_them(tmp_path: Path):
    path = write(tmp_path, index=True)
    for start, stop in byte_ranges(str(path), path.stat().st_size, 300):
        found = b"".join(dump_ranges.range_text(iter([BY_BLOCKS_OF_PAGES[start:stop]]), start, stop, b"", 200))
        assert found.count(b"<page>") == found.count(b"</page>") > 0


def test_an_index_that_ends_early_leaves_no_large_range(tmp_path: Path):
    path = write(tmp_path, index=False)
    first = bz2_ends(BY_BLOCKS_OF_PAGES)[1]
    (tmp_path / "xxwiki-1-pages-articles-multistream-index3.txt-p1p9.bz2").write_bytes(
        bz2.compress(f"{first}:1:T1".encode())
    )
    found = byte_ranges(str(path), path.stat().st_size, 200)
    assert (
        found[1][0] == first
        and found[-1][1] == path.stat().st_size
        and all(100 <= stop - start < 320 for start, stop in found)
    )


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        (-1, "no bz2 stream starts at byte"),
        (10**9, r"line 1: '1000000\d+:0:T0: a title' is not an entry for .*multistream3.xml-p1p9.bz2 of [\d,]+ bytes"),
    ],
)
def test_an_index_of_another_dump_is_refused(tmp_path: Path, shift: int, message: str):
    path = write(tmp_path, index=True, shift=shift)
    with pytest.raises(
        DataError,
        match=f"multistream-index3.txt-p1p9.bz2.*{message}.*; delete the index, or download the index of this dump$",
    ):
        byte_ranges(str(path), path.stat().st_size, 300)


def test_a_damaged_index_is_refused(tmp_path: Path):
    path = write(tmp_path, index=True)
    index = next(tmp_path.glob("*index*"))
    index.write_bytes(index.read_bytes()[:-5])
    with pytest.raises(DataError, match="index3.txt-p1p9.bz2 cannot be decompressed to its end; delete the index"):
        byte_ranges(str(path), path.stat().st_size, 300)


# Behind a URL


class Server(BaseHTTPRequestHandler):
    """Serves `data` under any name but an index, and keeps what was asked for."""

    data: ClassVar[bytes] = SINGLE
    tag: ClassVar[str] = '"1"'
    knows_ranges: ClassVar[bool] = True
    asked: ClassVar[list[tuple[str, str]]] = []

    def do_HEAD(self) -> None:
        self.answer(200, 0, len(self.data))

    def do_GET(self) -> None:
        self.asked.append((self.headers.get("Range", ""), self.headers.get("If-Range", "")))
        if "index" in self.path:
            self.send_error(404)
            return
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last or len(self.data)) + 1, len(self.data))
        if not self.knows_ranges or self.headers.get("If-Range", self.tag) != self.tag or "Range" not in self.headers:
            start, stop = 0, len(self.data)
            self.answer(200, start, stop)
        elif start >= len(self.data):
            self.send_error(416)
            return
        else:
            self.answer(206, start, stop)
        with contextlib.suppress(OSError):  # a reader that has enough disconnects
            self.wfile.write(self.data[start:stop])

    def answer(self, status: int, start: int, stop: int) -> None:
        self.send_response(status)
        self.send_header("ETag", self.tag)
        self.send_header("Content-Length", str(stop - start))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(self.data)}")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Server, "asked", [])
    found = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}/0.xml.bz2"
    found.shutdown()
    found.server_close()


@pytest.mark.parametrize("beyond", [1, 40_000, 1 << 20])
def test_ranges_of_a_url_ask_again_only_where_what_was_fetched_is_not_enough(
    server: str, files: list[tuple[InputFile, list[tuple]]], monkeypatch: pytest.MonkeyPatch, beyond: int
):
    monkeypatch.setattr(inputs, "RANGE_BYTES", 30_000)
    monkeypatch.setattr(dump_ranges, "BEYOND_BYTES", beyond)
    (file,) = list_files(parse(server))
    parts, head = split_into_ranges(file)
    got = [fetch_range(part.location, part.start, part.stop, part.stamp) for part in parts]
    assert Server.asked[-len(parts) :] == [
        (f"bytes={part.start}-{part.stop + beyond - 1}", '"1"' if part.start else "") for part in parts
    ]
    del Server.asked[:]
    found = [
        item
        for part, data in zip(parts, got, strict=True)
        for item in shown(file_records(part, 200, RangeInput(head=head, fetched=data)))
    ]
    assert found == files[0][1] and len(parts) > 4
    assert len(Server.asked) == 0 if beyond > len(SINGLE) else 0 < len(Server.asked) < len(parts)
    assert {range for range, _ in Server.asked} <= {f"bytes={part.stop + beyond - 1}-" for part in parts}


def test_what_is_fetched_may_end_where_the_file_does(
    server: str, files: list[tuple[InputFile, list[tuple]]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dump_ranges, "BEYOND_BYTES", 5_000)
    stop = len(SINGLE) - 5_000
    (file,) = list_files(parse(server))
    data = fetch_range(server, 0, stop, file.stamp)
    assert data == SINGLE
    assert (
        shown(
            file_records(
                replace(file, format="wikipedia-dump", start=0, stop=stop),
                200,
                RangeInput(head=HEAD.encode(), fetched=data),
            )
        )[:100]
        == files[0][1][:100]
    )


def test_a_file_that_changed_between_its_ranges_is_refused(server: str, monkeypatch: pytest.MonkeyPatch):
    (file,) = list_files(parse(server))
    monkeypatch.setattr(Server, "tag", '"2"')
    with pytest.raises(
        DataError,
        match=r"0.xml.bz2 cannot be read: the server cannot continue at byte 50,000: "
        r"it does not support Range requests, or the file has changed$",
    ):
        fetch_range(server, 50_000, 60_000, file.stamp)


def test_without_ranges_a_url_is_read_as_a_whole(server: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inputs, "RANGE_BYTES", 30_000)
    monkeypatch.setattr(Server, "knows_ranges", False)
    (file,) = list_files(parse(server))
    assert split_into_ranges(file) == ([file], b"")


def test_the_index_beside_a_url_is_asked_for(server: str, monkeypatch: pytest.MonkeyPatch):
    with_index = server.replace("0.xml", "multistream.xml")
    assert byte_ranges(with_index, 90, 30) == [(0, 30), (30, 60), (60, 90)]
    assert len(Server.asked) == 1
