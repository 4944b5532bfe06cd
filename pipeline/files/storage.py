"""Files and folders by local path or URL: read, write, list and publish.

A folder is published by its manifest.json, which is written last and holds the size and SHA-256 of every file. A folder
without a manifest is not published, and a file that differs from the manifest is damaged.
"""

import errno
import functools
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from pipeline.errors import ConfigError
from pipeline.files.local_files import Entry, Kind, delete_tree, entry_at, names_in, replace_file, require_regular
from pipeline.files.locations import is_absolute, is_url, require_valid_path
from pipeline.files.retries import is_transient, retrying, with_retries

MANIFEST = "manifest.json"
HUB = "hf://"


def join(location: str, *names: str) -> str:
    """Return the location of a file or subfolder: a folder's location followed by names."""
    return "/".join((location.rstrip("/"), *names))


def _local_path(location: str) -> str | None:
    """Return the path of a local location; None for a URL. Raises ConfigError for an invalid path."""
    assert is_absolute(location), f"{location} is no absolute location"
    if is_url(location):
        return None
    require_valid_path(location)  # a name that was joined to a folder may be too long
    return location


def filesystem(location: str) -> tuple[fs.FileSystem, str]:
    """Return the pyarrow filesystem of a location, and the location's path in it.

    Raises ConfigError for a URL without a known or installed filesystem, and for an invalid path.
    """
    if path := _local_path(location):
        return fs.LocalFileSystem(), path
    if location.startswith(HUB):
        return _hub(location), unquote(location.removeprefix(HUB))
    address, _, options = location.partition("?")
    scheme, _, path = address.partition("://")
    bucket, slash, key = path.partition("/")
    # With this option a small object takes one plain upload, which every S3 server supports, instead of three requests.
    options = "&".join(filter(None, (options, "allow_delayed_open=true" if scheme == "s3" else "")))
    try:
        system, root = with_retries(
            lambda: store(f"{scheme}://{bucket}?{options}" if options else f"{scheme}://{bucket}")
        )
    except Exception as error:  # pyarrow raises errors of several types, all of them about this location
        if isinstance(error, ModuleNotFoundError) or is_transient(error):
            raise
        raise ConfigError(
            f"{location}: no file system for this URL ({first_line(error)}); use a local path, s3://, gs:// or hf://"
        ) from error
    return system, f"{root.rstrip('/')}{slash}{unquote(key)}"


