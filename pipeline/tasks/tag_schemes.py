"""Schemes of chunk tags: which tags may start a sentence, follow each other, and end a sentence.

Shapes: K tags.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.errors import DataError, shown
from pipeline.tasks.metrics.entities import is_span_tag, split
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.tagging import CUT, TaggingWindow

OPENS, CONTINUES = ("B", "I"), ("I", "E", "L")
"""Prefixes after which an entity may go on, and prefixes that need an open entity of their type."""
CLOSED_BY_NAME = {"E", "S", "L", "U"}
"""Prefixes of BIOES and BILOU that IOB2 lacks; with them, an open entity must go on until E or L."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scheme:
    """The tag sequences that a scheme allows."""

    name: str
    """IOB2, or BIOES (also for BILOU)."""
    start: np.ndarray  # bool (K,), whether a sentence may start with the tag
    following: np.ndarray  # bool (K, K), whether the tag of the column may follow the tag of the row
    end: np.ndarray  # bool (K,), whether a sentence may end with the tag


def scheme_of(names: Sequence[str]) -> Scheme | None:
    """Return the scheme of a set of tags; None unless all are O or PREFIX-TYPE with a prefix of BIOES or BILOU.

    In IOB2, I-TYPE follows only B-TYPE and I-TYPE. In BIOES, B-TYPE and I-TYPE are also followed only by I-TYPE and
    E-TYPE.
    """
    if not names or not all(map(is_span_tag, names)):
        return None
    marks, kinds = zip(*map(split, names))
    closed = bool(CLOSED_BY_NAME & set(marks))
    opens = np.array([mark in OPENS for mark in marks])
    continues = np.array([mark in CONTINUES for mark in marks])
    same = np.array(kinds)[:, None] == np.array(kinds)
    must_go_on = opens & closed
    return Scheme(
        name="BIOES" if closed else "IOB2",
        start=~continues,
        following=np.where(continues, opens[:, None] & same, ~must_go_on[:, None]),
        end=~must_go_on,
    )


def require_scheme(prepared: Prepared, names: Sequence[str], scheme: Scheme) -> None:
    """Raise DataError for the first sentence of the training split whose tags break the scheme.

    Words without tokens are left out, as in training.
    """
    for number, (sentence, windows) in enumerate(zip(prepared.items, prepared.windows, strict=True), 1):
        for window in windows:
            if problem := _problem_in(window, sentence.words, names, scheme):
                raise DataError(
                    f"train: in sentence {number:,}, {problem}, which {scheme.name} forbids: correct the tags or leave "
                    "the sentence out, or leave recipe.crf out"
                )


def _problem_in(window: TaggingWindow, words: Sequence[str], names: Sequence[str], scheme: Scheme) -> str | None:
    """Describe the first pair of tags in a window that the scheme forbids; None if the scheme allows all."""
    places = np.flatnonzero((window.labels >= 0) & (window.labels < len(names)))  # not intents
    if not len(places):
        return None
    labels = window.labels[places]

    def tagged(place: int) -> str:
        return f"word {shown(words[window.words[places[place]]])} has the tag {names[labels[place]]}"

    if window.labels[0] != CUT and not scheme.start[labels[0]]:
        return f"the first {tagged(0)}"
    if len(broken := np.flatnonzero(~scheme.following[labels[:-1], labels[1:]])):
        return f"the {tagged(broken[0] + 1)} after {names[labels[broken[0]]]}"
    if window.labels[-1] != CUT and not scheme.end[labels[-1]]:
        return f"the last {tagged(-1)}"
    return None
