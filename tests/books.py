"""Small texts, and a corpus prepared from them in this process."""

import bz2
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.config.data import Preparation
from pipeline.corpus.prepare import prepare
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.reporting import no_op
from tests.in_process import IN_PROCESS

SETTINGS = Preparation(
    window_characters=1000,
    windows_per_shard=4,
    piece_characters=200,
    minimum_characters=20,
    heldout_share=0.2,
    near_duplicates=None,
)
BOOKS = 30


def write_books(folder: Path) -> Path:
    """30 books of 10 paragraphs of about 50 characters, one more that repeats a book, and one that is too short."""
    folder.mkdir(parents=True)
    for number in range(BOOKS):
        paragraphs = [f"Paragraph {place} of book {number} has words of its own." for place in range(10)]
        content = "\n".join([f"Title: Book {number}", *paragraphs]).encode()
        if number % 2:
            (folder / f"{number:02d}.txt").write_bytes(content)
        else:
            (folder / f"{number:02d}.txt.gz").write_bytes(gzip.compress(content))
    (folder / "zz-again.txt").write_bytes((folder / "07.txt").read_bytes())
    (folder / "tiny.txt").write_text("Too short.")
    return folder


def write_dump(path: Path, pages: int) -> Path:
    """A dump in one bz2 stream with blocks of 100 kB; each page is about 8 kB."""
    words = [a + b + c for a in "bdfgkl" for b in "aeiou" for c in "lmnrst"]
    page = "<page><title>T{0}</title><ns>0</ns><id>{0}</id><revision><text>Artikel {0}: {1}.</text></revision></page>\n"
    texts = [
        page.format(number, " ".join(random.Random(number).choices(words, k=2_000))) for number in range(1, pages + 1)
    ]
    path.write_bytes(
        bz2.compress(('<mediawiki xml:lang="de"><siteinfo></siteinfo>\n' + "".join(texts) + "</mediawiki>").encode(), 1)
    )
    return path


def quiet_prepare(sources: Sequence[str | Path], folder: Path, settings: Preparation = SETTINGS) -> Corpus:
    """Prepare a corpus in this process."""
    return prepare([str(source) for source in sources], settings, str(folder), no_op, IN_PROCESS)


def documents(corpus: Corpus, split: str) -> list[dict[str, Any]]:
    """Return the rows of a corpus, in order."""
    return [row for window in getattr(corpus, split) for row in read_window(corpus, window).to_pylist()]


def batch_records(folder: Path) -> dict[Path, dict[str, Any]]:
    """Return file -> record of each batch of input files that was read into a corpus folder."""
    return {path: json.loads(path.read_text()) for path in (folder / "parts").glob("*.json") if "-" not in path.name}
