"""List the files at a location: a file, a folder, a glob or a URL; each file has a name, a size and a stamp."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from pyarrow import fs

from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.files.locations import is_url
from pipeline.files.web import WEB, describe

MAGIC = re.compile(r"[*?\[]")
QUERY = re.compile(r"\?\w+=.*$")
HIDDEN = re.compile(r"(^|/)\.")


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """One file: `name` is its path relative to the location that was listed, `bytes` its size, -1 if unknown."""

    location: str
    name: str
    bytes: int
    stamp: str
    """Modification time in nanoseconds, or a web server's tag or date. The stamp changes when the file changes."""


def files_at(location: str, given: str, choices: str) -> list[StoredFile]:
    """Return the files at a location, sorted by name; hidden files in folders are left out.

    Raises ConfigError if no file is found, and DataError if the location cannot be read. `given` begins both messages:
    the user's setting and its value; `choices` says what to give instead of a location that does not exist.
    """
    if location.startswith(WEB):
        return [_web_file(location, given)]
    system, path = storage.filesystem(location)
    stored = sorted(_stored_files(given, choices, system, path), key=lambda pair: pair[0])
    return [
        StoredFile(location=location_of(location, info.path), name=name, bytes=info.size, stamp=str(info.mtime_ns))
        for name, info in stored
    ]


def location_of(base: str, path: str) -> str:
    """Return the location of a path in the file system of `base`; the host, login and options of `base` are kept."""
    if not is_url(base):
        return path
    options = QUERY.search(base)
    parts = urlsplit(base)
    name, at, _ = parts.netloc.rpartition("@")
    host = parts.netloc if path.startswith("/") else name + at  # for an object store, the bucket is part of the path
    return f"{parts.scheme}://{host}{quote(path)}{options[0] if options else ''}"


def _stored_files(given: str, choices: str, system: fs.FileSystem, path: str) -> list[tuple[str, fs.FileInfo]]:
    """Return (path relative to the location, file info) of each file; `path` is a file, a folder or a glob."""
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
            files, nothing = [], f"no such file or folder; give {choices}"
    except Exception as error:  # web clients below fsspec raise their own types
        raise DataError(f"{given} cannot be read: {storage.first_line(error)}") from error
    if not files:
        raise ConfigError(f"{given}: {nothing}")
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
    roots = [root]
    for start in roots:  # links are added on the way, so that a folder is visited before all links to it
        for folder, folders, names in os.walk(start, onerror=_refuse_unreadable):
            real = os.path.realpath(folder)
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            paths = [f"{folder.rstrip('/')}/{name}" for name in folders]
            roots += filter(os.path.islink, paths)
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
            return "[" + re.sub("^!", "^", token[0][1:-1]).replace("\\", "\\\\").replace("[", "\\[") + "]"
        return {"*": "[^/]*", "?": "[^/]"}.get(token[0]) or re.escape(token[0])

    return re.sub(r"\[!?[^\]]+\]|.", expression, pattern)


def _web_file(location: str, given: str) -> StoredFile:
    """Return the file of a web URL, with size and stamp from the server. Raises DataError if unavailable."""
    try:
        about = describe(location)
    except OSError as error:
        raise DataError(f"{given} cannot be read: {storage.first_line(error)}") from error
    return StoredFile(
        location=location,
        name=urlsplit(location).path.rsplit("/", 1)[-1] or "index",
        bytes=int(about.get("Content-Length", -1)),
        stamp=about.get("ETag") or about.get("Last-Modified") or "",
    )
