"""Compare the texts that one query finds in two sets of vectors of the same texts, by their ranks."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.config.embed import Search
from pipeline.embed.queries import query_vectors
from pipeline.embed.query_files import Query
from pipeline.embed.results import shown_text
from pipeline.embed.search import Found, exact_hits, found_of, require_similarity
from pipeline.embed.vectors import Vectors, open_vectors
from pipeline.errors import ConfigError
from pipeline.show.style import BLUE, LIGHT, plain, white_figure
from pipeline.tracking.curves import GREY

DEPTH = 1_000
"""Ranks that are told; beyond them, only that a text is later."""
LONGEST_LINE = 56
"""Maximum characters of a text in the picture."""
ROW_HEIGHT = 0.34
"""Inches per text."""


@dataclass(frozen=True, kw_only=True)
class RankedTexts:
    """The first texts that a query finds in a set of vectors, best first: at most DEPTH."""

    name: str
    found: tuple[Found, ...]

    def rank_of(self, id: str) -> int | None:
        """Return the rank of a text, from 1; None if it is not among the first DEPTH."""
        return next((rank for rank, one in enumerate(self.found, 1) if one.id == id), None)


def open_both(before: str, after: str) -> tuple[Vectors, Vectors]:
    """Open two sets of vectors. Raises ConfigError if their numbers of texts differ."""
    one, two = open_vectors(before), open_vectors(after)
    if one.texts != two.texts:
        raise ConfigError(
            f"{before} has vectors of {one.texts:,} texts and {after} of {two.texts:,}: embed the same texts with both "
            "models"
        )
    return one, two


def require_same_texts(before: RankedTexts, after: RankedTexts) -> None:
    """Raise ConfigError if two rankings of all texts have other texts. Longer rankings may have other beginnings."""
    one, two = ({found.id for found in each.found} for each in (before, after))
    if max(len(one), len(two)) < DEPTH and one != two:
        raise ConfigError(f"{before.name} and {after.name} have other texts: embed the same texts with both models")


def ranking(vectors: Vectors, query: str, name: str) -> RankedTexts:
    """Search vectors with the model that made them. Raises the errors of `query_vectors`."""
    require_similarity(vectors.model.similarity)
    embedded = query_vectors(Search(vectors=vectors.folder, queries=query), vectors, [Query(id="1", text=query)])
    return RankedTexts(name=name, found=tuple(found_of(vectors, exact_hits(vectors, embedded, DEPTH))[0]))


def lines(query: str, before: RankedTexts, after: RankedTexts, top: int) -> list[str]:
    """Return the query, and for each ranking its first texts with their ranks in the other, as lines of text."""
    result = [query]
    for one, other in ((before, after), (after, before)):
        result += ["", f"{one.name} (rank in {other.name})"]
        result += [
            f"{rank:>3} {f'({_told(other.rank_of(found.id))})':>8}  {_line(found)}"
            for rank, found in enumerate(one.found[:top], 1)
        ]
    return result


def _told(rank: int | None) -> str:
    return f">{DEPTH:,}" if rank is None else f"{rank:,}"


def _line(found: Found) -> str:
    """Return the beginning of a text on one line; its id if the vectors have no texts."""
    return shown_text(found, LONGEST_LINE) or found.id


def draw(query: str, before: RankedTexts, after: RankedTexts, top: int) -> Figure:
    """Draw the first texts of both rankings beside each other, with a line between the places of a text in both.

    A text that only one of them has among its first is grey on the left and blue on the right, with its other rank.
    """
    rows = max(len(one.found[:top]) for one in (before, after))
    figure = white_figure(12.5, 1.3 + ROW_HEIGHT * rows)
    axes = figure.subplots()
    _side(axes, before, after, top, x=-0.04, align="right", colour=GREY)
    _side(axes, after, before, top, x=1.04, align="left", colour=BLUE)
    for left, found in enumerate(before.found[:top]):
        right = after.rank_of(found.id)
        if right is not None and right <= top:
            axes.plot([0, 1], [left, right - 1], color="black", linewidth=1.2, marker="o", markersize=3)
    for x in (0, 1):
        axes.plot([x, x], [-0.4, rows - 0.6], color=LIGHT, linewidth=1, zorder=0)
    axes.set(xlim=(-2.4, 3.4), ylim=(rows - 0.4, -1.3))
    axes.set_axis_off()
    axes.set_title(
        f"black: among the first {top} of both; in brackets: rank in the other", fontsize="small", color=GREY
    )
    figure.suptitle(plain(query), fontsize="medium", fontweight="bold")
    return figure


def _side(axes: Axes, one: RankedTexts, other: RankedTexts, top: int, *, x: float, align: str, colour: str) -> None:
    """Write one ranking's first texts in a column."""
    axes.text(x, -0.9, plain(one.name), ha=align, va="center", fontsize=9, fontweight="bold")
    for row, found in enumerate(one.found[:top]):
        rank = other.rank_of(found.id)
        both = rank is not None and rank <= top
        note = "" if both else f" ({_told(rank)})"
        text = f"{_line(found)}{note}"
        axes.text(x, row, plain(text), ha=align, va="center", fontsize=8, color="black" if both else colour)
