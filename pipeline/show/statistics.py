"""What a corpus is like: documents, words, tokens and lengths of a sample of its windows, as text and as a picture."""

from dataclasses import dataclass

import numpy as np

from pipeline.corpus.prepare import Corpus, read_window
from pipeline.text.examples import window_sentences
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.wordpiece import WordPiece

SHOWN = 0.99
"""Share of the lengths that a histogram shows."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Lengths in a sample of windows."""

    windows: int
    characters: int
    document_characters: np.ndarray
    sentence_words: np.ndarray
    sentence_tokens: np.ndarray | None
    unknown: float | None
    """Share of tokens that are [UNK]."""


def statistics(corpus: Corpus, vocabulary: Vocabulary | None, windows: int) -> Statistics:
    """Of at most so many windows, evenly spread; they hold documents in random order. Tokens need a vocabulary."""
    chosen = [corpus.train[place] for place in np.unique(np.linspace(0, len(corpus.train) - 1, windows).astype(int))]
    documents, words, tokens, unknown = [], [], [], 0
    wordpiece = WordPiece(vocabulary) if vocabulary else None
    for window in chosen:
        table = read_window(corpus, window)
        documents += [len(text) for text in table["text"].to_pylist()]
        sentences, _ = window_sentences(table)
        words += [len(sentence.split()) for sentence in sentences]
        if wordpiece:
            ids, offsets = wordpiece.encode(sentences)
            tokens.append(np.diff(offsets))
            unknown += int((ids == wordpiece.vocabulary.unk_id).sum())
    every = np.concatenate(tokens) if tokens else None
    return Statistics(
        windows=len(chosen),
        characters=sum(documents),
        document_characters=np.array(documents),
        sentence_words=np.array(words),
        sentence_tokens=every,
        unknown=None if every is None else unknown / max(1, int(every.sum())),
    )


def lines(found: Statistics, corpus: Corpus) -> list[str]:
    """The statistics in words, those of the whole corpus by its share of characters."""
    factor = (corpus.counts["characters"] - corpus.counts["heldout_characters"]) / found.characters
    words = found.sentence_words.sum()
    said = [
        f"a sample of {found.windows} of {len(corpus.train)} training windows, {found.characters / 1e6:.1f} M characters",
        f"{len(found.sentence_words) * factor:,.0f} sentences, {words * factor:,.0f} words in the whole training set, about",
    ]
    if found.sentence_tokens is not None:
        tokens = found.sentence_tokens.sum()
        said.append(f"{tokens * factor:,.0f} tokens, about; {tokens / words:.2f} a word, {found.unknown:.3%} of them unknown")
    rows = [("characters a document", found.document_characters), ("words a sentence", found.sentence_words)]
    rows += [("tokens a sentence", found.sentence_tokens)] if found.sentence_tokens is not None else []
    heads = "".join(f"{f'{quantile:.0%}':>10}" for quantile in QUANTILES)
    return [*said, "", f"{'':24}{heads}{'longest':>10}", *(f"{name:24}" + "".join(f"{value:>10,.0f}" for value in (*np.quantile(of, QUANTILES), of.max())) for name, of in rows)]


def picture(found: Statistics, corpus: Corpus, path: str) -> None:
    """Histograms of the lengths and bars of what was dropped, as an image; its name's ending says which kind."""
    from matplotlib.figure import Figure

    shown = [("characters a document", found.document_characters), ("words a sentence", found.sentence_words)]
    shown += [("tokens a sentence", found.sentence_tokens)] if found.sentence_tokens is not None else []
    figure = Figure(figsize=(4.5 * (len(shown) + 1), 3.6), layout="constrained")
    axes = figure.subplots(1, len(shown) + 1)
    for axis, (name, lengths) in zip(axes, shown):
        longest = int(np.quantile(lengths, SHOWN)) + 1
        axis.hist(lengths, bins=np.arange(0, longest + 1, -(-longest // 50)))
        axis.set(xlabel=f"{name} (the longest {1 - SHOWN:.0%} left out)", title=f"median {np.median(lengths):,.0f}")
    reasons = sorted(corpus.dropped.items(), key=lambda pair: pair[1])
    axes[-1].barh([reason for reason, _ in reasons], [count for _, count in reasons])
    axes[-1].set(title=f"dropped: {sum(corpus.dropped.values()):,}", xscale="symlog")
    figure.suptitle(f"{corpus.counts['documents']:,} documents, {corpus.counts['characters'] / 1e6:,.0f} M characters")
    figure.savefig(path, dpi=110)
