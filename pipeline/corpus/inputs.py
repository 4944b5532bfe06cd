"""List the files of sources, each with a name and a stamp that changes when the file changes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.config.locations import BUILTIN
from pipeline.corpus import builtin
from pipeline.corpus.sources import Source
from pipeline.errors import ConfigError, DataError
from pipeline.files.listing import StoredFile, files_at
from pipeline.wikipedia.dump import is_dump
from pipeline.wikipedia.dump_ranges import byte_ranges, is_bz2, read_dump_head
from pipeline.wikipedia.multistream import index_beside

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
    """Return the files of a source, sorted by name. The index of a listed multistream dump is left out.

    Raises ConfigError if the source has no files, and DataError if its location cannot be read. Both messages begin
    with `setting`, the name of the user's setting.
    """
    if source.location == BUILTIN:
        return _builtin_files(source)
    files = files_at(source.location, f"{setting} {source.spec}", f"{BUILTIN}, a path, a pattern or a URL")
    indexes = {index_beside(file.location) for file in files}
    return [_input_file(source, file) for file in files if file.location not in indexes]


def _input_file(source: Source, file: StoredFile) -> InputFile:
    """Return an input file with the options of its source."""
    return InputFile(
        **vars(file), source=source.location, format=source.format, column=source.column, language=source.language
    )


def _builtin_files(source: Source) -> list[InputFile]:
    """Return the Python files of the built-in corpus, stamped with their distribution's version."""
    inputs: dict[str, InputFile] = {}
    for distribution in builtin.distributions().values():
        root, version = str(distribution.locate_file("")).rstrip("/"), distribution.version
        sizes = {str(file): file.size for file in distribution.files or []}
        for name in sorted(name for name in sizes if name.endswith(".py") and not name.startswith("..")):
            size = sizes[name]
            stored = StoredFile(location=f"{root}/{name}", name=name, bytes=-1 if size is None else size, stamp=version)
            inputs[name] = _input_file(source, stored)
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
