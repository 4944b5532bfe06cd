import glob
import os
import re
import threading
import warnings
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.config.data import Preparation
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.corpus.inputs import InputFile, fingerprint, list_files, with_distinct_names
from pipeline.corpus.parts import batch_digest, batches, part_settings
from pipeline.corpus.sources import Source, parse
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage, web
from pipeline.files.listing import glob_expression, location_of
from pipeline.files.locations import absolute, without_login
from tests.refusals import refusal


def names(spec: object) -> list[str]:
    return [file.name for file in list_files(parse(str(spec)))]


def some_file(name: str, **more) -> InputFile:
    return InputFile(
        **{"location": f"/x/{name}", "name": name, "source": "/x", "format": None, "bytes": 10, "stamp": "1"} | more
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt.gz", "sub/a.txt", "sub/deep/c.txt", ".hidden", ".git/x.txt", "sub/.x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    return tmp_path


def test_specifications():
    assert parse("builtin") == Source(spec="builtin", location="builtin", format="builtin")
    assert parse("/a/b.txt::format=sentences") == Source(
        spec="/a/b.txt::format=sentences", location="/a/b.txt", format="sentences"
    )
    assert parse("builtin::weight=0.5") == Source(
        spec="builtin::weight=0.5", location="builtin", format="builtin", weight=0.5
    )
    given = parse("/a::format=jsonl::column=body::language=de::weight=2")
    assert (given.location, given.format, given.column, given.language, given.weight) == (
        "/a",
        "jsonl",
        "body",
        "de",
        2.0,
    )


REFUSED = {
    "a::format=xml": "format (xml) must be one of wikipedia-dump, .*, text",
    "a::wait=2": "key (wait) must be one of format, column, language, weight",
    "a::weight=0": "weight (0) must be a number above 0, as in PATH::weight=0.5",
    "a::weight=inf": "weight (inf) must be a number above 0",
    "a::weight=two": "weight (two) must be a number above 0",
    "a::language=": "language needs a value, as in PATH::language=VALUE",
    "a::format=text::format=sentences": "format is given twice",
    "::format=text": "names no file, folder or URL",
    "a::language=klingon": "language (klingon) is not a language code: give an ISO 639 code, as in PATH::language=de",
    "a::language=German": "language (German) is not a language code",
    "a::language=jp": "language (jp) is not a language code",
    "a::format=text::column=body": (
        "column (body) is for the formats pairs, parquet-sentences, parquet, jsonl, but format is text: leave "
        "column or format out"
    ),
    "builtin::column=body": (
        "column (body) is for the formats pairs, parquet-sentences, parquet, jsonl, but format is builtin: leave "
        "column or format out"
    ),
    "builtin::format=text": (
        "format (text) cannot be set for the built-in corpus: leave format out; "
        "for a folder of this name, write ./builtin"
    ),
}


def test_specifications_that_are_refused():
    said = {spec: refusal(parse, spec) for spec in REFUSED}
    pattern = {spec: "^corpus .*" + re.escape(words).replace(r"\.\*", ".*") for spec, words in REFUSED.items()}
    assert {spec: message for spec, message in said.items() if not re.search(pattern[spec], message)} == {}


def test_codes_of_languages():
    codes = ["en", "ceb", "zh-min-nan", "pt-BR", "be-tarask", "yue"]
    assert [parse(f"/a::language={code}").language for code in codes] == codes


def test_a_linked_folder_is_read_and_none_twice(folder: Path):
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "sub" / "again").symlink_to(folder / "sub")
    (folder / "a").symlink_to(folder / "sub")
    (folder / "sub" / "link.txt").symlink_to(folder / "b.txt")
    assert names(folder) == ["a.txt.gz", "b.txt", "sub/a.txt", "sub/deep/c.txt", "sub/link.txt"]
    (folder / "other").mkdir()
    (folder / "other" / "x").symlink_to(folder / "sub")
    assert names(folder / "other") == ["x/a.txt", "x/deep/c.txt", "x/link.txt", "x/up/a.txt.gz", "x/up/b.txt"]


def test_a_folder_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch):
    scan = os.scandir

    def refused(place: str):
        if place.endswith("/deep"):
            raise PermissionError(13, "Permission denied", place)
        return scan(place)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(DataError, match=f"^corpus {folder} cannot be read: .*Permission denied"):
        names(folder)


