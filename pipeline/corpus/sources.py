"""Source specifications, such as "builtin" or "books/*.txt.gz::format=text"."""

from dataclasses import dataclass

from pipeline import storage
from pipeline.corpus.formats import FORMATS
from pipeline.errors import ConfigError

BUILTIN = "builtin"
KEYS = ("format",)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where raw text comes from; format None: recognised file by file."""

    spec: str
    location: str
    format: str | None = None


def parse(spec: str) -> Source:
    """Parse "builtin" or PATH_OR_URL[::format=NAME]. Raises ConfigError that lists the keys and formats there are."""
    location, *options = spec.split("::")
    if not location:
        raise ConfigError(f"corpus {spec!r} names no file, folder or URL")
    format = parse_options(spec, options).get("format")
    if format is not None and format not in FORMATS:
        raise ConfigError(f"corpus {spec}: no format {format!r}; the formats are {', '.join(FORMATS)}")
    if location != BUILTIN:
        return Source(spec=spec, location=storage.absolute(location), format=format)
    if format not in (None, BUILTIN):
        raise ConfigError(f"corpus {spec}: the built-in corpus has no format {format}; a folder of that name is ./{BUILTIN}")
    return Source(spec=spec, location=BUILTIN, format=BUILTIN)


def parse_options(spec: str, options: list[str]) -> dict[str, str]:
    """What follows the location, as {key: value}. Raises ConfigError for an unknown key and for one that is given twice."""
    values: dict[str, str] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in KEYS:
            raise ConfigError(f"corpus {spec}: no key {key!r}; the keys are {', '.join(KEYS)}, as in PATH::format=text")
        if key in values:
            raise ConfigError(f"corpus {spec}: {key} is given twice ({values[key]} and {value})")
        values[key] = value
    return values
