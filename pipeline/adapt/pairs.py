"""Choose the pairs of texts that contrastive training makes from a corpus, and count the rows of an epoch."""

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from pipeline.config.data import AdjacentParagraphs, Sampling, TitleParagraph, TwoCrops
from pipeline.config.training import Batch
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import own_titles
from pipeline.text.vocabulary import Vocabulary

MEASURED_WINDOWS = 2
"""Windows in which rows are counted; the rest of the corpus is assumed to have as many per character."""
ENOUGH = 0.5
"""Minimum share of documents with a title, or number of pairs of paragraphs per document, for such pairs; and minimum
share of the rows of a step that have a title of their own.
"""
Pairs = TitleParagraph | AdjacentParagraphs | TwoCrops


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Pairs that were chosen for a corpus, and the reason."""

    pairs: Pairs
    reason: str
    compared: float
    """Mean number of other rows of its step that a row is compared with; rows of one document are not compared."""

    def __str__(self) -> str:
        return f"{self.pairs.in_words} ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class StepRows:
    """Rows of a window as they are divided into steps: means over the steps."""

    rows: float
    first_texts: float
    """Different first texts, such as titles."""
    compared: float
    """Rows that a row is compared with."""


def choose_pairs(corpus: Corpus, vocabulary: Vocabulary, maximum_length: int, rows_per_step: int) -> Chosen:
    """Return titles with paragraphs if half of the documents have a title and half of the rows of a step have a title
    of their own; else adjacent paragraphs if there are enough of them; else two crops.

    The first window of the corpus decides; its documents are a random sample.
    """
    documents = read_window(corpus, corpus.train[0])
    titles = dict(zip(documents["parent"].to_pylist(), own_titles(documents), strict=True))
    count, with_title = len(titles), sum(map(bool, titles.values()))
    sampled = " of a sample" if len(corpus.train) > 1 else ""
    reason = f"{with_title:,} of {count:,} training documents{sampled} have a title"

    def rows_of(pairs: Pairs) -> pa.Table:
        sampling = Sampling(maximum_length=maximum_length, pairs=pairs)
        settings = StreamSettings(corpus=corpus, vocabulary=vocabulary, sampling=sampling, batch=Batch(), seed=0)
        return window_rows(settings, CachedTokenizer(vocabulary), corpus.train[:1], 0, 0)

    if with_title >= ENOUGH * count:
        steps = _steps_of_rows(rows_of(TitleParagraph()), rows_per_step)
        different = f"the {steps.rows:.0f} rows of a step have {steps.first_texts:.0f} different titles"
        if steps.rows and steps.first_texts >= ENOUGH * steps.rows:
            return Chosen(pairs=TitleParagraph(), reason=f"{reason}; {different}", compared=steps.compared)
        reason += f", but {different}, too few to tell texts apart"
    pairs: Pairs = AdjacentParagraphs()
    rows = rows_of(pairs)
    reason += f"; they have {rows.num_rows:,} pairs of paragraphs"
    if rows.num_rows < ENOUGH * count:
        pairs = TwoCrops()
        rows = rows_of(pairs)
    return Chosen(pairs=pairs, reason=reason, compared=_steps_of_rows(rows, rows_per_step).compared)


def _steps_of_rows(rows: pa.Table, rows_per_step: int) -> StepRows:
    """Return the means over the steps of a window's rows (schema ROW); fewer rows than a step's count as one step."""
    columns = (rows[name].to_pylist() for name in ("ids", "first_length", "parent"))
    keys = [(tuple(ids[:length]), parent) for ids, length, parent in zip(*columns, strict=True)]
    steps = [keys[start : start + rows_per_step] for start in range(0, len(keys), rows_per_step)]
    steps = [step for step in steps if len(step) == rows_per_step] or steps
    if not steps:
        return StepRows(rows=0, first_texts=0, compared=0)
    parents = [Counter(parent for _, parent in step) for step in steps]
    compared = sum(
        sum(count * (len(step) - count) for count in of_step.values()) / len(step)
        for step, of_step in zip(steps, parents, strict=True)
    )
    return StepRows(
        rows=sum(map(len, steps)) / len(steps),
        first_texts=sum(len({text for text, _ in step}) for step in steps) / len(steps),
        compared=compared / len(steps),
    )


def rows_per_epoch(corpus: Corpus, vocabulary: Vocabulary, sampling: Sampling) -> int:
    """Return the rows of an epoch, estimated from the first windows; exact if the corpus has no more."""
    settings = StreamSettings(corpus=corpus, vocabulary=vocabulary, sampling=sampling, batch=Batch(), seed=0)
    tokenizer, windows = CachedTokenizer(vocabulary), corpus.train[:MEASURED_WINDOWS]
    rows = sum(window_rows(settings, tokenizer, windows, 0, position).num_rows for position in range(len(windows)))
    characters = (sum(window.characters for window in some) for some in (corpus.train, windows))
    return round(rows * next(characters) / max(1, next(characters)))