def test_a_folder_is_read_by_its_own_name_before_a_link_to_it(tmp_path: Path):
    (tmp_path / "b" / "train").mkdir(parents=True)
    (tmp_path / "b" / "train" / "x.txt").write_text("text")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "b" / "train")
    assert names(tmp_path) == names(f"{tmp_path}/*/train/*.txt") == ["b/train/x.txt"]


def test_the_index_of_a_dump_in_the_same_folder_is_not_read(tmp_path: Path):
    dumps = ("de-pages-articles-multistream.xml.bz2", "de-pages-articles-multistream1.xml-p1p9.bz2")
    indexes = ("de-pages-articles-multistream-index.txt.bz2", "de-pages-articles-multistream-index1.txt-p1p9.bz2")
    for name in (*dumps, *indexes, "fr-pages-articles-multistream-index.txt.bz2"):
        (tmp_path / name).touch()
    assert names(tmp_path) == [*dumps, "fr-pages-articles-multistream-index.txt.bz2"]
    assert names(tmp_path / indexes[0]) == [indexes[0]]


def test_a_folder_is_read_recursively_without_hidden_files(folder: Path):
    assert names(folder) == ["a.txt.gz", "b.txt", "sub/a.txt", "sub/deep/c.txt"]
    assert names(f"{folder}/b.txt") == ["b.txt"]
    assert names(absolute(f"file://{folder}/b.txt")) == ["b.txt"]


def test_globs_stay_within_a_name_and_folders_that_match_are_read(folder: Path):
    assert names(f"{folder}/*.txt") == ["b.txt"]
    assert names(f"{folder}/**/*.txt") == ["b.txt", "sub/a.txt", "sub/deep/c.txt"]
    assert names(f"{folder}/s?b") == ["sub/a.txt", "sub/deep/c.txt"]
    assert names(f"{folder}/[!b]*.gz") == ["a.txt.gz"]


def test_a_name_with_magic_characters_that_exists_is_no_glob(tmp_path: Path):
    (tmp_path / "a[1].txt").write_text("x")
    assert names(tmp_path / "a[1].txt") == ["a[1].txt"]


def test_glob_characters_that_mean_nothing_special():
    assert glob_expression("a+(b).txt").fullmatch("a+(b).txt/")
    assert not glob_expression("a.txt").match("abtxt/")
    with warnings.catch_warnings(action="error"):
        assert glob_expression(glob.escape("a[1]*?")).fullmatch("a[1]*?/")
    assert glob_expression("[a-c]x").match("bx/") and not glob_expression("[!a-c]x").match("bx/")


def test_files_of_a_url_are_urls_that_lead_back_to_them():
    assert location_of("/data", "/data/a b.txt") == "/data/a b.txt"
    assert location_of("hdfs://host:90/data", "/data/a.txt") == "hdfs://host:90/data/a.txt"
    for path in ("bucket/sub/a.txt", "bucket/sub/50% of a [b].txt"):
        location = location_of("s3://bucket/sub/*?region=eu-west-1", path)
        assert location.endswith("?region=eu-west-1") and storage.filesystem(location)[1] == path
    assert location_of("s3://bucket/a", "bucket/a/b") == "s3://bucket/a/b"


@pytest.mark.parametrize(
    "spec",
    [
        "s3://key:secret@bucket/a",
        "s3://key:secret/with+secret@bucket/a",
        "https://secret@host/a.txt::format=text",
        "https://user:se/secret@host/a",
        "s3://bucket/a?access_key=key&secret_key=secret",
        "https://host/a.txt?X-Amz-Credential=key&X-Amz-Signature=secret",
        "https://host/a.txt?sv=1&sig=secret",
    ],
)
def test_a_login_in_a_url_is_refused_and_not_repeated(spec: str):
    with pytest.raises(ConfigError, match=r"\*\*\*.* was given with a login in it") as refused:
        with_absolute_locations(Pretrain(corpus=(spec,)))
    assert (
        "secret@" not in str(refused.value) and "=secret" not in str(refused.value) and "key:" not in str(refused.value)
    )


def test_what_is_no_login_is_let_through():
    for location in (
        "hdfs://somebody@host:90/a",
        "hdfs://host:90/a@b",
        "gs://anonymous@bucket/a",
        "s3://bucket/a:b@c",
        "https://host:8080/x@y?page=2",
        "C:\\a@b",
    ):
        assert without_login(location) == location
    assert location_of("gs://anonymous@bucket/a/*", "bucket/a/b") == "gs://anonymous@bucket/a/b"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "no such file or folder"),
        ("*.zip", "no file matches this pattern"),
        ("empty", "no files in this folder"),
    ],
)
def test_locations_without_files_are_refused(folder: Path, name: str, words: str):
    (folder / "empty").mkdir()
    with pytest.raises(ConfigError, match=words):
        names(folder / name)


