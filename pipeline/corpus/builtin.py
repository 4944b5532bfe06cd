"""The built-in corpus: docstrings of the installed packages that this project depends on."""

import dis
import importlib.metadata
import inspect
import re
import sys
import tomllib
import warnings
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from types import CodeType

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipeline.errors import ConfigError
from pipeline.text.documents import Dropped, Record, dropped

DISTRIBUTION = "bertstream"
LEAST_CHARACTERS = 200
"""Docstrings of at most this length are skipped, because they say little more than a name."""
WRAPPED_CHARACTERS = 60
"""A line counts as wrapped if the line, a space and the first word of the next line have at least this width together.

If they are shorter, the author ended the line on purpose, so the next line is not joined to it. PEP 8 wraps at 72; this
value is lower, because some docstrings are wrapped earlier.
"""

ITEM = re.compile(r"([-*+•|#]|\.\.|\d+[.)]|\[\d+\]|:[\w .*]+:)(\s|$)|[@$]\w")
"""Start of a line that begins a new paragraph: a list item, heading, reference or field."""
DOCTEST = re.compile(r">>>|\.\.\. |In \[\d")
DIRECTIVE = re.compile(r"\.\.\s+[\w-]+::")


def _own_requirements() -> list[str]:
    """Return this project's requirements from its installed metadata, or from pyproject.toml next to the package."""
    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        project = Path(__file__).parents[2] / "pyproject.toml"
    if not project.is_file():
        raise ConfigError(
            f"corpus builtin needs the installed package {DISTRIBUTION}: pip install it, or name another corpus"
        )
    return tomllib.loads(project.read_text("utf-8"))["project"]["dependencies"]


def distributions() -> dict[str, Distribution]:
    """Return {normalised name: distribution} of this project's installed requirements, sorted by name.

    Requirements of requirements and of requested extras are included. Requirements with a false environment marker are
    left out. Other installed packages do not change the result. Raises ConfigError if neither the project's metadata
    nor pyproject.toml exists.
    """
    installed: dict[str, Distribution] = {}
    followed: dict[str, set[str]] = {}
    waiting = [(line, frozenset({""})) for line in _own_requirements()]
    while waiting:
        line, requested = waiting.pop()
        requirement = Requirement(line)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in requested):
            continue
        name = canonicalize_name(requirement.name)
        extras = frozenset({"", *requirement.extras}) - followed.setdefault(name, set())
        try:
            installed[name] = installed.get(name) or importlib.metadata.distribution(name)
        except PackageNotFoundError:
            continue
        followed[name] |= extras
        waiting += [(line, extras) for line in installed[name].requires or []] if extras else []
    return dict(sorted(installed.items()))


def read_docstrings(blocks: Iterator[bytes], name: str) -> Iterator[Record | Dropped]:
    """Yield one record for each docstring of more than 200 characters in a Python file; the file is not executed.

    A file that does not compile gives one Dropped.
    """
    source = b"".join(blocks)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield dropped(name, "does not compile", source[:200].decode("utf-8", "replace"))
        return
    module = re.sub(r"(/__init__)?\.pyi?$", "", name).replace("/", ".")
    for number, (qualified, text) in enumerate(_docstrings(code)):
        if len(text) > LEAST_CHARACTERS:
            title = module if qualified == "<module>" else f"{module}.{qualified}"
            yield Record(id=f"{name}:{number}", parent=name, title=title, paragraphs=unwrap(text))


def package_docstrings() -> Iterator[tuple[str, str]]:
    """Yield (name of the top-level package, text) for each docstring of the built-in corpus."""
    for distribution in distributions().values():
        for file in sorted(distribution.files or []):
            path = Path(str(distribution.locate_file(file)))
            if file.suffix == ".py" and len(file.parts) > 1 and file.parts[0] != ".." and path.is_file():
                for record in read_docstrings(iter([path.read_bytes()]), str(file)):
                    if isinstance(record, Record):
                        yield file.parts[0], "\n".join(record.paragraphs)


def _docstrings(code: CodeType) -> Iterator[tuple[str, str]]:
    """Yield (qualified name, text without indentation) for each docstring in a code object, in file order."""
    if (text := _docstring(code)) is not None:
        yield code.co_qualname, inspect.cleandoc(text)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _docstrings(constant)


def _docstring(code: CodeType) -> str | None:
    """Return the docstring of the function, class or module that a code object was compiled from, or None."""
    if code.co_flags & inspect.CO_OPTIMIZED:
        return _function_docstring(code)
    if "__doc__" not in code.co_names:
        return None
    # The bytecode of a class or module begins by storing its docstring: LOAD_CONST text, STORE_NAME __doc__.
    name_index = code.co_names.index("__doc__")
    bytecode = code.co_code[:64]
    for offset in range(2, len(bytecode), 2):
        if (
            bytecode[offset] == dis.opmap["STORE_NAME"]
            and bytecode[offset + 1] == name_index
            and bytecode[offset - 2] == dis.opmap["LOAD_CONST"]
        ):
            value = code.co_consts[bytecode[offset - 1]]
            return value if isinstance(value, str) else None
    return None


def _function_docstring(code: CodeType) -> str | None:
    """Return the docstring of a function, or None; lambdas and comprehensions have none.

    The docstring is the first constant. From Python 3.14 on, the flag CO_HAS_DOCSTRING must also be set.
    """
    has_flag = sys.version_info < (3, 14) or code.co_flags & inspect.CO_HAS_DOCSTRING
    first = code.co_consts[0] if code.co_consts else None
    return first if has_flag and not code.co_name.startswith("<") and isinstance(first, str) else None


def unwrap(text: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring. Join wrapped lines; do not join list items, examples and short lines."""
    paragraph, last, example = "", "", False
    for line in text.split("\n"):
        if not line.strip():
            example = False
        example = example or DOCTEST.match(line.strip()) is not None
        if paragraph and not example and _continues(last, line):
            paragraph += " " + line.strip()
        else:
            yield from _keep_words(paragraph)
            paragraph = line.strip()
        last = line
    yield from _keep_words(paragraph)


def _continues(last: str, line: str) -> bool:
    """Return whether `line` continues `last`, the line before it.

    This is true if `last` is as long as a wrapped line, `line` starts no list item, and `line` is not indented less.
    """
    stripped = line.strip()
    if not stripped or not last.strip() or ITEM.match(stripped) or _indent(line) < _indent(last):
        return False
    return len(last) + 1 + len(stripped.split()[0]) >= WRAPPED_CHARACTERS and not last.rstrip().endswith("::")


def _indent(line: str) -> int:
    """Return the width of the white space before a line."""
    return len(line) - len(line.lstrip())


def _keep_words(paragraph: str) -> Iterator[str]:
    """Yield the paragraph if it has a letter or digit and is more than the name of a directive such as ".. note::"."""
    if any(map(str.isalnum, paragraph)) and not DIRECTIVE.fullmatch(paragraph):
        yield paragraph
