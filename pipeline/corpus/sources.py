"""Parse source specifications, such as "builtin" or "books/*.txt.gz::format=text::weight=2"."""

import math
from dataclasses import dataclass

from pipeline.config.data import PAIRS
from pipeline.config.locations import BUILTIN
from pipeline.corpus.formats import FORMATS
from pipeline.errors import ConfigError
from pipeline.text.sentences import is_language_code

KEYS = ("format", "column", "language", "weight")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One source of raw text: a location, and how to read it."""

    spec: str
    location: str
    format: str | None = None
    """A name in FORMATS. If it is None, the format of each file is recognised."""
    column: str | None = None
    """Column of the text in tables (Parquet, JSON lines); None: the column is found by its name or type.

    For given pairs: the columns of the two texts and of hard negatives, separated by commas.
    """
    language: str | None = None
    """Language code for the sentence splitter. If it is None, the language stated in a file is used, else English."""
    weight: float = 1.0
    """Mean occurrences of a document per epoch.

    The fractional part is the probability of one more occurrence. A hash of the document and the epoch decides whether
    the document gets this occurrence.
    """


def parse(spec: str) -> Source:
    """Parse "builtin" or LOCATION[::KEY=VALUE]….

    LOCATION must already be absolute. Raises ConfigError for an invalid specification; the message lists the valid keys
    or formats.
    """
    location, *options = spec.split("::")
    if not location:
        raise ConfigError(f"corpus {spec!r} names no file, folder or URL")
    values = _parse_options(spec, options)
    format = values.get("format", BUILTIN if location == BUILTIN else None)
    if format is not None and format not in FORMATS:
        raise ConfigError(f"corpus {spec}: format ({format}) must be one of {', '.join(FORMATS)}")
    if location == BUILTIN and format != BUILTIN:
        raise ConfigError(
            f"corpus {spec}: format ({format}) cannot be set for the built-in corpus: leave format out; "
            f"for a folder of this name, write ./{BUILTIN}"
        )
    if values.get("column") and format is not None and not FORMATS[format].columns:
        tables = ", ".join(name for name, row in FORMATS.items() if row.columns)
        raise ConfigError(
            f"corpus {spec}: column ({values['column']}) is for the formats {tables}, but format is {format}: "
            "leave column or format out"
        )
    if format == PAIRS and values.get("column") and len(values["column"].split(",")) < 2:
        raise ConfigError(
            f"corpus {spec}: column ({values['column']}) must name at least two columns of pairs, as in "
            "PATH::format=pairs::column=QUESTION,PARAGRAPH,NEGATIVE"
        )
    if not is_language_code(values.get("language", "en")):
        raise ConfigError(
            f"corpus {spec}: language ({values['language']}) is not a language code: "
            "give an ISO 639 code, as in PATH::language=de"
        )
    return Source(
        spec=spec,
        location=location,
        format=format,
        column=values.get("column"),
        language=values.get("language"),
        weight=_weight(spec, values.get("weight", "1")),
    )


def _weight(spec: str, value: str) -> float:
    """Parse a weight. Raises ConfigError if it is not a number above 0."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ConfigError(f"corpus {spec}: weight ({value}) must be a number above 0, as in PATH::weight=0.5")
    return number


def _parse_options(spec: str, options: list[str]) -> dict[str, str]:
    """Parse the options after the location. Raises ConfigError for unknown and duplicate keys and missing values."""
    values: dict[str, str] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in KEYS:
            raise ConfigError(f"corpus {spec}: key ({key}) must be one of {', '.join(KEYS)}, as in PATH::format=text")
        if not value:
            raise ConfigError(f"corpus {spec}: {key} needs a value, as in PATH::{key}=VALUE")
        if key in values:
            raise ConfigError(f"corpus {spec}: {key} is given twice ({values[key]} and {value}): give one value")
        values[key] = value
    return values
