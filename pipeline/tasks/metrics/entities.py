"""Entity precision, recall and F1 in percent, as conlleval computes them for IOB2 tags."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from pipeline.errors import DataError

OUTSIDE = "O"
AS_IOB = {"B": "B", "I": "I", "E": "I", "L": "I", "S": "B", "U": "B"}
"""Prefix in BIOES and BILOU -> prefix in IOB2."""


def split(tag: str) -> tuple[str, str]:
    """Split a tag into prefix and type: "B-PER" is ("B", "PER"); "O" has an empty type."""
    mark, _, kind = tag.partition("-")
    return mark, kind


def is_chunk_tag(tag: str) -> bool:
    """Return whether a tag is O, B-TYPE or I-TYPE."""
    mark, kind = split(tag)
    return tag == OUTSIDE or mark in ("B", "I") and kind != ""


def is_span_tag(tag: str) -> bool:
    """Return whether a tag is O, or PREFIX-TYPE with a prefix of BIOES (B, I, E, S) or of BILOU (B, I, L, U)."""
    mark, kind = split(tag)
    return tag == OUTSIDE or mark in AS_IOB and kind != ""


def respelled(tag: str) -> str:
    """Return a tag such as B_PER, b-per or o in the usual spelling: B-PER, B-per or O; other tags are unchanged."""
    mark, between, kind = tag[:1].upper(), tag[1:2], tag[2:]
    if tag.upper() == OUTSIDE:
        return OUTSIDE
    return f"{mark}-{kind}" if mark in AS_IOB and between and between in "-_" and kind else tag


def as_iob(tag: str) -> str:
    """Convert a BIOES or BILOU tag to IOB2; other tags are unchanged."""
    mark, kind = split(tag)
    return f"{AS_IOB[mark]}-{kind}" if mark in AS_IOB and kind else tag


def begun_inside(names: Sequence[str]) -> set[str]:
    """Return B-TYPE of each type that has only I-TYPE, as in IO and often in IOB1; empty if some are no chunk tags."""
    if not all(map(is_span_tag, names)):
        return set()
    return {f"B-{split(name)[1]}" for name in names if name.startswith("I-")} - set(map(as_iob, names))


def iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """Convert one sentence's chunk tags from IOB1 or IOB2 to IOB2.

    An I tag that does not continue an entity of its type becomes a B tag. Other tags are unchanged.
    """
    before = (OUTSIDE, *tags)
    return tuple(f"B-{split(tag)[1]}" if _starts_entity(previous, tag) else tag for previous, tag in zip(before, tags))


def _starts_entity(previous: str, tag: str) -> bool:
    """Return whether an entity starts at a tag: at B, and at I after O or another type."""
    mark, kind = split(tag)
    return mark == "B" or mark == "I" and (previous == OUTSIDE or split(previous)[1] != kind)


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return (type, first word, one past the last word) of each entity in one sentence."""
    whole = [*iob2(tags), OUTSIDE]
    starts = [index for index, tag in enumerate(whole) if tag.startswith("B-")]
    ends = (next(end for end in range(start + 1, len(whole)) if not whole[end].startswith("I-")) for start in starts)
    return {(split(whole[start])[1], start, end) for start, end in zip(starts, ends)}


def score_entities(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the accuracy of tags, and the precision, recall, f1 and number of entities; scores are in percent.

    The number of entities counts the true entities. Precision, recall, f1 and number are also returned for each type of
    entity, as TYPE_precision, TYPE_recall, TYPE_f1 and TYPE_entities. An entity is correct if its type and both of its
    ends are correct. Raises DataError if there are no words.
    """
    wanted = Counter(kind for tags in true for kind, _, _ in entities(tags))
    predicted_counts = Counter(kind for tags in predicted for kind, _, _ in entities(tags))
    correct = Counter(
        kind for ours, theirs in zip(true, predicted, strict=True) for kind, _, _ in entities(ours) & entities(theirs)
    )
    overall = _entity_scores("", correct.total(), predicted_counts.total(), wanted.total())
    scores = {"accuracy": accuracy(true, predicted)} | overall
    for kind in sorted(wanted | predicted_counts):
        scores |= _entity_scores(f"{kind}_", correct[kind], predicted_counts[kind], wanted[kind])
    return scores


def _entity_scores(prefix: str, correct: int, predicted: int, wanted: int) -> dict[str, float]:
    """Return precision, recall and F1 in percent (0 if undefined) and the number of true entities, from counts."""
    precision = 100 * correct / predicted if predicted else 0.0
    recall = 100 * correct / wanted if wanted else 0.0
    f1 = 200 * correct / (predicted + wanted) if correct else 0.0
    return {
        f"{prefix}precision": precision,
        f"{prefix}recall": recall,
        f"{prefix}f1": f1,
        f"{prefix}entities": float(wanted),
    }


def accuracy(true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> float:
    """Return the percentage of words with the correct tag. Raises DataError if there are no words."""
    pairs = list(
        chain.from_iterable(zip(ours, theirs, strict=True) for ours, theirs in zip(true, predicted, strict=True))
    )
    if not pairs:
        raise DataError("there are 0 words to score: give a file with at least 1")
    return 100 * sum(ours == theirs for ours, theirs in pairs) / len(pairs)
