"""List the files of sources, each with a name and a stamp that changes when the file changes."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

from pyarrow import fs

from pipeline.config.locations import BUILTIN
from pipeline.corpus import builtin
from pipeline.corpus.sources import Source
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.files.locations import is_url
from pipeline.files.web import WEB, describe
from pipeline.wikipedia.dump import is_dump
from pipeline.wikipedia.dump_ranges import byte_ranges, is_bz2, read_dump_head

MAGIC = re.compile(r"[*?\[]")
QUERY = re.compile(r"\?\w+=.*$")
HIDDEN = re.compile(r"(^|/)\.")
DUMP = "wikipedia-dump"
RANGE_BYTES = 8_000_000
"""Stored bytes per range of a bz2-compressed dump. Reading one range takes about a minute."""


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file to read, or a range of a file.

    `source` is the location of the source that contains the file. `name` is the file's path relative to `source`, so
    that document ids are the same on every machine. `bytes` is the stored size to read, or -1 if it is unknown.
    `stamp` is the modification time in nanoseconds, a web server's ETag or date, or the version of a distribution.
    `start` and `stop` are the range to read, in stored bytes. If they are None, the whole file is read.
    """

    location: str
    name: str
    source: str
    format: str | None
    bytes: int
    stamp: str
    column: str | None = None
    language: str | None = None
    start: int | None = None
    stop: int | None = None


def fingerprint(source: Source, files: Sequence[InputFile]) -> dict[str, list[int | str]]:
    """Return values that change when a source changes.

    The values are {file: [bytes, stamp]}; for the built-in source, they are {distribution: [version]}.
    """
    if source.location == BUILTIN:
        return {f"{BUILTIN}:{name}": [distribution.version] for name, distribution in builtin.distributions().items()}
    return {file.location: [file.bytes, file.stamp] for file in files}


def list_files(source: Source, setting: str = "corpus") -> list[InputFile]:
    """Return the files of a source, sorted by name.

    Raises ConfigError if the source has no files, and DataError if its location cannot be read. Both messages begin
    with `setting`, the name of the user's setting.
    """
    if source.location == BUILTIN:
        return _builtin_files(source)
    if source.location.startswith(WEB):
        return [_web_file(source, setting)]
    system, path = storage.filesystem(source.location)
    stored = sorted(_stored_files(source, setting, system, path), key=lambda pair: pair[0])
    return [_stored_file(source, name, info) for name, info in stored]


def _stored_file(source: Source, name: str, info: fs.FileInfo) -> InputFile:
    """Return the input file that a pyarrow file info describes."""
    location = location_of(source.location, info.path)
    return _input_file(source, location=location, name=name, bytes=info.size, stamp=str(info.mtime_ns))


def _input_file(source: Source, *, location: str, name: str, bytes: int, stamp: str) -> InputFile:
    """Return an input file with the options of its source."""
    return InputFile(
        location=location,
        name=name,
        source=source.location,
        format=source.format,
        bytes=bytes,
        stamp=stamp,
        column=source.column,
        language=source.language,
    )


def location_of(base: str, path: str) -> str:
    """Return the location of a path in the file system of `base`; the host, login and options of `base` are kept."""
    if not is_url(base):
        return path
    options = QUERY.search(base)
    parts = urlsplit(base)
    name, at, _ = parts.netloc.rpartition("@")
    host = parts.netloc if path.startswith("/") else name + at  # for an object store, the bucket is part of the path
    return f"{parts.scheme}://{host}{quote(path)}{options[0] if options else ''}"


def _stored_files(source: Source, setting: str, system: fs.FileSystem, path: str) -> list[tuple[str, fs.FileInfo]]:
    """Return (path relative to the source, file info) of each file of a source: a file, a folder or a glob."""
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.File:
            return [(info.base_name, info)]
        if info.type == fs.FileType.Directory:
            files, nothing = _files_below(system, path, "**"), "no files in this folder"
        elif magic := MAGIC.search(path):
            root = path[: path.rfind("/", 0, magic.start())]
            files, nothing = _files_below(system, root, path[len(root) + 1 :]), "no file matches this pattern"
        else:
            files, nothing = [], f"no such file or folder; give {BUILTIN}, a path, a pattern or a URL"
    except Exception as error:  # web clients below fsspec raise their own types
        raise DataError(f"{setting} {source.spec} cannot be read: {storage.first_line(error)}") from error
    if not files:
        raise ConfigError(f"{setting} {source.spec}: {nothing}")
    return files


def _files_below(system: fs.FileSystem, root: str, pattern: str) -> list[tuple[str, fs.FileInfo]]:
    """Return (path below `root`, file info) of each file that matches a pattern or lies in a folder that matches.

    Hidden files, and files in hidden folders, are left out.
    """
    wanted = glob_expression(pattern)
    if isinstance(system, fs.LocalFileSystem):
        entries = system.get_file_info(list(_walk(root or "/")))
    else:
        entries = system.get_file_info(fs.FileSelector(root or "/", recursive=True, allow_not_found=True))
    named = [(entry.path[len(root) + 1 :], entry) for entry in entries if entry.type == fs.FileType.File]
    return [(name, entry) for name, entry in named if not HIDDEN.search(name) and wanted.match(name + "/")]


