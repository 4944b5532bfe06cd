"""Hold out a share of the training texts for development, where a data set has no development file."""

import hashlib

HELD_OUT = 10
"""Without a development file, about one in HELD_OUT training items is held out for development, chosen by a hash."""


def is_held_out(text: str) -> bool:
    """Return whether a text is held out for development. Its hash decides; about one text in HELD_OUT is held out."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % HELD_OUT == 0
