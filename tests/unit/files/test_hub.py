"""hf:// locations, with a local folder in the hub's place below fsspec."""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.registry import _registry

from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_records
from pipeline.corpus.sources import parse
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage


@pytest.fixture
def dataset(hub: Path) -> Path:
    """datasets/wikimedia/wikipedia with two Parquet files and another file."""
    folder = hub / "datasets" / "wikimedia" / "wikipedia"
    (folder / "20231101.de").mkdir(parents=True)
    for number in range(2):
        table = pa.table({"id": [f"{number}"], "url": ["u"], "title": [f"T{number}"], "text": [f"Text {number}."]})
        pq.write_table(table, folder / "20231101.de" / f"train-0000{number}.parquet")
    (folder / "READ ME.md").write_text("About it.")
    return folder


def texts(spec: str) -> list[tuple[str, str, list[str]]]:
    return [
        (record.id, record.title, list(record.paragraphs))
        for file in list_files(parse(spec))
        for record in file_records(file)
    ]


def test_files_folders_and_patterns_of_the_hub(dataset: Path):
    base = "hf://datasets/wikimedia/wikipedia"
    assert texts(f"{base}/20231101.de/train-00001.parquet") == [("train-00001.parquet:0:1", "T1", ["Text 1."])]
    assert texts(f"{base}/20231101.de") == [
        ("train-00000.parquet:0:0", "T0", ["Text 0."]),
        ("train-00001.parquet:0:1", "T1", ["Text 1."]),
    ]
    assert texts(f"{base}/*.de/train-*.parquet") == [
        ("20231101.de/train-00000.parquet:0:0", "T0", ["Text 0."]),
        ("20231101.de/train-00001.parquet:0:1", "T1", ["Text 1."]),
    ]
    assert texts(f"{base}/READ*") == [("READ ME.md", "READ ME.md", ["About it."])]


def test_what_the_hub_does_not_have(dataset: Path):
    with pytest.raises(ConfigError, match=r"^corpus hf://datasets/wikimedia/none: no such file or folder"):
        list_files(parse("hf://datasets/wikimedia/none"))
    (file,) = list_files(parse("hf://datasets/wikimedia/wikipedia/READ*"))
    (dataset / "READ ME.md").unlink()
    with pytest.raises(DataError, match=r"^hf://datasets/wikimedia/wikipedia/READ%20ME.md cannot be read: "):
        list(file_records(file))


def test_a_hub_that_cannot_be_reached_is_one_line(hub: Path, monkeypatch: pytest.MonkeyPatch):
    class ConnectError(Exception):
        pass

    def refused(*_: object, **__: object) -> None:
        raise ConnectError("[Errno -2] Name or service not known\nand more")

    monkeypatch.setattr(DirFileSystem, "info", refused)
    with pytest.raises(DataError) as error:
        list_files(parse("hf://datasets/wikimedia/wikipedia"))
    assert (
        str(error.value)
        == "corpus hf://datasets/wikimedia/wikipedia cannot be read: [Errno -2] Name or service not known"
    )


def test_without_its_library_the_hub_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(_registry, "hf", raising=False)
    with pytest.raises(ConfigError) as refused:
        storage.filesystem("hf://datasets/wikimedia/wikipedia")
    assert (
        str(refused.value)
        == "hf://datasets/wikimedia/wikipedia: hf:// needs huggingface_hub: pip install 'bertstream[hub]'"
    )
