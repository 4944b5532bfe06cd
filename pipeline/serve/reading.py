"""Check the texts of requests against the limits, and count their tokens."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Tokenizer

from pipeline.config.serve import Serve
from pipeline.serve.problems import invalid
from pipeline.serve.uses import ServedDescription, Use
from pipeline.text.splitting import SPECIALS, SPECIALS_OF_BYTES

SURROGATE = re.compile("[\ud800-\udfff]")
Name = Callable[[int, int | None], str]
"""Function that names a row in the request's body, or part 0 or 1 of the row; part None: the whole row."""


class RequestReader:
    """The tokenizer and the limits of a server."""

    def __init__(self, described: ServedDescription, config: Serve) -> None:
        self.described, self.limits = described, config.limits
        self.tokenizer = Tokenizer.from_str(described.tokenizer)
        self.tokenizer.no_truncation()
        entries = self.tokenizer.get_vocab()
        self.mask = next((mask for mask in (SPECIALS[4], SPECIALS_OF_BYTES[4]) if mask in entries), SPECIALS[4])

    def count(self, use: Use, rows: Sequence[Any], name: Name, truncate: bool | None, before: str = "") -> int:
        """Return the tokens of all rows that the model will read, if each follows the prompt `before`.

        Raises RequestError for too many rows, an empty text, a text that cannot be encoded, or, unless `truncate` is
        set, a text that is too long. `truncate` None: as in limits.truncate.
        """
        if len(rows) > self.limits.texts:
            raise invalid(f"the request has {len(rows):,} texts, and at most {self.limits.texts:,} are allowed", 413)
        for number, row in enumerate(rows):
            for part, text in enumerate(row if isinstance(row, tuple) else (row,)):
                if not text.strip():
                    raise invalid(f"{name(number, part)} is empty: give a text", 400)
        self._require_paired(use, rows, name)
        lengths = self._lengths([before + row for row in rows] if before else rows, name)
        longest = self.described.lengths.get(use, self.described.maximum_length)
        splits = self.described.splits and use != "embed"
        shortens = not splits and (self.limits.truncate if truncate is None else truncate)
        if not shortens and max(lengths) > longest:
            number = next(index for index, length in enumerate(lengths) if length > longest)
            instead = "send a shorter text" if splits else "send a shorter text, or truncate: true"
            message = f"must have at most {longest} tokens, and has {lengths[number]}: {instead}"
            raise invalid(f"{name(number, None)} {message}", 413)
        return sum(min(length, longest) for length in lengths)

    def _require_paired(self, use: Use, rows: Sequence[Any], name: Name) -> None:
        """Raise RequestError for a single text where the model reads pairs, and for a pair where it reads texts."""
        paired = self.described.paired
        if use != "predict" or paired is None:
            return
        for number, row in enumerate(rows):
            if isinstance(row, tuple) != paired:
                wanted = "a list of two texts" if paired else "one text"
                raise invalid(f"{name(number, None)} must be {wanted}, as in the rows that the model was trained on")

    def _lengths(self, rows: Sequence[Any], name: Name) -> list[int]:
        """Return the tokens of each row. Raises RequestError for a text that is no valid Unicode."""
        try:
            return [len(encoding.ids) for encoding in self.tokenizer.encode_batch(list(rows))]
        except (UnicodeEncodeError, TypeError) as error:
            first = next((number for number, row in enumerate(rows) if SURROGATE.search("".join(row))), 0)
            raise invalid(
                f"{name(first, None)} has lone surrogates, which are no characters: send valid Unicode"
            ) from error
