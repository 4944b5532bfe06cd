"""What is left of a Wikipedia dump's articles: markers of markup per million words, and the words that WikiExtractor keeps of the same pages."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator

from pipeline.corpus.dump import read_dump
from pipeline.corpus.inputs import list_files
from pipeline.corpus.opening import CutOff, Opened, blocks
from pipeline.corpus.sources import parse
from pipeline.corpus.wikiextractor import read_wikiextractor
from pipeline.text.documents import Dropped

MARKERS = ("[[", "]]", "{{", "}}", "<ref", "thumb", "|", "<", "http", "__")
WORD = re.compile(r"\w+")
MILLION = 1_000_000


def measure(dump: str, extracted: str | None = None) -> dict[str, float]:
    """What became of a dump's pages, the markers left in its articles, and megabytes of XML a second of one core, decompression left out.

    With WikiExtractor's output of the same wiki also, over the pages of equal titles: "recall", the share of its words (with repetition,
    in any order) that are here, and "length", the number of words here by the number there.
    """
    stored = list(until_cut_off(dump))
    start = time.process_time()
    items = list(read_dump(stored, dump))
    seconds = time.process_time() - start
    found: dict[str, float] = Counter(f"dropped: {item.reason}" for item in items if isinstance(item, Dropped))
    articles = {item.title: "\n".join(item.paragraphs) for item in items if not isinstance(item, Dropped)}
    found |= {"articles": len(articles), "megabytes a second": sum(map(len, stored)) / MILLION / seconds}
    found |= markers(list(articles.values()))
    return dict(found) | (compared(articles, extracted) if extracted else {})


def until_cut_off(location: str) -> Iterator[bytes]:
    """A file's decompressed blocks, as far as there are any."""
    try:
        yield from blocks(location)
    except CutOff:
        pass


def markers(texts: Iterable[str]) -> dict[str, float]:
    """The number of words (between white space), and of each marker for a million of them."""
    texts = list(texts)
    words = sum(len(text.split()) for text in texts)
    counts = {marker: sum(text.count(marker) for text in texts) for marker in MARKERS}
    return {"words": words} | {f"{marker} per million words": count * MILLION / max(1, words) for marker, count in counts.items()}


def compared(articles: dict[str, str], extracted: str) -> dict[str, float]:
    """The words of articles against those of WikiExtractor's articles of the same titles."""
    pages = both = ours = theirs = 0
    for title, text in extracted_articles(extracted):
        if title in articles:
            here, there = Counter(WORD.findall(articles[title].lower())), Counter(WORD.findall(text.lower()))
            pages, both = pages + 1, both + (here & there).total()
            ours, theirs = ours + here.total(), theirs + there.total()
    return {"pages in both": pages, "recall": both / max(1, theirs), "length": ours / max(1, theirs)}


def extracted_articles(location: str) -> Iterator[tuple[str, str]]:
    """(title, text) of WikiExtractor's articles in a file or folder."""
    for file in list_files(parse(location)):
        for item in read_wikiextractor(Opened(location=file.location, name=file.name, blocks=blocks(file.location))):
            if not isinstance(item, Dropped):
                yield item.title, "\n".join(item.paragraphs)
