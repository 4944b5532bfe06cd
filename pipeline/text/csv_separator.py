"""The first line of a CSV file that tells Excel the separator, such as "sep=;"."""

import re

LINE = re.compile(r'"?sep=(?P<separator>.)(?P=separator)*"?')
"""The line; programs may add quotes, or a separator for each column."""


def named_separator(line: str) -> str | None:
    """Return the separator that a file's first line names; None for other lines."""
    match = LINE.fullmatch(line.strip("\ufeff\r\n"))
    return match["separator"] if match else None