def _walk(root: str) -> Iterator[str]:
    """Yield the paths of files below a local folder; links are followed, but no folder is read twice."""
    seen: set[str] = set()
    for folder, folders, names in os.walk(root, followlinks=True, onerror=_refuse_unreadable):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        folders.sort(key=lambda name: (os.path.islink(f"{folder}/{name}"), name))  # visit a folder before links to it
        yield from (f"{folder.rstrip('/')}/{name}" for name in names)


def _refuse_unreadable(error: OSError) -> None:
    """Raise `error`, which occurred while listing a folder, unless the folder does not exist."""
    if not isinstance(error, FileNotFoundError):
        raise error


def glob_expression(pattern: str) -> re.Pattern[str]:
    """Compile a glob for paths that end in "/": * and ? match within a name, ** matches any number of folders."""
    return re.compile("".join("(?:[^/]+/)*" if part == "**" else _glob_name(part) + "/" for part in pattern.split("/")))


def _glob_name(pattern: str) -> str:
    """Return the regular expression for the glob of one file or folder name."""

    def expression(token: re.Match[str]) -> str:
        if token[0].startswith("[") and len(token[0]) > 1:
            return "[" + re.sub("^!", "^", token[0][1:-1]).replace("\\", "\\\\") + "]"
        return {"*": "[^/]*", "?": "[^/]"}.get(token[0]) or re.escape(token[0])

    return re.sub(r"\[!?[^\]]+\]|.", expression, pattern)


def _web_file(source: Source, setting: str) -> InputFile:
    """Return the input file of a web URL, with size and stamp from the server. Raises DataError if unavailable."""
    try:
        about = describe(source.location)
    except OSError as error:
        raise DataError(f"{setting} {source.spec} cannot be read: {storage.first_line(error)}") from error
    return _input_file(
        source,
        location=source.location,
        name=urlsplit(source.location).path.rsplit("/", 1)[-1] or "index",
        bytes=int(about.get("Content-Length", -1)),
        stamp=about.get("ETag") or about.get("Last-Modified") or "",
    )


def _builtin_files(source: Source) -> list[InputFile]:
    """Return the Python files of the built-in corpus, stamped with their distribution's version."""
    inputs: dict[str, InputFile] = {}
    for distribution in builtin.distributions().values():
        root, version = str(distribution.locate_file("")).rstrip("/"), distribution.version
        sizes = {str(file): file.size for file in distribution.files or []}
        for name in sorted(name for name in sizes if name.endswith(".py") and not name.startswith("..")):
            size = sizes[name]
            inputs[name] = _input_file(
                source, location=f"{root}/{name}", name=name, bytes=-1 if size is None else size, stamp=version
            )
    return list(inputs.values())


def split_into_ranges(file: InputFile) -> tuple[list[InputFile], bytes]:
    """Split a large bz2-compressed dump into ranges; return the ranges, and the bytes before the dump's first page.

    The ranges are returned as input files. Any other file is returned whole, with b"". Raises DataError if a dump's
    index does not match the dump.
    """
    text = _dump_head(file)
    if text is None:
        return [file], b""
    ranges = byte_ranges(file.location, file.bytes, RANGE_BYTES)
    return [replace(file, format=DUMP, start=start, stop=stop, bytes=stop - start) for start, stop in ranges], text


def _dump_head(file: InputFile) -> bytes | None:
    """Return the bytes before the first page of a dump that can be read in ranges; None for any other file."""
    if file.bytes <= RANGE_BYTES or not file.name.lower().endswith(".bz2") or file.format not in (None, DUMP):
        return None
    try:
        text = read_dump_head(file.location) if is_bz2(file.location, file.bytes) else None
    except DataError:  # a server without Range, or an error that is raised again when the whole file is read
        return None
    return text if text is not None and (file.format == DUMP or is_dump(text)) else None


def with_distinct_names(files: Sequence[InputFile]) -> list[InputFile]:
    """Return the files with distinct names. If an earlier file has the same name, the name gets more of the path.

    Therefore, adding a source at the end does not change the names of other files. Raises ConfigError if two sources
    contain the same file.
    """
    sources: dict[str, str] = {}
    named: dict[str, InputFile] = {}
    for file in files:
        if sources.get(file.location) == file.source:  # two built-in distributions may list the same file
            continue
        if file.location in sources:
            raise ConfigError(
                f"corpus {sources[file.location]} and corpus {file.source} both hold {file.location}: "
                "give sources that have no file in common"
            )
        sources[file.location] = file.source
        path = file.location.split("/")
        lengths = range(1 + file.name.count("/"), len(path) + 1)
        name = next(
            (tail for tail in (file.name, *("/".join(path[-length:]) for length in lengths)) if tail not in named),
            file.location,
        )
        named[name] = replace(file, name=name)
    return list(named.values())
