"""Draw pictures of a finished training run. They need only the summary of the run's workers, and the run's corpus."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from matplotlib.figure import Figure

from pipeline.corpus.prepared import Corpus
from pipeline.evaluation.token_frequency import of_records
from pipeline.show import corpus_sources, loss_by_frequency
from pipeline.tracking.curves import DPI
from pipeline.train.worker_summary import BY_FREQUENCY

LOSS, CORPUS = "pictures/loss-by-frequency.png", "pictures/corpus.png"
"""Paths of artifacts in MLflow."""


def end_pictures(summary: Mapping[str, Any], corpus: Corpus) -> dict[str, Figure]:
    """Return artifact path -> figure: the held-out loss by frequency, and the sources of the corpus.

    A picture is left out if its data is missing: losses by frequency in the summary, or sources in the corpus.
    """
    figures = {}
    if records := summary[BY_FREQUENCY]:
        title = f"Held-out masked loss of {summary['name']} by frequency"
        figures[LOSS] = loss_by_frequency.draw(of_records(records), title)
    if corpus.sources:
        title = f"Corpus of {summary['name']}: {corpus.counts['characters']:,} characters"
        figures[CORPUS] = corpus_sources.draw(corpus, None, title)
    return figures


def as_png(figure: Figure) -> bytes:
    """Return a figure as a PNG file.

    Pictures are sent between processes as PNG: Ray makes the arrays of a figure read-only, so that it cannot be drawn.
    """
    figure.savefig(content := BytesIO(), format="png", dpi=DPI)
    return content.getvalue()
