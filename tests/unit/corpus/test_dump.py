import bz2
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.corpus import dump
from pipeline.corpus.dump import is_dump, read_dump
from pipeline.corpus.multistream import range_blocks, stream_ranges
from pipeline.corpus.opening import CutOff, Damaged, blocks
from pipeline.errors import DataError
from pipeline.text.documents import Dropped

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="de">
  <siteinfo>
    <dbname>dewiki</dbname>
    <namespaces>
      <namespace key="-1" case="first-letter">Spezial</namespace>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Eigenbild</namespace>
      <namespace key="10" case="first-letter">Vorlage</namespace>
    </namespaces>
  </siteinfo>
"""
TAIL = "</mediawiki>\n"
BODY = "Dies ist ein ganzer Satz."


def page(id: int, title: str = "T", text: str = BODY, ns: str | None = "0", more: str = "") -> str:
    space = "" if ns is None else f"<ns>{ns}</ns>\n    "
    return f'  <page>\n    <title>{title}</title>\n    {space}<id>{id}</id>\n{more}    <revision>\n      <id>99</id>\n      <text xml:space="preserve">{text}</text>\n    </revision>\n  </page>\n'


def read(content: str | bytes, size: int = 7) -> list[tuple]:
    """(id, title, paragraphs, language) or (id, reason), the stream being cut to blocks of a few bytes."""
    data = content.encode() if isinstance(content, str) else content
    items = read_dump((data[at : at + size] for at in range(0, len(data), size)), "f")
    return [(item.id, item.reason) if isinstance(item, Dropped) else (item.id, item.title, list(item.paragraphs), item.language) for item in items]


@pytest.mark.parametrize("size", [1, 6, 1000])
@pytest.mark.parametrize("prefix", ["", "\ufeff", '<?xml version="1.0"?>\n'])
def test_articles_of_a_dump(size: int, prefix: str):
    content = prefix + HEAD + page(1, "A &amp; B", "Der [[Hund|Hunde]]satz &amp;amp; mehr davon.\n[[Eigenbild:x.jpg|mini|weg]]") + page(2) + TAIL
    assert is_dump(content.encode())
    assert read(content, size) == [("f:1", "A & B", ["Der Hundesatz & mehr davon."], "de"), ("f:2", "T", [BODY], "de")]


def test_a_record_is_its_own_parent():
    (record,) = read_dump(iter([(HEAD + page(5) + TAIL).encode()]), "f")
    assert not isinstance(record, Dropped) and record.parent == record.id == "f:5"


def test_line_ends_of_other_systems():
    text = HEAD + page(1, text="Eine erste Zeile steht hier.\n\nEine zweite Zeile steht hier.") + TAIL
    assert read(text.replace("\n", "\r\n")) == read(text) == [("f:1", "T", ["Eine erste Zeile steht hier.", "Eine zweite Zeile steht hier."], "de")]


def test_a_stream_may_start_at_a_page():
    assert read(page(1) + page(2)) == [("f:1", "T", [BODY], None), ("f:2", "T", [BODY], None)]


@pytest.mark.parametrize(
    "head, language",
    [
        ('<mediawiki xml:lang="uk">', "uk"),
        ("<mediawiki><siteinfo><dbname>frwiki</dbname></siteinfo>", "fr"),
        ("<mediawiki><siteinfo><dbname>zh_yuewiktionary</dbname></siteinfo>", "zh-yue"),
        ("<mediawiki><siteinfo><dbname>commonswiki</dbname></siteinfo>", None),
    ],
)
def test_the_head_tells_the_language(head: str, language: str | None):
    assert read(head + page(1) + TAIL)[0][3] == language


@pytest.mark.parametrize(
    "content, reason",
    [
        (page(1, more='    <redirect title="X" />\n'), "redirect"),
        (page(1, text="#REDIRECT [[X]]"), "redirect"),
        (page(1, text="#weiterleitung [[X]]"), "redirect"),
        (page(1, text="#ПЕРЕНАПРАВЛЕННЯ [[X]]"), "redirect"),
        (page(1, text="# НЕВІДОМЕ: [[X]]"), "redirect"),
        (page(1, ns="1"), "other namespace"),
        (page(1, "Vorlage:X", ns=None), "other namespace"),
        (page(1, text="A __DISAMBIG__"), "disambiguation"),
        (page(1, text="A {{Disambiguation|geo}}"), "disambiguation"),
        (page(1, text="A {{hndis|Smith, John}}"), "disambiguation"),
        (page(1, text="A {{Begriffsklärung}}"), "disambiguation"),
        (page(1, text="A {{Неоднозначність}}"), "disambiguation"),
        (page(1, text="A {{Homonymie}}"), "disambiguation"),
        (page(1, text="A {{Desambiguación}}"), "disambiguation"),
        (page(1, text="A {{some_disambiguation\n|x}}"), "disambiguation"),
        (page(1, "Austin (disambiguation)"), "disambiguation"),
        (page(1, "Ядро (значення)"), "disambiguation"),
        (page(1, text="&nbsp;"), "broken record"),
        (page(1, text="<b>no end"), "broken record"),
        (page(1, text="a\0b"), "broken record"),
        (page(1).replace("<page>", '<page>\n<!DOCTYPE x [<!ENTITY y "z">]>'), "broken record"),
        (page(1, text="<a>" * 5000 + "</a>" * 5000), "broken record"),
        (page(1).encode().replace(b"Satz", b"Sa\xfftz"), "broken record"),
    ],
)
def test_what_is_no_article_is_dropped_by_its_reason(content: str | bytes, reason: str):
    data = content.encode() if isinstance(content, str) else content
    around = HEAD.encode() + page(7).encode(), page(8).encode() + TAIL.encode()
    assert [item[:2] for item in read(around[0] + data + around[1], 1000)] == [("f:7", "T"), ("f:1", reason), ("f:8", "T")]


@pytest.mark.parametrize(
    "text",
    [
        "# [[Liste]] mit einem Satz dahinter.",
        "{{Begriffsklärungshinweis}} " + BODY,
        "{{disambiguation needed}} " + BODY,
        "{{Voir homonymes}} {{ver desambiguação}} {{nota disambigua}} {{zie doorverwijspagina}} " + BODY,
    ],
)
def test_an_article_that_looks_a_little_like_another_page_is_kept(text: str):
    assert len(read(page(1, text=text))[0]) == 4


def test_an_article_without_prose_has_no_paragraphs():
    assert read(HEAD + page(1, text="{{Infobox}}") + "<page><title>N</title><ns>0</ns><id>2</id></page>" + TAIL) == [("f:1", "T", [], "de"), ("f:2", "N", [], "de")]


def test_of_several_revisions_the_last_counts():
    assert read(page(1).replace("</revision>", "</revision><revision><text>Dies ist der letzte Stand.</text></revision>"))[0][2] == ["Dies ist der letzte Stand."]


@pytest.mark.parametrize(
    "content, found",
    [
        (HEAD + page(1) + page(2)[:-20], ["f:1", ("f:2", "broken record")]),
        (HEAD + page(1)[:-20] + page(2) + TAIL, [("f:1", "broken record"), "f:2"]),
        (HEAD + page(1) + page(2).replace("<page>", "<pgae>") + page(3) + TAIL, ["f:1", ("f:2", "broken record"), "f:3"]),
        (HEAD + page(1) + "junk" + page(2) + TAIL, ["f:1", ("f:page 2", "broken record"), "f:2"]),
        (HEAD + page(1) + "</page>" + page(2) + TAIL, ["f:1", ("f:page 2", "broken record"), "f:2"]),
        (HEAD[:200], [("f:page 1", "broken record")]),
        ("no dump at all", [("f:page 0", "broken record")]),
        (HEAD + TAIL, []),
        ("", []),
        (HEAD + page(1) + TAIL + HEAD.replace('"de"', '"en"') + page(2) + TAIL, ["f:1", "f:2"]),
    ],
)
def test_a_broken_page_costs_no_other(content: str, found: list):
    assert [item[0] if len(item) == 4 else item for item in read(content)] == found


def test_a_page_too_long_is_dropped_without_being_held(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dump, "LIMITS", dump.LIMITS | {"page": 5000})
    long = HEAD + page(1, text="x" * 4000) + page(2, text="x" * 100_000) + page(3) + page(4, text="x" * 100_000)[:-50] + page(5) + TAIL
    assert [item[:2] for item in read(long, 1000)] == [("f:1", "T"), ("f:2", "page too long"), ("f:3", "T"), ("f:4", "page too long"), ("f:5", "T")]
    assert [len(content) for kind, content in dump.cut([long.encode()]) if kind == "page too long"] == [dump.KEPT_BYTES] * 2


def test_what_is_no_dump():
    assert not any(map(is_dump, (b"", b"<doc id=1>", b"text about <mediawiki", b"<mediawikis>", b"\0<mediawiki>")))


# Multistream: one stream for the head, streams of a few pages each, one stream for the tail.


def multistream(count: int = 12, each: int = 2) -> tuple[bytes, list[int]]:
    """A dump of `count` pages, and where each of its streams starts."""
    parts = [HEAD, *("".join(page(id, f"T{id}", f"Dies ist der Satz mit der Nummer {id}.") for id in range(at, at + each)) for at in range(0, count, each)), TAIL]
    streams = [bz2.compress(part.encode()) for part in parts]
    starts = [sum(map(len, streams[:number])) for number in range(len(streams))]
    return b"".join(streams), starts


def write(folder: Path, index: bool, shift: int = 0) -> tuple[Path, list[int]]:
    data, starts = multistream()
    path = folder / "xxwiki-1-pages-articles-multistream3.xml-p1p9.bz2"
    path.write_bytes(data)
    if index:
        lines = [f"{start + shift}:{id}:T{id}: a title\n" for number, start in enumerate(starts[1:-1]) for id in (2 * number, 2 * number + 1)]
        (folder / "xxwiki-1-pages-articles-multistream-index3.txt-p1p9.bz2").write_bytes(bz2.compress("".join(lines).encode()))
    return path, starts


def articles(stream: Iterator[bytes]) -> list[tuple]:
    return [(item.id, item.title, tuple(item.paragraphs), item.language) for item in read_dump(stream, "f") if not isinstance(item, Dropped)]


@pytest.mark.parametrize("target", [1, 300, 700, 10**6])
@pytest.mark.parametrize("index", [True, False])
def test_ranges_hold_every_page_once_and_know_the_language(tmp_path: Path, index: bool, target: int):
    path, starts = write(tmp_path, index)
    size = path.stat().st_size
    ranges = stream_ranges(str(path), size, target)
    assert ranges[0][0] == 0 and ranges[-1][1] == size and all(first[1] == second[0] for first, second in pairwise(ranges))
    assert {start for start, _ in ranges} <= set(starts) and all(stop - start >= target for start, stop in ranges[:-1])
    assert len(ranges) == {(1, True): 7, (1, False): 8, (300, True): 4, (300, False): 4, (700, True): 2, (700, False): 2}.get((target, index), 1)
    found = [article for start, stop in ranges for article in articles(range_blocks(str(path), start, stop))]
    assert found == articles(blocks(str(path))) and len(found) == 12 and {article[3] for article in found} == {"de"}


def test_a_file_of_one_stream_is_one_range(tmp_path: Path):
    path = tmp_path / "multistream.xml.bz2"
    path.write_bytes(bz2.compress((HEAD + "".join(map(page, range(500))) + TAIL).encode()))
    assert stream_ranges(str(path), path.stat().st_size, 100) == [(0, path.stat().st_size)]


def test_streams_that_cut_through_pages_are_no_places_to_start(tmp_path: Path):
    text = (HEAD + "".join(map(page, range(20))) + TAIL).encode()
    path = tmp_path / "multistream.xml.bz2"
    path.write_bytes(b"".join(bz2.compress(text[at : at + 1000]) for at in range(0, len(text), 1000)))
    assert stream_ranges(str(path), path.stat().st_size, 100) == [(0, path.stat().st_size)]


def test_a_chance_match_of_the_magic_is_no_stream(tmp_path: Path):
    path = tmp_path / "multistream.xml.bz2"
    path.write_bytes(bz2.compress(HEAD.encode()) + b"BZh91AY&SY" + bytes(500))
    assert stream_ranges(str(path), path.stat().st_size, 100) == [(0, path.stat().st_size)]


@pytest.mark.parametrize(
    "shift, message",
    [
        (-1, "no bz2 stream starts at byte"),
        (10**9, r"line 1: '1000000\d+:0:T0: a title' does not fit .*multistream3.xml-p1p9.bz2 of [\d,]+ bytes"),
    ],
)
def test_an_index_of_another_dump_is_refused(tmp_path: Path, shift: int, message: str):
    path, _ = write(tmp_path, index=True, shift=shift)
    with pytest.raises(DataError, match=f"multistream-index3.txt-p1p9.bz2.*{message}.*; delete the index, or get the one of this dump$"):
        stream_ranges(str(path), path.stat().st_size, 300)


def test_a_damaged_index_is_refused(tmp_path: Path):
    path, _ = write(tmp_path, index=True)
    index = next(tmp_path.glob("*index*"))
    index.write_bytes(index.read_bytes()[:-5])
    with pytest.raises(DataError, match="index3.txt-p1p9.bz2 cannot be decompressed to its end; delete the index"):
        stream_ranges(str(path), path.stat().st_size, 300)


def test_a_range_that_is_cut_off_or_damaged_gives_what_came_before(tmp_path: Path):
    path, starts = write(tmp_path, index=False)
    data = path.read_bytes()
    for content, error in ((data[: starts[3] - 60], CutOff), (data[: starts[3] - 60] + b"x" * 200, Damaged)):
        path.write_bytes(content)
        found: list[bytes] = []
        with pytest.raises(error):
            found.extend(block for block in range_blocks(str(path), starts[1], len(content)) if block) or found.append(b"")
        stream = range_blocks(str(path), starts[1], len(content))
        kept = []
        with pytest.raises(error):
            while True:
                kept.append(next(stream))
        assert len(articles(iter(kept))) == 2


def test_ranges_of_a_url(tmp_path: Path):
    write(tmp_path, index=True)

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = tmp_path / self.path.strip("/")
            if not path.exists():
                self.send_error(404)
                return
            data = path.read_bytes()
            first = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").split("-")[0])
            self.send_response(206 if self.headers["Range"] else 200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(data) - first))
            if self.headers["Range"]:
                self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            try:
                self.wfile.write(data[first:])
            except OSError:  # a reader that has what it asked for goes away
                pass

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path = next(tmp_path.glob("*xml*"))
    url, size = f"http://127.0.0.1:{server.server_port}/{path.name}", path.stat().st_size
    try:
        with_index = stream_ranges(url, size, 300)
        next(tmp_path.glob("*index*")).unlink()
        assert stream_ranges(url, size, 300) == with_index == stream_ranges(str(path), size, 300)
        found = [article for start, stop in with_index for article in articles(range_blocks(url, start, stop))]
        assert found == articles(blocks(str(path))) and len(with_index) > 2
    finally:
        server.shutdown()
        server.server_close()