@functools.lru_cache(maxsize=64)
def store(bucket: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem of a bucket URL, and the bucket's path in the filesystem.

    The result is cached, because pyarrow asks the server for the bucket's region.
    """
    return fs.FileSystem.from_uri(bucket)


def _hub(location: str) -> fs.FileSystem:
    """Return the Hugging Face hub's filesystem, with paths datasets/OWNER/NAME/FILE.

    Raises ConfigError where huggingface_hub is not installed.
    """
    try:
        import fsspec

        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem("hf")))
    except ImportError as error:
        raise ConfigError(f"{location}: hf:// needs huggingface_hub: pip install 'bertstream[hub]'") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, for one-line messages."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


@retrying
def _entry(location: str) -> Entry:
    """Return what is at a location. Raises OSError."""
    if path := _local_path(location):
        return entry_at(path)
    system, path = filesystem(location)
    info = system.get_file_info(path)
    return Entry(kind=Kind(info.type.name), size=info.size)


def exists(location: str) -> bool:
    """Return whether a file or folder exists."""
    return _entry(location).kind is not Kind.MISSING


def is_file(location: str) -> bool:
    """Return whether a file exists; False for a folder, a pipe or a device."""
    return _entry(location).kind is Kind.FILE


@retrying
def children(location: str) -> list[str]:
    """Return the sorted names in a folder; empty if the folder does not exist. Raises ConfigError for a file."""
    try:
        path = _local_path(location)
        return names_in(path) if path else _names_in_store(location)
    except NotADirectoryError as error:
        raise ConfigError(f"{location} is a file, and a folder is needed") from error


def _names_in_store(location: str) -> list[str]:
    """Return the sorted names in the folder of a URL. Raises NotADirectoryError for a file."""
    system, path = filesystem(location)
    # For Google's store, Arrow omits folders from a listing that is not recursive (ARROW-17020).
    entries = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=system.type_name == "gcs"))
    return sorted({entry.path.removeprefix(f"{path.rstrip('/')}/").split("/")[0] for entry in entries})


@retrying
def read_bytes(location: str) -> bytes:
    """Return the contents of a file. Raises OSError (for a missing file, FileNotFoundError)."""
    with _opened(location) as stream:
        return stream.read()


@retrying
def read_at_most(location: str, most: int) -> bytes:
    """Return the contents of a small file. Raises OSError, also if the file has more than `most` bytes."""
    with _opened(location) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", location)
    return content


def _opened(location: str) -> IO[bytes] | pa.NativeFile:
    """Open a stream of a file's raw bytes. Raises OSError, also for a local pipe or device."""
    if path := _local_path(location):
        require_regular(path)
        return open(path, "rb")
    system, path = filesystem(location)
    return system.open_input_stream(path, compression=None)


@retrying
def open_mapped(location: str) -> pa.NativeFile:
    """Open a file for reading anywhere; a local file is mapped into memory. Raises OSError."""
    if path := _local_path(location):
        require_regular(path)
        return pa.memory_map(path)
    with _opened(location) as stream:
        return pa.BufferReader(stream.read())


@retrying
def write_bytes(location: str, content: bytes) -> None:
    """Write a whole file, so that readers never see a part of it.

    A local file is written under a temporary name and then renamed.
    """
    if path := _local_path(location):
        make_folder(path.rsplit("/", 1)[0])
        replace_file(path, content)
        return
    system, path = filesystem(location)
    # No temporary name is needed, because an object store shows an object only when it is complete.
    with system.open_output_stream(path, compression=None) as stream:
        stream.write(content)


@retrying
def copy_file(source: str, target: str) -> None:
    """Copy a file between paths or URLs. The folder of a local target must exist. Raises OSError."""
    source_path, target_path = _local_path(source), _local_path(target)
    if source_path and target_path:
        shutil.copyfile(source_path, target_path)
        return
    source_system, source_path = filesystem(source)
    target_system, target_path = filesystem(target)
    fs.copy_files(source_path, target_path, source_filesystem=source_system, destination_filesystem=target_system)


def read_json(location: str) -> Any:
    """Return the value of a JSON file. Raises OSError or ValueError."""
    return parse_json(read_bytes(location))


def read_object(location: str) -> dict[str, Any] | None:
    """Return the object of a JSON file; None if the file is missing, damaged or not an object.

    Raises OSError if the file's storage fails.
    """
    try:
        value = read_json(location)
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def parse_json(content: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError for invalid or too deeply nested text."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def write_json(location: str, value: Any) -> None:
    """Write a value as an indented JSON file."""
    write_bytes(location, (json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode())


@retrying
def make_folder(location: str) -> None:
    """Create a local folder and its parents; a no-op for object stores."""
    if not is_url(location):
        os.makedirs(location or "/", exist_ok=True)


@retrying
def delete_file(location: str) -> None:
    """Delete a file. A missing file is no error, because an earlier try may have deleted it and lost the reply."""
    with suppress(FileNotFoundError):
        if path := _local_path(location):
            os.unlink(path)
            return
        system, path = filesystem(location)
        system.delete_file(path)


def delete_folder(location: str) -> None:
    """Delete a folder. Its manifest is deleted first, so that an interrupted deletion leaves no published folder."""
    if _entry(location).kind is not Kind.FOLDER:
        return
    manifest = join(location, MANIFEST)
    if is_file(manifest):
        delete_file(manifest)
    # Google's store deletes the files and then raises FileNotFoundError, as no object has the folder's own name.
    with suppress(FileNotFoundError):
        _delete_tree(location)


@retrying
def _delete_tree(location: str) -> None:
    """Delete a folder and all that is in it. Raises OSError."""
    if path := _local_path(location):
        delete_tree(path)
        return
    system, path = filesystem(location)
    system.delete_dir(path)


def require_writable(name: str, location: str) -> None:
    """Raise ConfigError if `location`, the value of the setting `name`, cannot be written."""
    probe = join(location, f".writable-{secrets.token_hex(8)}")
    try:
        write_bytes(probe, b"can be written\n")
        delete_file(probe)
    except OSError as error:
        raise ConfigError(
            f"{name} ({location}) cannot be written: {first_line(error)}; choose another folder or URL"
        ) from error


def publish(folder: Path, target: str, about: dict[str, Any]) -> None:
    """Replace the folder `target` by a copy of a local folder, then write the manifest into `target`.

    The manifest has the fields of `about`, and `files`: {name: {"bytes": size, "sha256": digest}}.
    """
    if exists(target):
        delete_folder(target)
    make_folder(target)
    files = {}
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = file.relative_to(folder).as_posix()
        files[name] = {"bytes": file.stat().st_size, "sha256": sha256(str(file))}
        make_folder(join(target, name).rsplit("/", 1)[0])
        copy_file(str(file), join(target, name))
    write_json(join(target, MANIFEST), about | {"files": files})


@retrying
def sha256(location: str) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with _opened(location) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def escapes_folder(name: str) -> bool:
    """Return whether a relative name from a manifest or archive points outside its folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or ":" in (path.parts or ("",))[0]


def damage(target: str, besides: Collection[str] = ()) -> str | None:
    """Return a description of a published folder's damage; None if every file but `besides` matches the manifest.

    Unlike in `mismatch`, a storage failure counts as damage.
    """
    try:
        return mismatch(target, besides)
    except OSError as error:
        return f"it cannot be read ({first_line(error)})"


def mismatch(target: str, besides: Collection[str] = ()) -> str | None:
    """Return a description of the first difference between a published folder and its manifest, or None.

    Files named in `besides` are not compared. A file with a disk read error counts as different. Raises OSError for
    other storage failures, which say nothing about the folder.
    """
    try:
        files = _manifest_files(read_json(join(target, MANIFEST)))
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and not is_file_lost(error):
            raise
        return f"{MANIFEST} cannot be read ({first_line(error)})"
    for name, (size, digest) in files.items():
        if escapes_folder(name):
            return f"{MANIFEST} names {name!r}, which is outside of the folder"
        if name in besides:
            continue
        location = join(target, name)
        try:
            found = _entry(location)
            if found.kind is not Kind.FILE:
                return f"{name} is missing" if found.kind is Kind.MISSING else f"{name} is not a file"
            if found.size != size:
                return f"{name} has {found.size} bytes, the manifest says {size}"
            if sha256(location) != digest:
                return f"{name} does not match its SHA-256"
        except OSError as error:
            if not is_file_lost(error):
                raise
            return f"{name} cannot be read ({first_line(error)})"
    return None


def is_file_lost(error: OSError) -> bool:
    """Return whether an error means that a file is missing or that its disk cannot read it.

    Other errors say nothing about the file.
    """
    return isinstance(error, FileNotFoundError) or error.errno == errno.EIO


def is_unavailable(location: str) -> bool:
    """Return whether a file cannot be read now because its storage fails; the file itself may be undamaged."""
    try:
        with _opened(location) as stream:
            stream.read(1)
    except OSError as error:
        return not is_file_lost(error)
    return False


def _manifest_files(manifest: Any) -> dict[str, tuple[int, str]]:
    """Return {name: (size, SHA-256)} of a manifest's files. Raises ValueError if one is missing."""
    try:
        return {name: (int(expected["bytes"]), str(expected["sha256"])) for name, expected in manifest["files"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it does not say the size and SHA-256 of each file: {type(error).__name__} {error}") from None
