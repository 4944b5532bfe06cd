"""Sources -> the files to read, their names and what tells that one has changed."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

import requests
from pyarrow import fs

from pipeline import storage
from pipeline.corpus import builtin
from pipeline.corpus.opening import WEB, WEB_TIMEOUT
from pipeline.corpus.sources import BUILTIN, Source
from pipeline.errors import ConfigError, DataError

MAGIC = re.compile(r"[*?\[]")
QUERY = re.compile(r"\?\w+=.*$")
HIDDEN = re.compile(r"(^|/)\.")
HEADERS = {"Accept-Encoding": "identity"}


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file to read.

    `name` is its path below its source, so that ids are the same on every machine. `bytes` is -1 where it is not known.
    `stamp` is its time of change in nanoseconds, or a web server's tag or date.
    """

    location: str
    name: str
    source: str
    format: str | None
    bytes: int
    stamp: str


def fingerprint(source: Source, files: Sequence[InputFile]) -> dict[str, list[int | str]]:
    """What tells that a source has changed: {file: [bytes, stamp]}, of the built-in corpus {distribution: [version]}."""
    if source.location == BUILTIN:
        return {f"{BUILTIN}:{name}": [found.version] for name, found in builtin.distributions().items()}
    return {file.location: [file.bytes, file.stamp] for file in files}


def list_files(source: Source) -> list[InputFile]:
    """The files of a source, sorted by name.

    Raises ConfigError where there are none and DataError where the location cannot be read.
    """
    if source.location == BUILTIN:
        return builtin_files(source)
    if source.location.startswith(WEB):
        return [web_file(source)]
    system, path = storage.filesystem(source.location)
    found = sorted(stored_files(source, system, path), key=lambda pair: pair[0])
    return [stored_file(source, name, info) for name, info in found]


def stored_file(source: Source, name: str, info: fs.FileInfo) -> InputFile:
    """The input file of a file that pyarrow knows."""
    location = location_of(source.location, info.path)
    return InputFile(location=location, name=name, source=source.spec, format=source.format, bytes=info.size, stamp=str(info.mtime_ns))


def location_of(base: str, path: str) -> str:
    """The location of a path in the file system of the location `base`, with its login, host and options."""
    if not storage.is_url(base):
        return path
    options = QUERY.search(base)
    parts = urlsplit(base)
    login, at, _ = parts.netloc.rpartition("@")
    host = parts.netloc if path.startswith("/") else login + at  # of an object store, the bucket is part of the path
    return f"{parts.scheme}://{host}{quote(path)}{options[0] if options else ''}"


def stored_files(source: Source, system: fs.FileSystem, path: str) -> list[tuple[str, fs.FileInfo]]:
    """(path below the source, file) of a file, of all files of a folder, or of those that match a glob."""
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.File:
            return [(info.base_name, info)]
        if info.type == fs.FileType.Directory:
            found, nothing = below(system, path, "**"), "no files in this folder"
        elif magic := MAGIC.search(path):
            root = path[: path.rfind("/", 0, magic.start())]
            found, nothing = below(system, root, path[len(root) + 1 :]), "no file matches this pattern"
        else:
            found, nothing = [], f"no such file or folder; it must be {BUILTIN}, a path, a pattern or a URL"
    except OSError as error:
        raise DataError(f"corpus {source.spec} cannot be read: {storage.first_line(error)}") from error
    if not found:
        raise ConfigError(f"corpus {source.spec}: {nothing}")
    return found


def below(system: fs.FileSystem, root: str, pattern: str) -> list[tuple[str, fs.FileInfo]]:
    """The files below a folder whose path, or a folder above them, matches a pattern; hidden ones are left out."""
    wanted = glob_expression(pattern)
    entries = system.get_file_info(fs.FileSelector(root or "/", recursive=True, allow_not_found=True))
    named = [(entry.path[len(root) + 1 :], entry) for entry in entries if entry.type == fs.FileType.File]
    return [(name, entry) for name, entry in named if not HIDDEN.search(name) and wanted.match(name + "/")]


def glob_expression(pattern: str) -> re.Pattern[str]:
    """A glob as an expression for paths with a "/" behind: * and ? stay within one name, ** is any number of folders."""
    return re.compile("".join("(?:[^/]+/)*" if part == "**" else glob_name(part) + "/" for part in pattern.split("/")))


def glob_name(pattern: str) -> str:
    """The glob of one file's or folder's name as an expression."""

    def expression(token: re.Match[str]) -> str:
        if token[0].startswith("[") and len(token[0]) > 1:
            return "[" + re.sub("^!", "^", token[0][1:-1]).replace("\\", "\\\\") + "]"
        return {"*": "[^/]*", "?": "[^/]"}.get(token[0]) or re.escape(token[0])

    return re.sub(r"\[!?[^\]]+\]|.", expression, pattern)


def web_file(source: Source) -> InputFile:
    """The one file of a web URL, as its server describes it. Raises DataError where it cannot be had."""
    try:
        answer = ask(requests.head, source.location)
        if answer.status_code in (403, 405, 501):  # servers that know no HEAD
            answer = ask(requests.get, source.location)
        answer.raise_for_status()
    except requests.RequestException as error:
        raise DataError(f"corpus {source.spec} cannot be read: {storage.first_line(error)}") from error
    about = answer.headers
    return InputFile(
        location=source.location,
        name=urlsplit(source.location).path.rsplit("/", 1)[-1] or "index",
        source=source.spec,
        format=source.format,
        bytes=int(about.get("Content-Length", -1)),
        stamp=about.get("ETag") or about.get("Last-Modified") or "",
    )


def ask(method: Callable[..., requests.Response], url: str) -> requests.Response:
    """A server's answer without its body."""
    with method(url, allow_redirects=True, timeout=WEB_TIMEOUT, headers=HEADERS, stream=True) as answer:
        return answer


def builtin_files(source: Source) -> list[InputFile]:
    """The Python files of the built-in corpus; each distribution's version stamps its files."""
    found: dict[str, InputFile] = {}
    for distribution in builtin.distributions().values():
        root, version = str(distribution.locate_file("")).rstrip("/"), distribution.version
        sizes = {str(file): file.size for file in distribution.files or []}
        for name in sorted(name for name in sizes if name.endswith(".py") and not name.startswith("..")):
            found[name] = InputFile(
                location=f"{root}/{name}",
                name=name,
                source=source.spec,
                format=source.format,
                bytes=-1 if sizes[name] is None else sizes[name],
                stamp=version,
            )
    return list(found.values())


def distinct(files: Sequence[InputFile]) -> list[InputFile]:
    """The files with distinct names: those of the same name in several sources get more of their paths in front.

    Raises ConfigError where two sources hold the same file.
    """
    by_name: dict[str, list[InputFile]] = {}
    for file in files:
        by_name.setdefault(file.name, []).append(file)
    return [file for same in by_name.values() for file in (same if len(same) == 1 else renamed(same))]


def renamed(files: list[InputFile]) -> list[InputFile]:
    """Files of one name, each named by the shortest ends of their locations that tell them apart."""
    by_location: dict[str, InputFile] = {}
    for file in files:
        if other := by_location.get(file.location):
            raise ConfigError(f"corpus {other.source} and corpus {file.source} both hold {file.location}: name it once")
        by_location[file.location] = file
    parts = {location: location.split("/") for location in by_location}
    for length in range(1, 1 + max(map(len, parts.values()))):
        ends = {location: "/".join(part[-length:]) for location, part in parts.items()}
        if len(set(ends.values())) == len(ends):
            break
    return [replace(file, name=ends[location]) for location, file in by_location.items()]
