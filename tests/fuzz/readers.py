"""Damaged inputs for every reader: python tests/fuzz/readers.py --seconds 60 --seed 0

Small valid files of every format are damaged by a seed and read in a separate process with a time limit. It counts
hangs, errors that are not PipelineErrors, and losses: an undamaged file with a record neither read nor dropped, a
damaged file with a text before the damage that is not read, or a reader that yields nothing. The same seed makes the
same inputs. Unsupported kinds of files (XML, TEI, SVG, RTF) are made too: undamaged ones must be refused. Some dumps
begin with comments.
"""

import argparse
import bz2
import gzip
import io
import json
import lzma
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

from pipeline.config.data import Preparation
from pipeline.corpus.formats import FORMATS
from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_documents
from pipeline.corpus.sources import parse
from pipeline.errors import PipelineError
from pipeline.text.documents import Dropped

LIMIT = 20.0
"""Seconds after which an input of some kilobytes counts as a hang."""
TEXT = "the cat sat on a mat, and saw one of many dogs that ran by — schön, 雨, 😀"
WORDS = TEXT.split()
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}
MAGIC = [
    b"</doc>\n",
    b'<doc id="',
    b"<page>",
    b"</page>",
    b"<text",
    b"<![CDATA[",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    b"&#0;",
    b"{{",
    b"[[",
    b"<ref>",
    b"{|",
    b"PAR1",
    b"\x1f\x8b\x08",
    b"BZh91AY&SY",
    b"\x28\xb5\x2f\xfd",
    b"\xfd7zXZ\x00",
    b"\xef\xbb\xbf",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\r",
    b"\n\n",
    b"\\ud800",
    b'"',
    b"[" * 3000,
    b"{" * 3000,
    b"9" * 5000,
    b"*** START OF THE PROJECT GUTENBERG EBOOK",
    b"*** END OF THE PROJECT GUTENBERG EBOOK",
    b"[Illustration",
    b" " * 3000,
    b'"text": null, ',
]
SETTINGS = Preparation(minimum_characters=1, minimum_letters=0)


def texts(draw: random.Random) -> list[str]:
    return [
        " ".join(draw.choices(WORDS, k=draw.randrange(1, 60))).rstrip(",") + "." for _ in range(draw.randrange(1, 20))
    ]


def parquet(lines: list[str], draw: random.Random) -> bytes:
    sink = io.BytesIO()
    columns = {"id": [str(number) for number in range(len(lines))], "title": lines, "text": lines}
    pq.write_table(
        pa.table(columns),
        sink,
        row_group_size=draw.randrange(1, 9),
        compression=draw.choice(["none", "snappy", "zstd"]),
        use_dictionary=draw.random() < 0.5,
    )
    return sink.getvalue()


