"""Padding rows of published word embeddings, and messages about tensors."""

from pipeline.errors import listed

PADDED_TO = (8, 16, 32, 64, 100, 128)
"""Published models may pad the table of word embeddings: the number of rows is then a multiple of one of these
(DeBERTa v3: 128,100 rows for 128,001 entries).
"""
MOST_NAMED = 4
"""Maximum tensor names in a message."""


def padding_rows(rows: int, entries: int) -> int:
    """Return how many of a model's `rows` word embeddings are padding, if its vocabulary has `entries` entries.

    For example, with 30,528 rows and 30,522 entries, 6 rows are padding. The result is 0 unless `rows` is `entries`
    rounded up to a multiple of a number in PADDED_TO.
    """
    return (
        rows - entries
        if rows > entries and any(rows == -(-entries // multiple) * multiple for multiple in PADDED_TO)
        else 0
    )


def tensors_named(names: list[str]) -> str:
    """Return the beginning of a message, such as "tensor a is" or "tensors a, b, c, d and 3 more are"."""
    return f"tensor{'s' * (len(names) > 1)} {listed(names, MOST_NAMED)} {'are' if len(names) > 1 else 'is'}"
