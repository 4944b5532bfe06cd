"""Find the texts that may contain added tokens: these go to `tokenizers`, and all others to the table of chunks."""

import json
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from pipeline.text.added_tokens import AddedToken
from pipeline.text.splitting import parts_of

AT_ONCE = 1_000
"""Maximum contents in one regular expression."""
SAME_IF_ASCII = frozenset({"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "StripAccents"})
"""Normalizers that change nothing in printable ASCII except letter case."""
PRINTABLE, SINGLE_SPACES = r"^[ -~]*$", r"^(?:[!-~]+(?: [!-~]+)*)?$"
"""Printable ASCII, with any spaces or with single spaces between words only."""


class AddedTokenFinder:
    """Finds the texts that may contain one of the tokens; `tokenizer` has the normalizer."""

    def __init__(self, tokens: Sequence[AddedToken], tokenizer: Tokenizer) -> None:
        self.normalizer = tokenizer.normalizer
        parts = parts_of(json.loads(tokenizer.to_str())["normalizer"])
        one_space = [part["type"] == "Strip" or part.get("pattern") == {"Regex": " {2,}"} for part in parts]
        known = all(part["type"] in SAME_IF_ASCII or spaces for part, spaces in zip(parts, one_space, strict=True))
        self.plain = (SINGLE_SPACES if any(one_space) else PRINTABLE) if known else None
        self.as_written = _patterns(token.content for token in tokens if not (token.normalized and self.normalizer))
        normalized = [
            self.normalizer.normalize_str(token.content) for token in tokens if token.normalized and self.normalizer
        ]
        self.in_normalized = _patterns(normalized)

    def find(self, texts: Sequence[str]) -> np.ndarray:
        """Return the indices of all texts that contain an added token, and perhaps of some others, int64."""
        array = pa.array(texts, pa.string())
        found = _matches(array, self.as_written)
        if self.in_normalized:
            # Normalising costs about as much as encoding, and most texts of most languages do not need it.
            found |= _matches(array, self.in_normalized, ignore_case=True)
            odd = ~_matches(array, [self.plain]) if self.plain else np.ones(len(texts), bool)
            indices = np.flatnonzero(odd & ~found)
            normalized = pa.array([self.normalizer.normalize_str(texts[index]) for index in indices], pa.string())
            found[indices] = _matches(normalized, self.in_normalized)
        return np.flatnonzero(found)


def _patterns(contents: Iterable[str]) -> list[str]:
    """Return regular expressions that find any of the contents."""
    # Every character is written by its number, because RE2 and Python escape different characters.
    escaped = ["".join(f"\\x{{{ord(character):x}}}" for character in content) for content in contents]
    return ["|".join(escaped[start : start + AT_ONCE]) for start in range(0, len(escaped), AT_ONCE)]


def _matches(texts: pa.Array, patterns: Iterable[str], *, ignore_case: bool = False) -> np.ndarray:
    """Return whether each text contains a match of one of the patterns, bool (len(texts),)."""
    found = np.zeros(len(texts), bool)
    for pattern in patterns:
        found |= pc.match_substring_regex(texts, pattern, ignore_case=ignore_case).to_numpy(zero_copy_only=False)
    return found
