"""Map text embeddings to two dimensions, with a colour per label, and measure how often near texts share a label.

Shapes: N texts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.errors import DataError
from pipeline.show.style import COLOURS, LIGHT, plain, white_figure
from pipeline.tables.content import SURROGATE
from pipeline.tables.readers import rows_in

NEAREST = 5
"""Number of nearest texts that vote on a text's label."""
PERPLEXITY = 30.0
"""Perplexity of t-SNE: scikit-learn's default. Few texts get a lower perplexity."""
OTHERS = "other labels"


@dataclass(frozen=True, kw_only=True)
class TextMap:
    """Positions of texts, and how often the nearest texts have the same label."""

    points: np.ndarray
    """float64 (N, 2)."""
    explained: tuple[float, float] | None
    """Share of the embeddings' variance along each axis; None for t-SNE."""
    agreement: float
    """Share of texts whose label is the most frequent label of their NEAREST texts, as `agreement` computes it."""


def read_labelled(file: str, text: str, label: str, rows: int, seed: int) -> tuple[list[str], list[str]]:
    """Return at most `rows` texts of a file, and their labels. The texts are drawn at random, and stay in file order.

    Raises DataError if the file cannot be read, lacks a column, or has fewer than four texts.
    """
    pairs = [
        (SURROGATE.sub("\ufffd", str(t)), SURROGATE.sub("\ufffd", str(named)))
        for _, (t, named) in rows_in(file, [text, label])
        if t and named is not None
    ]
    if len(pairs) < 4:
        raise DataError(f"{file} has {len(pairs)} rows with a text and a label: a map needs at least 4")
    if len(pairs) > rows:
        chosen = np.sort(np.random.default_rng(seed).choice(len(pairs), rows, replace=False))
        pairs = [pairs[index] for index in chosen.tolist()]
    return [t for t, _ in pairs], [named for _, named in pairs]


def text_map(vectors: np.ndarray, labels: Sequence[str], method: str, seed: int) -> TextMap:
    """Map embeddings (N, width) of length 1 to two dimensions by `method`, pca or tsne."""
    points, explained = METHODS[method](vectors.astype(np.float64), seed)
    return TextMap(points=points, explained=explained, agreement=agreement(vectors, labels))


def _pca(vectors: np.ndarray, seed: int) -> tuple[np.ndarray, tuple[float, float] | None]:
    """Return the texts' values on the first two principal components, and the components' shares of variance.

    The sign of a component is such that its largest loading is positive.
    """
    centred = vectors - vectors.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    two = directions[:2]
    two = two * np.sign(two[[0, 1], np.abs(two).argmax(axis=1)])[:, None]
    first, second = (sizes**2 / max((sizes**2).sum(), 1e-30))[:2].tolist()
    return centred @ two.T, (first, second)


def _tsne(vectors: np.ndarray, seed: int) -> tuple[np.ndarray, tuple[float, float] | None]:
    """Return the t-SNE map (van der Maaten & Hinton 2008), initialised with the principal components."""
    from sklearn.manifold import TSNE  # imported here because the import takes a second

    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(vectors).astype(np.float64), None


METHODS = {"pca": _pca, "tsne": _tsne}


def agreement(vectors: np.ndarray, labels: Sequence[str]) -> float:
    """Return the share of texts whose label is the most frequent label of their NEAREST other texts.

    Vectors (N, width) have length 1; near means a high cosine. Of equally frequent labels, the nearest text's wins.
    """
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, : min(NEAREST, len(labels) - 1)]
    votes = [Counter(labels[index] for index in row).most_common(1)[0][0] for row in nearest.tolist()]
    return float(np.mean([vote == label for vote, label in zip(votes, labels, strict=True)]))


def lines(maps: Mapping[str, TextMap], labels: Sequence[str]) -> list[str]:
    """Return counts of labels and the agreement of near texts for each model, as lines of text."""
    counts = Counter(labels).most_common()
    result = [f"{len(labels):,} texts, {len(counts)} labels: " + ", ".join(f"{name} {n:,}" for name, n in counts[:10])]
    for name, measured in maps.items():
        result.append(
            f"{name}: the {NEAREST} nearest texts tell the label of {measured.agreement:.1%} of the texts "
            f"(the most frequent label: {counts[0][1] / len(labels):.1%})"
        )
        if measured.explained:
            first, second = measured.explained
            result.append(f"{name}: the axes show {first:.1%} and {second:.1%} of the variance")
    return result


def draw(maps: Mapping[str, TextMap], labels: Sequence[str], title: str) -> Figure:
    """Draw one panel per model, with one point per text in the colour of its label."""
    figure = white_figure(0.6 + 5.6 * len(maps), 5.8)
    shown = [name for name, _ in Counter(labels).most_common(len(COLOURS))]
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, (name, measured) in zip(panels, maps.items(), strict=True):
        _points(axes, measured, labels, shown)
        axes.set_title(f"{plain(name)}\nnearest texts tell the label of {measured.agreement:.1%}", fontsize="medium")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False,
                  fontsize="small", markerscale=2.5)  # fmt: skip
    figure.suptitle(plain(title), fontsize="medium", fontweight="bold")
    return figure


def _points(axes: Axes, measured: TextMap, labels: Sequence[str], shown: Sequence[str]) -> None:
    """Draw the texts of one model. Texts whose labels are not in `shown` are light and behind the others."""
    named = np.array(labels)
    groups = [(OTHERS, LIGHT, ~np.isin(named, shown))]
    groups += [(name, colour, named == name) for name, colour in zip(shown, COLOURS)]
    for name, colour, chosen in groups:
        if chosen.any():
            axes.scatter(*measured.points[chosen].T, s=11, color=colour, alpha=0.7, linewidths=0, label=plain(name))
    axes.set(xticks=[], yticks=[])
    if measured.explained:
        names = [f"component {n}: {share:.1%} of variance" for n, share in enumerate(measured.explained, start=1)]
        axes.set(xlabel=names[0], ylabel=names[1])
