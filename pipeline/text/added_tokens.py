"""Tokens added to a tokenizer, such as user names and markers of entities: they match in a text before it is split."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.text.splitting import parts_of

if TYPE_CHECKING:  # imported by those who build tokenizers, because training on a file of tokens does not need it
    from tokenizers import Tokenizer

AT_ONCE = 1_000
"""Maximum contents in one regular expression."""
SAME_IF_ASCII = frozenset({"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "StripAccents"})
"""Normalizers that change nothing in printable ASCII except letter case."""
PRINTABLE, SINGLE_SPACES = r"^[ -~]*$", r"^(?:[!-~]+(?: [!-~]+)*)?$"
"""Printable ASCII, with any spaces or with single spaces between words only."""


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """An added token, with the settings that `tokenizers` gives it."""

    content: str
    single_word: bool = False
    """Whether it matches only between characters that are not part of a word."""
    lstrip: bool = False
    """Whether it includes the white space before it."""
    rstrip: bool = False
    """Whether it includes the white space after it."""
    normalized: bool = True
    """Whether it is compared with the normalised text, for example in lower case."""
    special: bool = False
    """Whether the file marks it as special. In a corpus it is then text, as with encode_special_tokens of tokenizers;
    in fine-tuning and for vectors it matches like the others.
    """


def added_tokens_of(whole: dict[str, Any]) -> tuple[AddedToken, ...]:
    """Return the added tokens that a tokenizer.json lists, in its order."""
    return tuple(
        AddedToken(**{name: token[name] for name in AddedToken.__dataclass_fields__}) for token in whole["added_tokens"]
    )


def as_listed(token: AddedToken, id: int) -> dict[str, Any]:
    """Return an added token as a tokenizer.json lists it."""
    return {"id": id} | asdict(token)


class AddedTokenFinder:
    """Finds the texts that may contain one of the tokens; `tokenizer` has the normalizer."""

    def __init__(self, tokens: Sequence[AddedToken], tokenizer: "Tokenizer") -> None:
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
