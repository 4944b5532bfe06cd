"""Tell cased from uncased vocabularies by the letters of their entries."""

import re

ODD_SHARE = 0.01
"""Maximum share of entries with upper-case letters in an uncased vocabulary; published ones have a few such entries."""
BRACKETED = re.compile(r"\[.+\]", re.DOTALL)


def has_capitals(tokens: tuple[str, ...]) -> bool:
    """Whether the share of entries with upper-case letters is too high for an uncased vocabulary."""
    return len(upper_case(tokens)) > ODD_SHARE * len(tokens)


def upper_case(tokens: tuple[str, ...]) -> list[str]:
    """Return the entries that lower-casing changes, except names in brackets such as [CLS]."""
    return [token for token in tokens if not BRACKETED.fullmatch(token) and token != token.lower()]
