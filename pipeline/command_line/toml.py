"""Write settings as TOML and read them back: one table per group, with `kind` for settings of several kinds.

A setting that is None is left out, because TOML has no null.
"""

import dataclasses
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

from pipeline.command_line.options import did_you_mean, flag_of, kinds_of, nearest, options_of, wanted
from pipeline.command_line.tree import NONE, build, fitted
from pipeline.errors import ConfigError, shown


def to_toml(settings: Any, base: Any) -> str:
    """Return the settings as TOML. A setting that is None is left out if it is also None in `base`; otherwise it is
    written as NONE.
    """
    return "\n".join(_lines_of(settings, base)).strip() + "\n"


def _lines_of(settings: Any, base: Any, path: str = "", kind: str = "") -> Iterator[str]:
    """Yield the lines of a table and its subtables."""
    tables, hints = [], get_type_hints(type(settings))
    values = [f"kind = {toml_value(kind)}"] if kind else []
    for field in dataclasses.fields(settings):
        value, hint = getattr(settings, field.name), hints[field.name]
        known = getattr(base, field.name) if type(base) is type(settings) else field.default
        if kinds := kinds_of(hint):
            own_kind = flag_of(type(value)) if len(kinds) > 1 else ""
            tables.append((value, known, f"{path}.{field.name}".lstrip("."), own_kind))
        elif value is not None or known is not None:
            values.append(f"{field.name} = {toml_value(NONE if value is None else value)}")
    if values:
        yield from (["", f"[{path}]"] if path else [])
        yield from values
    for table in tables:
        yield from _lines_of(*table)


def toml_value(value: Any) -> str:
    """Return a value in TOML syntax."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """A file of settings: its text, and the values parsed from the text."""

    name: str
    text: str
    values: dict[str, Any]
    settings: type

    def error(self, path: str, problem: str) -> ConfigError:
        """Return a ConfigError about a setting, with the line number of the setting.

        To find the line, parse the first line of the file, the first two lines, and so on, until the setting appears.
        """
        lines = self.text.split("\n")
        line = next((n for n in range(1, len(lines) + 1) if _has(_parsed("\n".join(lines[:n])), path)), len(lines))
        return ConfigError(f"config ({self.name}), line {line}: {path} {problem}")

    def unknown(self, path: str, kind: str) -> str:
        """Return the problem, for `error`, of a name that a table of this kind does not have."""
        options = list(options_of(self.settings))
        kinds = [option.kind for option in options if option.path == path]
        if kinds:
            return f"belongs to kind {' or '.join(kinds)}, but {path.rpartition('.')[0]}.kind is {kind}"
        groups = [option.path.rpartition(".")[0] for option in options]
        names = dict.fromkeys(filter(None, [*(option.path for option in options), *groups]))
        return f"does not exist{did_you_mean(nearest(path, names))}"


def read_config(name: str, settings: type) -> ConfigFile:
    """Read a settings file. Raises ConfigError if the file cannot be read or is not TOML."""
    try:
        text = Path(name).read_text("utf-8")
        return ConfigFile(name=name, text=text, values=tomllib.loads(text), settings=settings)
    except OSError as error:
        problem = f"cannot be read ({error.strerror}): name a TOML file, as printed by --show"
        raise ConfigError(f"config ({name}) {problem}") from error
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 (byte {error.start}): name a TOML file, as printed by --show"
        raise ConfigError(f"config ({name}) {problem}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config ({name}) is not valid TOML: {error}") from error


def settings_of(file: ConfigFile, base: Any) -> Any:
    """Return a file's settings; settings that the file leaves out are as in `base`.

    The settings are not checked, because options may still replace them. Raises ConfigError, with the line, for an
    unknown name or a value of another type.
    """
    given, kinds = dict[str, Any](), dict[str, type]()
    _collect(file, file.values, type(base), base, "", given, kinds)

    def convert(path: str, hint: Any, value: Any) -> Any:
        try:
            return fitted(hint, value)
        except ValueError as error:
            raise file.error(path, f"({_value_shown(value)}) must be {wanted(hint, value)}") from error

    return build(type(base), base, kinds, given, convert, checked=False)


def _collect(
    file: ConfigFile,
    table: dict[str, Any],
    kind: type,
    base: Any,
    path: str,
    given: dict[str, Any],
    kinds: dict[str, type],
) -> None:
    """Add a table's values to `given` and its kinds to `kinds`, by dotted name.

    `base` has the kinds of tables that name none; `path` is the table's dotted name and a dot, or empty for the file.
    """
    hints = get_type_hints(kind)
    for name, value in table.items():
        if name not in hints:
            raise file.error(f"{path}{name}", file.unknown(f"{path}{name}", flag_of(kind)))
        if known := kinds_of(hints[name]):
            own = getattr(base, name, None)
            chosen, rest = _kind_of(file, value, known, own, f"{path}{name}")
            kinds[f"{path}{name}"] = chosen
            _collect(file, rest, chosen, own, f"{path}{name}.", given, kinds)
        else:
            given[f"{path}{name}"] = value


def _kind_of(file: ConfigFile, table: Any, kinds: list[type], own: Any, path: str) -> tuple[type, dict[str, Any]]:
    """Return the class of a subtable and its other values. A subtable that names no kind has the class of `own`."""
    named = {flag_of(kind): kind for kind in kinds}
    if not isinstance(table, dict):
        kind = f' with kind = "{next(iter(named))}" or another' if len(kinds) > 1 else ""
        raise file.error(path, f"({_value_shown(table)}) must be a table: [{path}]{kind}")
    if len(kinds) == 1:
        return kinds[0], table
    table = dict(table)
    name = table.pop("kind", flag_of(type(own) if type(own) in kinds else kinds[0]))
    if not isinstance(name, str) or name not in named:
        near = did_you_mean(nearest(str(name), named))
        raise file.error(f"{path}.kind", f"({_value_shown(name)}) must be one of {', '.join(named)}{near}")
    return named[name], table


def _value_shown(value: Any) -> str:
    """Return a value as shown in a message; a text is put in quotation marks."""
    return shown(value) if isinstance(value, str) else str(value)


def _parsed(text: str) -> dict[str, Any]:
    """Parse TOML; return {} for invalid TOML, such as a text that ends inside a value."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def _has(values: Any, path: str) -> bool:
    """Return whether nested values contain a dotted name."""
    for name in path.split("."):
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True
