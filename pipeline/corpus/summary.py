"""Summarise a prepared corpus as text."""

from pipeline.command_line.columns import aligned
from pipeline.corpus.prepared import Corpus

COLUMNS = ("weight", "files", "documents", "pieces", "characters", "heldout_characters")


def corpus_text(corpus: Corpus) -> str:
    """Return a table of the sources, a line per drop reason, and a line with windows and fingerprint."""
    rows = [
        (location, *(about[name] for name in COLUMNS), sum(about["dropped"].values()))
        for location, about in corpus.sources.items()
    ]
    every = ("all", "", *(corpus.counts[name] for name in COLUMNS[1:]), sum(corpus.dropped.values()))
    lines = [[str(cell) if isinstance(cell, str) else f"{cell:,}" for cell in row] for row in (*rows, every)]
    heads = ["source", *(name.replace("heldout_", "held-out ") for name in COLUMNS), "dropped"]
    reasons = [f"dropped: {reason:20}{count:>12,}" for reason, count in sorted(corpus.dropped.items())]
    windows = (
        f"{corpus.counts['windows']:,} windows, {corpus.counts['heldout_windows']:,} of them held out; "
        f"fingerprint {corpus.fingerprint[:12]}"
    )
    return "\n".join([*aligned(heads, lines), "", *reasons, *([""] if reasons else []), windows])
