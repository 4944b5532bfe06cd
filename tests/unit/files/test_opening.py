"""Compression by name and first bytes, bombs, and lines of bounded length."""

import bz2
import gzip
import io
import lzma
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.data import Preparation
from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_records
from pipeline.corpus.sources import parse
from pipeline.errors import ConfigError
from pipeline.files import retries
from pipeline.files.opening import HARMLESS_BYTES, ExpandsTooFar, LocatedStream, blocks, lines, whole_lines
from pipeline.text.documents import Dropped


def fast_xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstd.compress])
def test_compressed_data_is_known_without_a_telling_name(tmp_path: Path, compress):
    (tmp_path / "download").write_bytes(compress(b"One.\n"))
    assert b"".join(blocks(str(tmp_path / "download"))) == b"One.\n"


def test_a_text_that_begins_like_a_compression_is_a_text(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"BZh is how bzip2 begins")
    assert b"".join(blocks(str(tmp_path / "a.txt"))) == b"BZh is how bzip2 begins"


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", fast_xz), (".zst", zstd.compress)]
)
def test_a_bomb_is_cut_and_named(tmp_path: Path, suffix: str, compress):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress((b"x" * 99 + b"\n") * 800_000))
    sizes: list[int] = []
    with pytest.raises(
        ExpandsTooFar,
        match=r"^[\d,]+ bytes were decompressed to 67,\d\d\d,\d\d\d bytes: "
        r"the factor is above prepare.expansion_limit \(200\)$",
    ):
        sizes.extend(map(len, blocks(str(path))))
    assert HARMLESS_BYTES - 300_000 < sum(sizes) <= HARMLESS_BYTES
    assert sum(map(len, blocks(str(path), expansion_limit=1_000_000))) == 80_000_000


def test_the_report_of_a_bomb_names_the_setting_and_keeps_what_came_before(tmp_path: Path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress((b"x" * 99 + b"\n") * 1_000_000))
    (file,) = list_files(parse(str(tmp_path / "a.txt.gz")))
    kept, found = 0, []
    for record in file_records(file):
        if isinstance(record, Dropped):
            found.append(record)
        else:
            kept += sum(len(line) + 1 for line in record.paragraphs)
    assert [item.reason for item in found] == ["expands too far"] and "prepare.expansion_limit (200)" in found[0].sample
    assert 60_000_000 < kept < 70_000_000  # how far beyond HARMLESS_BYTES depends on the size of gzip's reads


def test_stored_text_of_any_size_does_not_expand(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"x" * (HARMLESS_BYTES + 1))
    assert sum(map(len, blocks(str(tmp_path / "a.txt"), expansion_limit=2))) == HARMLESS_BYTES + 1


def test_transient_errors_of_storage_are_retried_at_the_same_byte(monkeypatch):
    monkeypatch.setattr(retries, "WAITS", (0.0,))
    failing = iter([True, False] * 9)

    class Store(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return _after_one_failure(failing, lambda: super(Store, self).read(size))

    with LocatedStream("s3://a/b", lambda _: _after_one_failure(failing, lambda: Store(b"abcdef"))) as stream:
        assert [stream.read(4), stream.read(4), stream.read(4)] == [b"abcd", b"ef", b""]


def _after_one_failure(failing: Iterator[bool], call: Callable[[], Any]) -> Any:
    if next(failing):
        raise OSError("When reading: AWS Error NETWORK_CONNECTION during GetObject operation")
    return call()


def test_a_limit_that_would_cut_text_is_refused():
    with pytest.raises(ConfigError, match=r"^prepare.expansion_limit \(1\) must be at least 2$"):
        Preparation(expansion_limit=1)


@given(st.text(st.sampled_from("ab\n\r")), st.integers(1, 5), st.integers(1, 6))
def test_whole_lines_are_those_of_lines_but_for_their_length(text: str, size: int, longest: int):
    data = text.encode()
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    assert list(whole_lines(iter(parts), longest)) == [
        (line[:longest], len(line) <= longest) for line in lines(iter(parts))
    ]


def test_a_line_that_is_too_long_is_not_held():
    tracemalloc.start()
    found = list(whole_lines(iter([b"x" * 100_000] * 500), 1_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [("x" * 1_000_000, False)] and peak < 8_000_000
