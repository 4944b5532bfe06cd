import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.files.local_files import entry_at


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A published folder of two files, one in a folder of its own."""
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "a.txt").write_bytes(b"abc")
    (source / "inner" / "b.bin").write_bytes(bytes(range(200)) * 20)
    storage.publish(source, str(tmp_path / "target"), {"step": 7})
    return tmp_path / "target"


def test_join() -> None:
    assert (
        storage.join("/a/", "b", "c") == "/a/b/c"
        and storage.join("s3://bucket", "b") == "s3://bucket/b"
        and storage.join("a", "b") == "a/b"
    )


def test_a_location_that_is_not_absolute_is_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for location in ("a", "~/a", f"file://{tmp_path}"):
        with pytest.raises(AssertionError, match=f"^{location} is no absolute location"):
            storage.exists(location)


@pytest.mark.parametrize("options", ["?region=eu-west-1", "?region=eu-west-1&endpoint_override=127.0.0.1:9"])
def test_options_of_a_bucket(options: str) -> None:
    system, path = storage.filesystem(f"s3://bucket/key{options}")
    assert path == "bucket/key" and system.region == "eu-west-1"


def test_a_url_without_a_file_system_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^nonsense://x/y: no file system for this URL \(.+\); use a local path, s3://, gs:// or hf://$",
    ):
        storage.filesystem("nonsense://x/y")


def test_a_file_is_written_whole_and_leaves_no_temporary(tmp_path: Path) -> None:
    location = str(tmp_path / "new" / "folder" / "file")
    for content in (b"first", b"", b"\x00\xff" * 5):
        storage.write_bytes(location, content)
        assert storage.read_bytes(location) == content
    assert os.listdir(tmp_path / "new" / "folder") == ["file"] and storage.children(
        str(tmp_path / "new" / "folder")
    ) == ["file"]


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(TypeError):
        storage.write_bytes(str(tmp_path / "file"), "no bytes")
    assert storage.read_bytes(str(tmp_path / "file")) == b"old"


def test_compressed_files_are_read_as_they_are(tmp_path: Path) -> None:
    storage.write_bytes(str(tmp_path / "x.gz"), b"not gzip at all")
    assert storage.read_bytes(str(tmp_path / "x.gz")) == b"not gzip at all"
    assert storage.sha256(str(tmp_path / "x.gz")) == hashlib.sha256(b"not gzip at all").hexdigest()


def test_json_is_for_people_too(tmp_path: Path) -> None:
    storage.write_json(str(tmp_path / "x.json"), {"b": "é", "a": [1, 2.5, None]})
    assert (tmp_path / "x.json").read_text() == '{\n "a": [\n  1,\n  2.5,\n  null\n ],\n "b": "é"\n}\n'
    assert storage.read_json(str(tmp_path / "x.json")) == {"b": "é", "a": [1, 2.5, None]}


def test_what_is_not_there(tmp_path: Path) -> None:
    assert (
        storage.children(str(tmp_path / "none")) == []
        and not storage.exists(str(tmp_path / "none"))
        and storage.exists(str(tmp_path))
    )
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(str(tmp_path / "none"))


def test_what_is_published_is_sound_and_says_what_it_is(published: Path) -> None:
    manifest = json.loads((published / "manifest.json").read_text())
    assert manifest["step"] == 7 and manifest["files"] == {
        "a.txt": {
            "bytes": 3,
            "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        },  # of "abc": FIPS 180-2, B.1
        "inner/b.bin": {"bytes": 4000, "sha256": hashlib.sha256(bytes(range(200)) * 20).hexdigest()},
    }
    assert (published / "inner" / "b.bin").read_bytes() == bytes(range(200)) * 20
    assert storage.damage(str(published)) is None


def test_publishing_again_leaves_nothing_of_before(published: Path, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "c.txt").write_text("c")
    storage.publish(tmp_path / "second", str(published), {})
    assert (
        sorted(path.name for path in published.iterdir()) == ["c.txt", "manifest.json"]
        and storage.damage(str(published)) is None
    )


def test_the_manifest_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()
    for name in ("a", "z"):
        (tmp_path / "source" / name).write_text(name)
    there: list[list[str]] = []
    write = storage.write_bytes

    def watched(location: str, content: bytes) -> None:
        there.append(sorted(os.listdir(tmp_path / "target")))
        write(location, content)

    monkeypatch.setattr(storage, "write_bytes", watched)
    storage.publish(tmp_path / "source", str(tmp_path / "target"), {})
    assert there == [["a", "z"]]


def test_damage_is_named(published: Path) -> None:
    whole = (published / "inner" / "b.bin").read_bytes()

    (published / "inner" / "b.bin").write_bytes(whole[:-1])
    assert storage.damage(str(published)) == "inner/b.bin has 3999 bytes, the manifest says 4000"
    (published / "inner" / "b.bin").write_bytes(whole + b"x")
    assert storage.damage(str(published)) == "inner/b.bin has 4001 bytes, the manifest says 4000"
    (published / "inner" / "b.bin").write_bytes(whole[:1234] + bytes([whole[1234] ^ 4]) + whole[1235:])
    assert storage.damage(str(published)) == "inner/b.bin does not match its SHA-256"
    (published / "inner" / "b.bin").unlink()
    assert storage.damage(str(published)) == "inner/b.bin is missing"

    (published / "inner" / "b.bin").write_bytes(whole)
    assert storage.damage(str(published)) is None
    (published / "manifest.json").unlink()
    assert storage.damage(str(published)) == "manifest.json is missing"
    assert storage.damage(str(published / "nowhere")) == "manifest.json is missing"


def test_storage_that_refuses_to_say_tells_nothing_of_a_folder(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(location: str) -> str:
        raise PermissionError("AWS Error ACCESS_DENIED during HeadObject operation")

    def lost(location: str) -> str:
        raise OSError(errno.EIO, "Input/output error")

    for function in ("read_bytes", "sha256"):
        with monkeypatch.context() as patch:
            patch.setattr(storage, function, refused)
            with pytest.raises(PermissionError):
                storage.mismatch(str(published))
            assert (
                storage.damage(str(published))
                == "it cannot be read (AWS Error ACCESS_DENIED during HeadObject operation)"
            )
    monkeypatch.setattr(storage, "sha256", lost)
    assert storage.mismatch(str(published)) == "a.txt cannot be read ([Errno 5] Input/output error)"
    monkeypatch.setattr(storage, "read_bytes", lost)
    assert storage.mismatch(str(published)) == "manifest.json cannot be read ([Errno 5] Input/output error)"


def test_a_file_where_a_folder_is_needed_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/file is a file, and a folder is needed$"):
        storage.children(str(tmp_path / "file"))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        '{"step": 7}',
        "[]",
        '{"files": 3}',
        '{"files": {"a.txt": 3}}',
        '{"files": {"a.txt": {"cytes": 3, "sha256": "a"}}}',
        '{"files": {"a.txt": {"bytes": null, "sha256": "a"}}}',
    ],
)
def test_a_broken_manifest_is_damage(published: Path, content: str) -> None:
    (published / "manifest.json").write_text(content)
    assert storage.damage(str(published)).startswith("manifest.json cannot be read (")


def test_a_folder_is_deleted_with_its_manifest_first(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[list[str]] = []
    delete = shutil.rmtree

    def watched(path: str) -> None:
        left.append(sorted(os.listdir(path)))
        delete(path)

    monkeypatch.setattr(shutil, "rmtree", watched)
    storage.delete_folder(str(published))
    assert left == [["a.txt", "inner"]] and not published.exists()
    storage.delete_folder(str(published))  # what is gone is gone


def test_what_is_left_of_an_interrupted_deletion_does_not_count(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        storage.delete_folder(str(published))
    assert (published / "a.txt").exists() and storage.damage(str(published)) == "manifest.json is missing"


def test_a_folder_that_can_be_written_is_left_empty(tmp_path: Path) -> None:
    storage.require_writable("output", str(tmp_path / "new"))
    assert os.listdir(tmp_path / "new") == []


def test_a_path_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    location = str(tmp_path / "file" / "output")
    with pytest.raises(ConfigError) as refused:
        storage.require_writable("output", location)
    message = str(refused.value)
    assert message.startswith(f"output ({location}) cannot be written: ") and message.endswith(
        "; choose another folder or URL"
    )
    assert "Not a directory" in message and "\n" not in message


@pytest.mark.parametrize("name", ["../other/weights", "/etc/passwd", "a/../../b", "c:\\b", "..\\b"])
def test_a_manifest_that_names_what_is_outside_is_damage(tmp_path: Path, name: str) -> None:
    storage.write_json(f"{tmp_path}/folder/manifest.json", {"files": {name: {"bytes": 1, "sha256": ""}}})
    assert storage.damage(f"{tmp_path}/folder") == f"manifest.json names {name!r}, which is outside of the folder"
    assert not storage.escapes_folder("train/00000-ab.parquet") and not storage.escapes_folder("a..b")


@pytest.fixture
def every_kind(tmp_path: Path) -> Path:
    """A folder with a file, a folder, a pipe, and links to each of them, to nothing and to itself."""
    folder = tmp_path / "every-kind"
    (folder / "folder" / "inner").mkdir(parents=True)
    for name in ("file", "folder/.hidden", "folder/a"):
        (folder / name).write_text("abc")
    os.mkfifo(folder / "pipe")
    for name, target in (("file", "file"), ("folder", "folder"), ("pipe", "pipe"), ("nothing", "none")):
        (folder / f"to-{name}").symlink_to(target)
    (folder / "to-itself").symlink_to("to-itself")
    return folder


def test_a_local_file_is_mapped_into_memory(every_kind: Path) -> None:
    with storage.open_mapped(f"{every_kind}/file") as file:
        assert isinstance(file, pa.MemoryMappedFile) and file.read() == b"abc"
    with pytest.raises(OSError, match="it is a pipe, a socket or a device"):
        storage.open_mapped(f"{every_kind}/pipe")


def test_kinds_and_sizes_are_those_of_pyarrow(every_kind: Path) -> None:
    names = [*os.listdir(every_kind), "none", "none/a", "file/a", "folder/", "file/", "folder/a"]
    for location in (*(f"{every_kind}/{name}" for name in names), "/", "/dev/null"):
        expected = fs.LocalFileSystem().get_file_info(location)
        found = entry_at(location)
        assert (found.kind.value, found.size) == (expected.type.name, expected.size), location
        assert storage.exists(location) == (expected.type != fs.FileType.NotFound)
        assert storage.is_file(location) == expected.is_file


def test_names_in_a_folder_are_those_of_pyarrow(every_kind: Path) -> None:
    for name in ("", "folder", "folder/", "folder/inner", "to-folder", "none", "to-nothing", "none/a", "file/a"):
        wanted = fs.FileSelector(f"{every_kind}/{name}", allow_not_found=True)
        expected = sorted(entry.base_name for entry in fs.LocalFileSystem().get_file_info(wanted))
        assert storage.children(f"{every_kind}/{name}") == expected, name
    assert storage.children(str(every_kind)) == ["file", "folder", "pipe", "to-file", "to-folder", "to-pipe"]
    for name in ("pipe", "to-file"):
        with pytest.raises(ConfigError, match=f"^{every_kind}/{name} is a file, and a folder is needed$"):
            storage.children(f"{every_kind}/{name}")


def test_a_name_that_is_not_utf_8_does_not_stop_a_listing(tmp_path: Path) -> None:
    for name in (b"a", b"\xff"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    assert storage.children(str(tmp_path)) == ["a", os.fsdecode(b"\xff")]


def test_a_path_that_the_system_cannot_follow_is_an_error(every_kind: Path) -> None:
    (every_kind / "too-long").symlink_to("a" * 300)
    with pytest.raises(OSError, match="File name too long"):
        storage.exists(f"{every_kind}/too-long")
    with pytest.raises(OSError, match="File name too long"):
        storage.children(str(every_kind))
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        storage.children(f"{every_kind}/to-itself")


def test_an_invalid_path_is_refused_everywhere(tmp_path: Path) -> None:
    calls = (storage.exists, storage.children, storage.read_bytes, storage.delete_file, storage.delete_folder)
    for call in (*calls, lambda path: storage.write_bytes(path, b""), lambda path: storage.copy_file(path, path)):
        with pytest.raises(ConfigError, match="a name in it has 300 bytes, and at most 255 are allowed"):
            call(f"{tmp_path}/{'a' * 300}")


def test_only_files_are_read(every_kind: Path) -> None:
    assert storage.read_bytes(f"{every_kind}/to-file") == b"abc"
    for name, error in (
        ("folder", IsADirectoryError),
        ("to-folder", IsADirectoryError),
        ("to-nothing", FileNotFoundError),
        ("file/a", NotADirectoryError),
    ):
        with pytest.raises(error):
            storage.read_bytes(f"{every_kind}/{name}")
    unavailable = [name for name in os.listdir(every_kind) if storage.is_unavailable(f"{every_kind}/{name}")]
    assert sorted(unavailable) == ["folder", "pipe", "to-folder", "to-itself", "to-pipe"]
    assert not storage.is_unavailable(f"{every_kind}/none")


def test_a_link_is_deleted_and_not_what_it_leads_to(every_kind: Path, tmp_path: Path) -> None:
    before = sorted(every_kind.rglob("*"))
    (tmp_path / "copy" / "inner").mkdir(parents=True)
    for name in ("folder", "file", "none"):
        (tmp_path / "copy" / "inner" / name).symlink_to(every_kind / name)
    storage.delete_folder(f"{tmp_path}/copy")
    assert not (tmp_path / "copy").exists()
    (tmp_path / "link").symlink_to(every_kind / "folder")
    storage.delete_folder(f"{tmp_path}/link")
    assert not os.path.lexists(tmp_path / "link") and sorted(every_kind.rglob("*")) == before
    storage.delete_file(f"{every_kind}/to-file")
    assert sorted(every_kind.rglob("*")) == [path for path in before if path.name != "to-file"]


def test_a_file_is_not_deleted_as_a_folder_nor_a_folder_as_a_file(every_kind: Path) -> None:
    before = sorted(every_kind.rglob("*"))
    storage.delete_folder(f"{every_kind}/file")
    storage.delete_folder(f"{every_kind}/pipe")
    storage.delete_file(f"{every_kind}/none")
    with pytest.raises(IsADirectoryError):
        storage.delete_file(f"{every_kind}/folder")
    assert sorted(every_kind.rglob("*")) == before


def test_a_file_is_copied_over_another(every_kind: Path) -> None:
    (every_kind / "other").write_text("longer than the source")
    storage.copy_file(f"{every_kind}/to-file", f"{every_kind}/other")
    assert (every_kind / "other").read_text() == "abc"
    with pytest.raises(FileNotFoundError):
        storage.copy_file(f"{every_kind}/none", f"{every_kind}/other")
    with pytest.raises(FileNotFoundError):
        storage.copy_file(f"{every_kind}/file", f"{every_kind}/none/other")


def test_a_missing_file_and_a_folder_in_its_place_are_named(published: Path) -> None:
    manifest = json.loads((published / "manifest.json").read_text())
    manifest["files"]["a.txt"]["bytes"] = 0
    storage.write_json(f"{published}/manifest.json", manifest)
    (published / "a.txt").unlink()
    assert storage.mismatch(str(published)) == "a.txt is missing"
    (published / "a.txt").mkdir()
    assert storage.mismatch(str(published)) == "a.txt is not a file"
