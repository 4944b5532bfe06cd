"""Check values of settings; the error messages have the setting's dotted name and value."""

from collections.abc import Iterable

from pipeline.errors import ConfigError, shown


def require(condition: bool, message: str) -> None:
    """Raise ConfigError(message) unless `condition` holds."""
    if not condition:
        raise ConfigError(message)


def require_share(name: str, value: float) -> None:
    """Raise ConfigError unless `value` lies in [0, 1]."""
    require(0.0 <= value <= 1.0, f"{name} ({value}) must lie between 0 and 1")


def require_at_least(name: str, value: float, least: float) -> None:
    """Raise ConfigError unless `value` is `least` or more."""
    require(value >= least, f"{name} ({value}) must be at least {least}")


def require_above_zero(name: str, value: float) -> None:
    """Raise ConfigError unless `value` is above 0; NaN is not above 0."""
    require(value > 0, f"{name} ({value}) must be above 0")


def require_utf8(name: str, text: str) -> None:
    """Raise ConfigError for a text that cannot be encoded, which an argument in another encoding than UTF-8 becomes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name} ({shown(text)}) is not UTF-8: give a text in UTF-8") from None


def require_rerank(rerank: str | None, **of_rerank: object) -> None:
    """Raise ConfigError for a setting of reranking, given by name, that is set without a cross-encoder."""
    for name, value in of_rerank.items():
        require(
            rerank is not None or value is None,
            f"{name} ({value}) needs rerank, which is not given: name a cross-encoder with --rerank",
        )


def either(names: Iterable[str]) -> str:
    """Return names as a choice in words: "a, b or c"; "none" if there are no names."""
    *others, last = tuple(names) or ("none",)
    return f"{', '.join(others)} or {last}" if others else last