def wikiextractor(lines: list[str], draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        return "".join(
            json.dumps({"id": str(n), "url": "u", "title": "T", "text": line}) + "\n" for n, line in enumerate(lines)
        ).encode()
    return "".join(f'<doc id="{n}" url="u" title="T">\nT\n\n{line}\n</doc>\n' for n, line in enumerate(lines)).encode()


def dump(lines: list[str], draw: random.Random) -> bytes:
    markup = [
        "{{convert|5|km|mi}} ",
        "[[File:A.jpg|thumb|x]] ",
        "{| class=x\n|-\n| a\n|}\n",
        "<ref>x</ref>",
        "'''b''' [[a|b]] ",
    ]
    pages = (
        f"<page><title>T{n}</title><ns>0</ns><id>{n + 1}</id><revision><text>"
        f"{draw.choice(markup).replace('<', '&lt;')}{line}</text></revision></page>\n"
        for n, line in enumerate(lines)
    )
    before = draw.choice(
        ["", "", "<!-- a <page> -->\n", "\ufeff<?xml version='1.0'?>\n<!DOCTYPE mediawiki [<!ENTITY a 'b'>]>\n"]
    )
    return f'{before}<mediawiki xml:lang="en">\n{"".join(pages)}</mediawiki>\n'.encode()


def xml(root: str) -> Callable[[list[str], random.Random], bytes]:
    """XML with or without what may stand before its first element."""

    def made(lines: list[str], draw: random.Random) -> bytes:
        before = draw.choice(["", "<?xml version='1.0'?>\n", "\ufeff<!-- a -->\n", f"<!DOCTYPE {root}>\n"])
        return f"{before}<{root} xmlns='a'>\n{''.join(f'<p>{line}</p>' for line in lines)}\n</{root}>\n".encode()

    return made


FOREIGN: dict[str, Callable[[list[str], random.Random], bytes]] = {
    "XML": xml("root"),
    "TEI": xml("TEI"),
    "SVG": xml("svg"),
    "RTF": lambda lines, draw: ("{\\rtf1\\ansi\\deff0 " + "\\par ".join(lines) + "}").encode(),
}
"""Files that are no corpus: undamaged and read without a format, each must be refused."""
SOUND: dict[str, Callable[[list[str], random.Random], bytes]] = {
    "builtin": lambda lines, draw: "".join(
        f"def f{n}():\n    {(line * 9)!r}\n" for n, line in enumerate(lines)
    ).encode(),
    "text": lambda lines, draw: "\n".join(lines).encode(),
    "sentences": lambda lines, draw: "\n\n".join(lines).encode(),
    "bookscorpus": lambda lines, draw: "\n".join(lines).encode(),
    "jsonl": lambda lines, draw: "".join(
        json.dumps({"id": n, "text": line, "title": line}) + "\n" for n, line in enumerate(lines)
    ).encode(),
    "pairs": lambda lines, draw: "".join(
        json.dumps({"anchor": f"pair {n}", "positive": line}) + "\n" for n, line in enumerate(lines)
    ).encode(),
    "wikiextractor": wikiextractor,
    "wikipedia-dump": dump,
    "gutenberg": lambda lines, draw: (
        "Title: X\n\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\n\n"
        + "\n\n".join(lines)
        + "\n\n*** END OF THE PROJECT GUTENBERG EBOOK X ***\n"
    ).encode(),
    "warc": lambda lines, draw: "".join(
        f"WARC/1.0\r\nWARC-Type: conversion\r\n\r\n{line}\r\n\r\n" for line in lines
    ).encode(),
    "parquet": parquet,
    "parquet-sentences": parquet,
}


RECORDS: dict[str, Callable[[int], int]] = {
    **dict.fromkeys(("text", "bookscorpus", "gutenberg", "parquet-sentences"), lambda lines: 1),
    **dict.fromkeys(("sentences", "jsonl", "pairs", "wikiextractor", "wikipedia-dump", "parquet"), lambda lines: lines),
    "warc": lambda lines: lines,
}
"""Number of records in an undamaged input, by its number of texts."""
ENDS = {
    "text": b"\n",
    "bookscorpus": b"\n",
    "sentences": b"\n\n",
    "jsonl": b"\n",
    "wikiextractor": b"</doc>\n",
    "wikipedia-dump": b"</page>\n",
}
"""End marker of a text, for formats in which nothing after the marker can change the text."""


def whole(format: str, lines: list[str], sound: bytes, damaged: bytes) -> list[str]:
    """The texts that end before the first damage; one without a word may be dropped as empty."""
    same = next((at for at, (a, b) in enumerate(zip(sound, damaged)) if a != b), min(len(sound), len(damaged)))
    end = b"\n" if sound.startswith(b"{") else ENDS.get(format)
    return [line for line in lines[: sound[:same].count(end)] if any(map(str.isalnum, line))] if end else []


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Bits flipped, an end cut off, a stretch removed, repeated or moved, or a telling string put in."""

    def place() -> int:
        return draw.randrange(len(data) + 1)

    low, high = sorted((place(), place()))
    kind = draw.randrange(7)
    if kind == 0 and data:
        flipped = bytearray(data)
        for _ in range(draw.choice([1, 3, 30])):
            flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        return bytes(flipped)
    if kind == 1:
        return data[:high]
    if kind == 2:
        return data[:low] + data[high:]
    if kind == 3:
        return data[:high] + data[low:high] * draw.choice([1, 5, 50]) + data[high:]
    if kind == 4:
        at = place()
        return data[:at] + data[low:high] + data[at:]
    if kind == 5:
        return data[:low] + draw.randbytes(draw.choice([1, 100])) + data[low:]
    return data[:low] + draw.choice(MAGIC) + data[low:]


def made(format: str, number: int, seed: int) -> tuple[str, bytes, int | None, list[str]]:
    """Return (name, contents, required records or None if damaged, required texts) of an input; some name no format."""
    draw = random.Random(f"{seed}/{format}/{number}")
    lines = texts(draw)
    data = undamaged = (SOUND | FOREIGN)[format](lines, draw)
    times = draw.randrange(0, 4)
    for _ in range(times):
        data = damaged(data, draw)
    kept = whole(format, lines, undamaged, data)
    suffix = draw.choice(["", "", *COMPRESSIONS])
    data = COMPRESSIONS[suffix](data)
    sound = not times
    if suffix and draw.random() < 0.5:
        data, sound, kept = damaged(data, draw), False, []
    ending = (
        {"jsonl": ".jsonl", "pairs": ".jsonl", "parquet": ".parquet"}.get(format, "") if draw.random() < 0.5 else ""
    )
    return (
        f"input{ending}{suffix}",
        data,
        (0 if format in FOREIGN else RECORDS[format](len(lines))) if sound and format in RECORDS | FOREIGN else None,
        kept,
    )


def worker(pipe: Connection, folder: str) -> None:
    """Read inputs and answer with what came of them."""
    while True:
        format, forced, name, data, expected, kept = pipe.recv()
        path = Path(folder) / name
        path.write_bytes(data)
        came = outcome(
            f"{path}::format={format}" if forced else str(path),
            data,
            expected if forced else None,
            kept if forced else [],
            quiet=format == "builtin",
        )
        pipe.send(("read", "lost: its markup is read as text") if expected == 0 and came != ("refused", "") else came)
        path.unlink()


def outcome(spec: str, data: bytes, expected: int | None, kept: list[str], quiet: bool) -> tuple[str, str]:
    """Return (outcome of an input, what is wrong with it); Python without docstrings and blank text are no loss."""
    try:
        (file,) = list_files(parse(spec))
        items = list(file_documents(file, SETTINGS))
    except PipelineError as error:
        return "refused", f"error of {len(str(error).splitlines())} lines" if "\n" in str(error) else ""
    except BaseException as error:
        return "refused", f"traceback {type(error).__name__}: {error}"
    wrong = f"lost: {len(items)} of {expected} records" if expected not in (None, len(items)) else ""
    given = "\n".join(item.text for item in items if not isinstance(item, Dropped))
    if lost := [text for text in kept if text not in given]:
        wrong = wrong or f"lost: {len(lost)} of {len(kept)} texts before the damage, such as {lost[0]!r}"
    if not items and data and not quiet and not empty(spec, data):
        wrong = wrong or "lost all"
    return "read" if items and not any(
        isinstance(item, Dropped) for item in items
    ) else "dropped" if items else "nothing", wrong


def empty(spec: str, data: bytes) -> bool:
    """Whether a damaged input has nothing left that could be lost: white space and marks of formats, or no rows."""
    for decompress in (bytes, gzip.decompress, bz2.decompress, lzma.decompress, zstd.decompress):
        try:
            content = decompress(data)
        except Exception:
            continue
        bare = (
            content.replace(b"\xef\xbb\xbf", b"")
            .replace(b"</doc>", b"")
            .strip(b" \t\r\n\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\x00")
        )
        if not bare or "wikipedia-dump" in spec or b"<mediawiki" in bare[:40]:
            return not bare or b"<page>" not in bare
        if bare.startswith(b"PAR1") and bare.endswith(b"PAR1"):
            return True
    return False


class Reader:
    """A process that reads inputs, and a new one where it hangs or dies."""

    def __init__(self, folder: str):
        self.folder = folder
        self.start()

    def start(self) -> None:
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(
            target=worker, args=(other, self.folder), daemon=True
        )
        self.process.start()
        other.close()

    def read(self, *task: object) -> tuple[str, str]:
        try:
            self.pipe.send(task)
            if self.pipe.poll(LIMIT):
                return self.pipe.recv()
            answer = "nothing", "hang"
        except (EOFError, OSError):
            answer = "nothing", "traceback: the process died"
        self.stop()
        self.start()
        return answer

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    formats = [name for name in FORMATS if name in SOUND]
    assert set(formats) == set(FORMATS), f"no inputs are made for {set(FORMATS) - set(SOUND)}"
    formats += FOREIGN
    inputs: Counter[str] = Counter()
    outcomes: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(folder)
        reader.read("text", True, "first", b"start the imports", None, [])
        end, number = time.monotonic() + options.seconds, 0
        while time.monotonic() < end:
            for format in formats:
                name, data, expected, kept = made(format, number, options.seed)
                forced = format not in FOREIGN and (
                    number % 3 > 0 or format in ("builtin", "sentences", "parquet-sentences", "pairs")
                )
                came, answer = reader.read(format, forced, name, data, expected, kept)
                inputs[format] += 1
                outcomes[format, came] += 1
                if answer:
                    outcomes[format, answer.split(maxsplit=1)[0].rstrip(":")] += 1
                    print(f"{format} {number} {name} ({len(data)} bytes): {answer[:300]}")
            number += 1
        reader.stop()
    bad = ("hang", "traceback", "error", "lost")
    kinds = ("read", "dropped", "refused", "nothing", *bad)
    print(f"{'format':<20}{'inputs':>8}" + "".join(f"{kind:>11}" for kind in kinds))
    for format in formats:
        print(f"{format:<20}{inputs[format]:>8}" + "".join(f"{outcomes[format, kind]:>11}" for kind in kinds))
    wrong = sum(outcomes[format, kind] for format in formats for kind in bad)
    print(f"{inputs.total()} inputs, {wrong} wrong (seed {options.seed})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
