"""Describe a corpus in words: documents, words, tokens and lengths in a sample of its windows."""

from dataclasses import dataclass

import numpy as np

from pipeline.corpus.prepared import Corpus, read_window
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import window_sentences
from pipeline.text.vocabulary import Vocabulary

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Lengths in a sample of windows."""

    windows: int
    characters: int
    piece_characters: np.ndarray
    """Lengths of pieces, not documents: the pieces of a long document are spread over the corpus."""
    sentence_words: np.ndarray
    sentence_tokens: np.ndarray | None
    unknown: float | None
    """Share of [UNK] among the tokens."""

    @property
    def lengths(self) -> dict[str, np.ndarray]:
        """Lengths by name of their unit."""
        tokens = {} if self.sentence_tokens is None else {"tokens a sentence": self.sentence_tokens}
        return {"characters a piece": self.piece_characters, "words a sentence": self.sentence_words} | tokens


def statistics(corpus: Corpus, vocabulary: Vocabulary | None, windows: int) -> Statistics:
    """Measure at most `windows` evenly spaced windows, whose pieces are in random order. Tokens need a vocabulary."""
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
    """Return the statistics in words; totals of the corpus are extrapolated by its share of characters."""
    factor = (corpus.counts["characters"] - corpus.counts["heldout_characters"]) / sample.characters
    words = sample.sentence_words.sum()
    said = [
        documents_line(corpus.counts),
        "",
        f"a sample of {sample.windows} of {len(corpus.train)} training windows, {sample.characters:,} characters",
        f"{len(sample.sentence_words) * factor:,.0f} sentences, "
        f"{words * factor:,.0f} words in the whole training set, about",
    ]
    if sample.sentence_tokens is not None:
        tokens = sample.sentence_tokens.sum()
        said.append(
            f"{tokens * factor:,.0f} tokens, about; {tokens / words:.2f} a word, {sample.unknown:.3%} of them unknown"
        )
    heads = "".join(f"{f'{quantile:.0%}':>10}" for quantile in QUANTILES)
    rows = [
        f"{name:24}" + "".join(f"{value:>10,.0f}" for value in (*np.quantile(of, QUANTILES), of.max()))
        for name, of in sample.lengths.items()
    ]
    return [*said, "", f"{'in the sample':24}{heads}{'longest':>10}", *rows]


def documents_line(counts: dict[str, int]) -> str:
    """Return the number and mean length of documents, by the corpus' counts, and what a piece is."""
    documents, pieces = counts["documents"], counts["pieces"]
    if not documents:  # the first piece of every document was dropped
        return f"{pieces:,} pieces of documents that begin with something dropped"
    mean = f"{counts['characters'] / documents:,.0f} characters a document on average"
    if pieces == documents:
        return f"{documents:,} documents, each in one piece; {mean}"
    return f"{documents:,} documents in {pieces:,} pieces, as long ones are cut (prepare.piece_characters); {mean}"
