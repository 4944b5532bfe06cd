import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from pipeline import storage
from pipeline.errors import ConfigError


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
    assert storage.damage(str(published)) == "inner/b.bin has 0 bytes, the manifest says 4000"

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
    deleted: list[str] = []

    class Watched(storage.fs.LocalFileSystem):
        def delete_file(self, path: str) -> None:
            deleted.append(os.path.basename(path))
            super().delete_file(path)

        def delete_dir(self, path: str) -> None:
            deleted.append(f"folder with {sorted(os.listdir(path))}")
            super().delete_dir(path)

    monkeypatch.setattr(storage.fs, "LocalFileSystem", Watched)
    storage.delete_folder(str(published))
    assert deleted == ["manifest.json", "folder with ['a.txt', 'inner']"] and not published.exists()
    storage.delete_folder(str(published))  # what is gone is gone


def test_what_is_left_of_an_interrupted_deletion_does_not_count(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(storage.fs.LocalFileSystem):
        def delete_dir(self, path: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(storage.fs, "LocalFileSystem", Interrupted)
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
