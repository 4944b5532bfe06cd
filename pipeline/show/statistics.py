"""Describe a corpus by numbers: counts of documents, words and tokens, and lengths in a sample of windows."""

from dataclasses import dataclass

import numpy as np

from pipeline.corpus.prepared import Corpus, read_window
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import window_sentences
from pipeline.text.vocabulary import Vocabulary

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Lengths in a sample of windows, as integer arrays."""

    windows: int
    """Number of windows in the sample."""
    characters: int
    """Characters of the sample's text."""
    piece_characters: np.ndarray
    """Lengths of pieces, not of documents, because the pieces of a long document are spread over the corpus."""
    sentence_words: np.ndarray
    sentence_tokens: np.ndarray | None
    """None without a vocabulary."""
    unknown: float | None
    """Share of [UNK] among the tokens; None without a vocabulary."""

    @property
    def lengths(self) -> dict[str, np.ndarray]:
        """{kind of length, such as "words per sentence": lengths}."""
        tokens = {} if self.sentence_tokens is None else {"tokens per sentence": self.sentence_tokens}
        return {"characters per piece": self.piece_characters, "words per sentence": self.sentence_words} | tokens


def statistics(corpus: Corpus, vocabulary: Vocabulary | None, windows: int) -> Statistics:
    """Measure at most `windows` training windows, evenly spaced. Without a vocabulary, tokens are not measured.

    The windows are a fair sample, because a prepared corpus has its pieces in random order.
    """
    indices = np.unique(np.linspace(0, len(corpus.train) - 1, windows).astype(int))
    chosen = [corpus.train[index] for index in indices]
    pieces, words, tokens, unknown = [], [], [], 0
    tokenizer = CachedTokenizer(vocabulary) if vocabulary else None
    for window in chosen:
        table = read_window(corpus, window)
        pieces += [len(text) for text in table["text"].to_pylist()]
        sentences, _ = window_sentences(table, keep_spaces=vocabulary is not None and vocabulary.keeps_spaces)
        words += [len(sentence.split()) for sentence in sentences]
        if tokenizer:
            ids, offsets = tokenizer.encode(sentences)
            tokens.append(np.diff(offsets))
            unknown += int((ids == tokenizer.vocabulary.unk_id).sum())
    every = np.concatenate(tokens) if tokens else None
    return Statistics(
        windows=len(chosen),
        characters=sum(pieces),
        piece_characters=np.array(pieces),
        sentence_words=np.array(words),
        sentence_tokens=every,
        unknown=None if every is None else unknown / max(1, int(every.sum())),
    )


def lines(sample: Statistics, corpus: Corpus) -> list[str]:
    """Return the statistics as lines of text.

    Totals of the training set are extrapolated from the sample, in proportion to the number of characters.
    """
    factor = (corpus.counts["characters"] - corpus.counts["heldout_characters"]) / sample.characters
    words = sample.sentence_words.sum()
    result = [
        documents_line(corpus.counts),
        "",
        f"a sample of {sample.windows} of {len(corpus.train)} training windows, {sample.characters:,} characters",
        f"about {len(sample.sentence_words) * factor:,.0f} sentences and "
        f"{words * factor:,.0f} words in the whole training set",
    ]
    if sample.sentence_tokens is not None:
        tokens = sample.sentence_tokens.sum()
        result.append(
            f"about {tokens * factor:,.0f} tokens; {tokens / words:.2f} per word, {sample.unknown:.3%} of them unknown"
        )
    heads = "".join(f"{f'{quantile:.0%}':>10}" for quantile in QUANTILES)
    rows = [
        f"{name:24}" + "".join(f"{value:>10,.0f}" for value in (*np.quantile(lengths, QUANTILES), lengths.max()))
        for name, lengths in sample.lengths.items()
    ]
    return [*result, "", f"{'in the sample':24}{heads}{'longest':>10}", *rows]


def documents_line(counts: dict[str, int]) -> str:
    """Return a line with the numbers of documents and of pieces, and the mean length of a document.

    `counts` are the counts of the corpus.
    """
    documents, pieces = counts["documents"], counts["pieces"]
    if not documents:  # the first piece of every document was dropped
        return f"{pieces:,} pieces of documents whose first pieces were dropped"
    mean = f"{counts['characters'] / documents:,.0f} characters per document on average"
    if pieces == documents:
        return f"{documents:,} documents, each in one piece; {mean}"
    return (
        f"{documents:,} documents in {pieces:,} pieces, since long documents are cut (prepare.piece_characters); {mean}"
    )
