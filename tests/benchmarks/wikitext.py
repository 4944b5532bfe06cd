"""Measure how well Wikipedia dumps are cleaned: the markup left in the text, and agreement with WikiExtractor."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from pipeline.corpus.inputs import list_files
from pipeline.corpus.sources import parse
from pipeline.corpus.wikiextractor import read_wikiextractor
from pipeline.errors import DataError
from pipeline.files.opening import BLOCK_BYTES, CutOff, Damaged, ExpandsTooFar, Opened, blocks
from pipeline.reporting import Report
from pipeline.text.documents import Dropped
from pipeline.wikipedia.dump import is_dump, read_dump
from tests.benchmarks.settings import Wikitext

MARKERS = ("[[", "]]", "{{", "}}", "<ref", "thumb", "|", "<", "http", "__", "''", "==")
"""Strings that count as markup left in the text."""
NOTE = re.compile(r"\[\d{1,3}\]")
"""A footnote mark such as [12]."""
WORD = re.compile(r"\w+")
MILLION = 1_000_000
MOST_BYTES = 1 << 28
"""Maximum bytes of XML to measure; all bytes are held in memory."""
REASON, SHARE = "dropped: ", " per million words"
"""Prefix of the names of counts of dropped pages, and suffix of the names of frequencies of markup."""


def measure(dump: str, extracted: str | None = None) -> dict[str, float]:
    """Return name -> figure of a dump: articles, dropped pages by reason, words, markup left per million words, and
    megabytes of XML per second on one core, without decompression.

    Only the first 268 MB of a dump's XML are measured. `extracted` is WikiExtractor's output for the same wiki. If it
    is given, the pages whose titles are in both texts are compared:

    - "recall": share of WikiExtractor's words (with repetition, in any order) that our text has
    - "length": our number of words divided by WikiExtractor's number

    Raises DataError if a file cannot be read, if `dump` is not a MediaWiki dump, or if no title is in both texts.
    """
    stored = list(islice(_until_cut_off(dump), MOST_BYTES // BLOCK_BYTES))
    if not is_dump(head := b"".join(stored[:1])):
        raise DataError(
            f"{dump} is not a MediaWiki dump: it begins with {head[:40]!r}, but a dump begins with <mediawiki; "
            "give a file such as enwiki-latest-pages-articles.xml, compressed or not"
        )
    start = time.process_time()
    items = list(read_dump(stored, dump))
    seconds = time.process_time() - start
    figures: dict[str, float] = {**Counter(f"{REASON}{item.reason}" for item in items if isinstance(item, Dropped))}
    articles = {item.title: "\n".join(item.paragraphs) for item in items if not isinstance(item, Dropped)}
    figures |= {"articles": len(articles), "megabytes a second": sum(map(len, stored)) / MILLION / seconds}
    figures |= markers(list(articles.values()))
    return figures | (_compared(articles, extracted) if extracted else {})


def _until_cut_off(location: str) -> Iterator[bytes]:
    """Yield a file's decompressed blocks; if the file is truncated, yield the blocks before the cut."""
    try:
        yield from blocks(location)
    except CutOff:
        pass
    except (Damaged, ExpandsTooFar) as error:
        problem = "is damaged" if isinstance(error, Damaged) else "decompresses to too much data for a dump"
        raise DataError(f"{location} {problem}; download it again") from error


def markers(texts: Iterable[str]) -> dict[str, float]:
    """Return the number of words (split at white space), and how often each marker occurs per million words."""
    texts = list(texts)
    words = sum(len(text.split()) for text in texts)
    counts = {marker: sum(text.count(marker) for text in texts) for marker in MARKERS}
    counts["[12]"] = sum(len(NOTE.findall(text)) for text in texts)
    return {"words": words} | {f"{marker}{SHARE}": count * MILLION / max(1, words) for marker, count in counts.items()}


def _compared(articles: dict[str, str], extracted: str) -> dict[str, float]:
    """Compare articles (title -> text) with WikiExtractor's articles of the same titles; return the figures by name."""
    pages = both = ours = theirs = 0
    for title, text in _extracted_articles(extracted):
        if title in articles:
            our_words, their_words = (Counter(WORD.findall(words.lower())) for words in (articles[title], text))
            pages, both = pages + 1, both + (our_words & their_words).total()
            ours, theirs = ours + our_words.total(), theirs + their_words.total()
    if not pages:
        raise DataError(
            f"no page in {extracted} has the title of any of the dump's {len(articles)} articles; "
            "give WikiExtractor's output of the same wiki"
        )
    return {"pages in both": pages, "recall": both / max(1, theirs), "length": ours / max(1, theirs)}


def _extracted_articles(location: str) -> Iterator[tuple[str, str]]:
    """Yield (title, text) of WikiExtractor's articles in a file or folder."""
    for file in list_files(parse(location)):
        for item in read_wikiextractor(Opened(location=file.location, name=file.name, blocks=blocks(file.location))):
            if not isinstance(item, Dropped):
                yield item.title, "\n".join(item.paragraphs)


def table(figures: dict[str, float]) -> str:
    """Return the figures as a table: articles and dropped pages, markup left, the comparison if any, and the rate."""
    reasons = {name.removeprefix(REASON): count for name, count in figures.items() if name.startswith(REASON)}
    left = {name.removesuffix(SHARE): count for name, count in figures.items() if name.endswith(SHARE)}
    lines = [f"{'articles':24}{figures['articles']:>10,}{figures['words']:>14,} words"]
    lines += [f"{reason:24}{count:>10,}" for reason, count in sorted(reasons.items())]
    lines.append(
        f"{'left per million words':24}{sum(left.values()):>10.1f}"
        + "".join(f"  {marker} {count:.1f}" for marker, count in left.items() if count)
    )
    if "recall" in figures:
        lines.append(
            f"{'next to WikiExtractor':24}{figures['pages in both']:>10,} pages: "
            f"{figures['recall']:.1%} of WikiExtractor's words are in our text, which has "
            f"{figures['length']:.2f} times as many words"
        )
    return "\n".join([*lines, f"{'MB/s of XML, one core':24}{figures['megabytes a second']:>10.1f}"])


def run(config: Wikitext, report: Report) -> int:
    """Measure and print; return 0."""
    print(table(measure(config.dump, config.extracted)))
    return 0
