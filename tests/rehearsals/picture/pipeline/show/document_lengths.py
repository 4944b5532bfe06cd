"""Draw a histogram of the lengths of a corpus's documents."""

import numpy as np
from matplotlib.figure import Figure

from pipeline.corpus.prepared import Corpus, read_window
from pipeline.show.style import BLUE, tidy, white_figure


def document_lengths(corpus: Corpus) -> np.ndarray:
    """Return the characters of each training document, int64."""
    texts = [text for window in corpus.train for text in read_window(corpus, window)["text"].to_pylist()]
    return np.array([len(text) for text in texts], np.int64)


def lines(lengths: np.ndarray) -> list[str]:
    """Return the numbers of the picture in words."""
    return [f"{len(lengths):,} documents, {lengths.mean():,.0f} characters on average, at most {lengths.max():,}"]


def draw(lengths: np.ndarray, title: str) -> Figure:
    """Return the picture."""
    figure = white_figure(6, 3.5)
    axes = figure.subplots()
    axes.hist(lengths, bins=20, color=BLUE)
    axes.set(title=title, xlabel="characters", ylabel="documents")
    tidy(axes)
    return figure