def test_the_fingerprint_follows_size_and_time(folder: Path):
    def stamps() -> dict:
        source = parse(str(folder / "b.txt"))
        return fingerprint(source, list_files(source))

    before = stamps()
    assert list(before) == [str(folder / "b.txt")] and before[str(folder / "b.txt")][0] == 4
    assert stamps() == before
    os.utime(folder / "b.txt", ns=(5, 5))
    assert stamps() == {str(folder / "b.txt"): [4, "5"]}


def test_duplicate_names_get_more_of_their_path():
    files = [some_file("t.txt", location=f"/m/{place}/x/t.txt") for place in "abc"] + [some_file("u.txt")]
    assert [file.name for file in with_distinct_names(files)] == ["t.txt", "x/t.txt", "c/x/t.txt", "u.txt"]
    assert with_distinct_names(files)[:2] == with_distinct_names(files[:2])


def test_one_file_in_two_sources_is_refused():
    with pytest.raises(ConfigError, match="corpus /x and corpus /y both hold /x/t.txt"):
        with_distinct_names([some_file("t.txt"), some_file("t.txt", source="/y")])
    assert with_distinct_names([some_file("t.txt"), some_file("x/t.txt", location="/x/t.txt")]) == [some_file("t.txt")]


def test_the_files_of_the_builtin_corpus_are_distinct():
    files = list_files(parse("builtin"))
    assert len(with_distinct_names(files)) == len({file.location for file in files})


def test_batches_are_a_function_of_the_files_and_not_of_their_order():
    files = [
        some_file(f"{number:04d}", bytes=3_000_000 if number == 7 else 9_000_000 if number == 3 else 10)
        for number in range(1200)
    ]
    dealt = batches(files)
    assert batches(files[::-1]) == dealt
    assert [file for batch in dealt for file in batch] == files
    assert [len(batch) for batch in dealt] == [3, 1, 500, 500, 196]
    assert len(batches([some_file(str(number), bytes=4_000_001) for number in range(3)])) == 3


def test_the_name_of_a_part_follows_its_files_and_settings():
    files = [some_file("a"), some_file("a", stamp="2"), some_file("a", format="text"), some_file("a", start=0, stop=5)]
    settings = [
        Preparation(),
        Preparation(minimum_characters=7),
        Preparation(minimum_letters=0.1),
        Preparation(piece_characters=500),
    ]
    assert len({batch_digest([file], part_settings(found)) for file in files for found in settings}) == 16
    assert batch_digest(files[:1], part_settings(Preparation(near_duplicates=None, heldout_share=0.5))) == batch_digest(
        [some_file("a")], part_settings(Preparation())
    )


def test_the_builtin_corpus_is_the_closure_of_the_requirements():
    inputs = fingerprint(parse("builtin"), ())
    assert {"builtin:ray", "builtin:torch", "builtin:packaging"} <= set(inputs)
    assert not {"builtin:hypothesis", "builtin:pytest", "builtin:transformers", "builtin:pip"} & set(inputs)
    assert inputs["builtin:ray"] == [__import__("ray").__version__]


def test_builtin_files_are_sorted_python_files_that_exist():
    files = list_files(parse("builtin"))
    found = [file for file in files if file.name.startswith("packaging/")]
    assert "packaging/version.py" in {file.name for file in found} and all(
        Path(file.location).is_file() for file in found
    )
    assert len({file.name for file in files}) == len(files)


def test_a_web_server_describes_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(web, "WAITS", (0.01, 0.01))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        (file,) = list_files(parse(f"{url}/sub/a.txt?x=1"))
        assert (file.name, file.bytes, file.stamp != "") == ("a.txt", 4, True)
        with pytest.raises(
            DataError, match=f"^corpus {url}/none.txt cannot be read: the server answers 404 File not found$"
        ):
            list_files(parse(f"{url}/none.txt"))
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(
        DataError, match=f"^corpus {url}/sub/a.txt cannot be read: no connection \\(.*refused\\), in 3 tries$"
    ):
        list_files(parse(f"{url}/sub/a.txt"))
