"""Choose the pairs of texts that contrastive training makes from a corpus, and count the rows of an epoch."""

from dataclasses import dataclass, replace

from pipeline.config.data import AdjacentParagraphs, Sampling, TitleParagraph, TwoCrops
from pipeline.config.training import Batch
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.objectives.contrastive import PAIRS_IN_WORDS
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import own_titles
from pipeline.text.vocabulary import Vocabulary

MEASURED_WINDOWS = 2
"""Windows in which rows are counted; the rest of the corpus is assumed to have as many per character."""
ENOUGH = 0.5
"""Minimum share of documents with a title, or number of pairs of paragraphs per document, for such pairs."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Pairs that were chosen for a corpus, and the reason."""

    pairs: TitleParagraph | AdjacentParagraphs | TwoCrops
    reason: str

    def __str__(self) -> str:
        return f"{PAIRS_IN_WORDS[type(self.pairs)]} ({self.reason})"


def choose_pairs(corpus: Corpus, vocabulary: Vocabulary, maximum_length: int) -> Chosen:
    """Return titles with paragraphs if half of the documents have a title, else adjacent paragraphs if there are enough
    of them, else two crops. The first window of the corpus decides; its documents are a random sample.
    """
    documents = read_window(corpus, corpus.train[0])
    count, titles = documents.num_rows, sum(map(bool, own_titles(documents)))
    with_titles = f"{titles:,} of {count:,} documents have a title"
    if titles >= ENOUGH * count:
        return Chosen(pairs=TitleParagraph(), reason=with_titles)
    first = replace(corpus, train=corpus.train[:1])
    pairs = AdjacentParagraphs()
    rows = rows_per_epoch(first, vocabulary, Sampling(maximum_length=maximum_length, pairs=pairs))
    reason = f"{with_titles}, and {count:,} documents have {rows:,} pairs of paragraphs"
    return Chosen(pairs=pairs if rows >= ENOUGH * count else TwoCrops(), reason=reason)


def rows_per_epoch(corpus: Corpus, vocabulary: Vocabulary, sampling: Sampling) -> int:
    """Return the rows of an epoch, estimated from the first windows; exact if the corpus has no more."""
    settings = StreamSettings(corpus=corpus, vocabulary=vocabulary, sampling=sampling, batch=Batch(), seed=0)
    tokenizer, windows = CachedTokenizer(vocabulary), corpus.train[:MEASURED_WINDOWS]
    rows = sum(window_rows(settings, tokenizer, windows, 0, position).num_rows for position in range(len(windows)))
    characters = (sum(window.characters for window in some) for some in (corpus.train, windows))
    return round(rows * next(characters) / max(1, next(characters)))
