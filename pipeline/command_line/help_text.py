"""Make the help of a command: the common options and kinds, the options of one kind, or all options."""

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from pipeline.command_line.arguments import Extra, kind_in, shown
from pipeline.command_line.options import Option, choices, default_kind, element_of, options_of, types_of

WIDEST = 110
"""Maximum columns of a help text."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """A command's description, from which its help is made."""

    prog: str
    """The command as the user types it, such as "jobs/pretrain.py [PRESET]"."""
    about: str
    """Purpose of the command, with examples."""
    settings: type
    common: tuple[str, ...] = ()
    """Dotted names of the settings that --help shows; empty: all names without a dot."""
    extra: tuple[Extra, ...] = ()
    """Options that are not settings."""
    positional: bool = False
    """Whether required settings are plain words instead of options, as in `export.py RUN`."""


def help_text(command: Described, arguments: Sequence[str], default: Any = None) -> str:
    """Return the help of a command. The shown defaults are the values in `default`, or the class's if it is None.

    The help lists:

    - every option, if `arguments` contain "all"
    - the options of the kinds in `arguments`, if there are words such as optimizer:lamb
    - the common options and all kinds, otherwise

    Raises ConfigError for an unknown kind.
    """
    known = choices(command.settings)
    options = list(options_of(command.settings, default))
    kinds = {path: default_kind(command.settings, default, path) for path in known}
    head = [f"usage: {command.prog} {_usage(command, options, known)}", command.about.strip()]
    if "all" in arguments:
        return "\n\n".join([*head, *_groups(command, options, known)])
    if named := [chosen for word in arguments if (chosen := kind_in(word, known))]:
        return "\n\n".join([head[0], *(_of_kind(options, path, kind, known[path][kind]) for path, kind in named)])
    wanted = command.common or tuple(option.path for option in options if "." not in option.path)
    of_default_kinds = [option for option in options if option.kind == kinds.get(option.choice, "")]
    common = [option for path in wanted for option in of_default_kinds if option.path == path]
    title = "options" if len(common) == len(options) else "common options; --help all lists every option"
    lines = [*_lines_of(common, command.positional), *_lines_of_extra(command)]
    return "\n\n".join([*head, _section(title, lines), *_list_of_kinds(known, kinds)])


def _usage(command: Described, options: Iterable[Option], known: dict[str, dict[str, type]]) -> str:
    """Return the words that follow the command in the usage line."""
    required = [option for option in options if option.required]
    words = [option.path.upper() if command.positional else f"{option.flag} {option.metavar}" for option in required]
    return " ".join([*words, "[OPTIONS]", *["[KINDS]"] * bool(known)])


def _list_of_kinds(known: dict[str, dict[str, type]], defaults: dict[str, str]) -> list[str]:
    """Return the section that lists the kinds of each setting; empty if no setting has several kinds."""
    if not known:
        return []
    lines = [
        _wrapped(f"  {shown(path)}: {', '.join(kinds)} (default: {defaults[path]})") for path, kinds in known.items()
    ]
    path, kinds = list(known.items())[-1]
    example = f"{shown(path)}:{list(kinds)[-1]}"
    return [_section(f"kinds, each chosen by a word such as {example}; `{example} --help` lists its options", lines)]


def _groups(command: Described, options: Sequence[Option], known: dict[str, dict[str, type]]) -> list[str]:
    """Return a section per group and kind, with every option."""
    names = dict.fromkeys(option.path.rpartition(".")[0] for option in options if not option.choice)
    sections = []
    for name in names:
        own = [option for option in options if not option.choice and option.path.rpartition(".")[0] == name]
        extra = [] if name else _lines_of_extra(command)
        sections.append(_section(f"{name} options".strip(), [*_lines_of(own, command.positional), *extra]))
    return sections + [
        _of_kind(options, path, name, kind) for path, kinds in known.items() for name, kind in kinds.items()
    ]


def _of_kind(options: Iterable[Option], path: str, name: str, kind: type) -> str:
    """Return the section of one kind: its description and its options."""
    own = [option for option in options if (option.choice, option.kind) == (path, name)]
    return _section(f"{shown(path)}:{name}", [_wrapped(f"  {' '.join(str(kind.__doc__).split())}"), *_lines_of(own)])


def _section(title: str, lines: Iterable[str]) -> str:
    """Join lines below their title."""
    return "\n".join([title, *lines])


def _lines_of(options: Iterable[Option], positional: bool = False) -> list[str]:
    """Return the help lines of options: form and description."""
    lines = []
    for option in options:
        name = option.path.upper() if positional and option.required else f"{option.flag} {option.metavar}"
        lines.append(f"  {f'{option.flag}, {option.off}' if option.boolean else name}")
        texts = [option.text] if option.text else []
        texts += [f"({default})"] if (default := _default_of(option)) else []
        lines.append(_wrapped(f"      {' '.join(texts)}"))
    return lines


def _lines_of_extra(command: Described) -> list[str]:
    """Return the help lines of options that are not settings."""
    lines = []
    for extra in command.extra:
        lines += [f"  --{extra.name} {extra.metavar}".rstrip(), _wrapped(f"      {extra.text}")]
    return [*lines, "  -h, --help [all]", _wrapped("      Print this help; all: with every option.")]


def _default_of(option: Option) -> str:
    """Return a setting's default for its help line, without the value if the description contains it."""
    if option.required:
        return "required"
    commas = " or divided by commas" * (option.many and element_of(option.hint) in (int, float))
    several = f"may be repeated{commas}, " if option.many else ""
    if option.default in (None, ()):
        described = "default: " in option.text.lower()
        return several.removesuffix(", ") if described else f"{several}default: none"
    value = ", ".join(map(str, option.default)) if option.many else option.default
    return f"{several}default: {value}{'; or None' if NoneType in types_of(option.hint) else ''}"


def _wrapped(line: str) -> str:
    """Wrap a line to the terminal's width.

    The following lines have the indent of the first line; if this indent is at most two spaces, four spaces are added.
    """
    indent = " " * (len(line) - len(line.lstrip()))
    further = indent if len(indent) > 2 else f"{indent}    "
    width = min(shutil.get_terminal_size((100, 24)).columns, WIDEST)
    return textwrap.fill(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
