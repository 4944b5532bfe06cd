"""GLUE's archives, served on this machine."""

import io
import stat
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.errors import ConfigError, DataError
from pipeline.tasks import download
from pipeline.tasks.download import ARCHIVES, fetch_glue
from pipeline.tasks.glue import TASKS
from pipeline.tasks.tables import read_split

RTE = dict.fromkeys(
    ("RTE/train.tsv", "RTE/dev.tsv", "RTE/test.tsv"),
    "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n",
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the URL that it is served at."""
    folder = tmp_path / "served"
    (folder / "glue/data").mkdir(parents=True)
    (folder / "senteval/senteval_data").mkdir(parents=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def zipped(files: dict[str, str], method: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def test_an_archive_is_fetched_once_and_leaves_nothing_else(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, base = served
    (folder / "glue/data/RTE.zip").write_bytes(zipped(RTE | {"__MACOSX/RTE/x": ""}))
    (folder / "glue/data/AX.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    said: list[str] = []
    fetch_glue(str(tmp_path / "glue"), ("rte", "ax", "rte"), said.append, base)
    assert said == [f"fetching {base}/glue/data/RTE.zip", f"fetching {base}/glue/data/AX.tsv"]
    assert sorted(path.name for path in (tmp_path / "glue").iterdir()) == ["RTE", "diagnostic"]
    assert read_split(TASKS["rte"], str(tmp_path / "glue"), "train")["label"].to_pylist() == [
        "entailment",
        "not_entailment",
    ]
    assert read_split(TASKS["ax"], str(tmp_path / "glue"), "test").num_rows == 1
    fetch_glue(str(tmp_path / "glue"), ("rte", "ax"), said.append, base)
    assert len(said) == 2


def test_mrpc_is_divided_by_the_listed_ids(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, base = served
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    (folder / "senteval/senteval_data/msr_paraphrase_train.txt").write_text(
        head + '1\t10\t11\ta "b\tc\r\n0\t20\t21\té\tf\r\n0\t21\t20\tg\th\r\n', newline=""
    )
    (folder / "senteval/senteval_data/msr_paraphrase_test.txt").write_text(
        head + "1\t30\t31\tx\ty\r\n0\t40\t41\tz\tw\r\n", newline=""
    )
    (folder / "glue/data/mrpc_dev_ids.tsv").write_text("20\t21\n\n")
    fetch_glue(str(tmp_path / "glue"), ("mrpc",), lambda _: None, base)
    columns = "#1 ID\t#2 ID\t#1 String\t#2 String\n"
    assert {path.name: path.read_text() for path in (tmp_path / "glue/MRPC").iterdir()} == {
        "train.tsv": f'Quality\t{columns}1\t10\t11\ta "b\tc\n0\t21\t20\tg\th\n',
        "dev.tsv": f"Quality\t{columns}0\t20\t21\té\tf\n",
        "test.tsv": f"index\t{columns}0\t30\t31\tx\ty\n1\t40\t41\tz\tw\n",
    }
    (folder / "glue/data/mrpc_dev_ids.tsv").write_text("20\t21\n20\n")
    with pytest.raises(DataError, match=r"^mrpc_dev_ids.tsv:2: 1 columns instead of 2: download it again$"):
        fetch_glue(str(tmp_path / "other"), ("mrpc",), lambda _: None, base)


def test_what_cannot_be_fetched_is_one_line_with_url_and_remedy(served: tuple[Path, str], tmp_path: Path) -> None:
    remedy = (
        r"download GLUE by other means, in the official layout \(such as GLUE/CoLA/train.tsv\), and name its folder: "
        r"GLUE=folder for make, --data folder for the job$"
    )
    for base, why in ((served[1], "404 Client Error: .*"), ("http://127.0.0.1:1", ".*refused.*|HTTPConnectionPool.*")):
        with pytest.raises(
            DataError, match=rf"^{base}/glue/data/CoLA.zip cannot be fetched \(({why})\): {remedy}"
        ) as error:
            fetch_glue(str(tmp_path / "glue"), ("cola",), lambda _: None, base)
        assert "\n" not in str(error.value) and list((tmp_path / "glue").iterdir()) == []


def link() -> bytes:
    content, entry = io.BytesIO(), zipfile.ZipInfo("RTE/link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(entry, "/etc")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            zipped(RTE | {"../out.tsv": ""}),
            r"^RTE.zip is refused: its entry '../out.tsv' is a link, or would be written outside of its folder$",
        ),
        (
            zipped(RTE | {"RTE/../../out.tsv": ""}),
            r"^RTE.zip is refused: its entry 'RTE/../../out.tsv' is a link, or would .*",
        ),
        (zipped(RTE | {"/out.tsv": ""}), r"^RTE.zip is refused: its entry '/out.tsv' is a link, or would .*"),
        (zipped(RTE | {"c:\\out.tsv": ""}), r"^RTE.zip is refused: its entry .* is a link, or would .*"),
        (link(), r"^RTE.zip is refused: its entry 'RTE/link' is a link, or would .*"),
        (zipped(RTE)[:-9], r"^RTE.zip is not a valid zip file \(.*\): download it again$"),
        (
            zipped(RTE, zipfile.ZIP_DEFLATED).replace(b"RTE/train.tsv", b"RTE/train.tsv\xff", 1),
            r"^RTE.zip is not a valid zip file \(.*\): download it again$",
        ),
        (b"<html>", r"^RTE.zip is not a valid zip file \(File is not a zip file\): download it again$"),
        (zipped({"RTE/train.tsv": ""}), r"RTE.zip has no RTE/dev.tsv: download GLUE by other means, .*"),
    ],
)
def test_an_archive_that_is_none_leaves_nothing(
    content: bytes, words: str, served: tuple[Path, str], tmp_path: Path
) -> None:
    (served[0] / "glue/data/RTE.zip").write_bytes(content)
    with pytest.raises(DataError, match=words):
        fetch_glue(str(tmp_path / "glue"), ("rte",), lambda _: None, served[1])
    assert list((tmp_path / "glue").iterdir()) == [] and sorted(path.name for path in tmp_path.iterdir()) == [
        "glue",
        "served",
    ]


def test_an_archive_that_unpacks_to_too_much_is_refused(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MOST_UNPACKED", 1_000)
    (served[0] / "glue/data/RTE.zip").write_bytes(zipped({"RTE/train.tsv": "0" * 1_001}, zipfile.ZIP_DEFLATED))
    with pytest.raises(
        DataError, match=r"^RTE.zip is refused: unpacked, it would have 1,001 bytes, more than the limit of 1,000$"
    ):
        fetch_glue(str(tmp_path / "glue"), ("rte",), lambda _: None, served[1])
    assert list((tmp_path / "glue").iterdir()) == []


def test_a_folder_that_lacks_files_and_is_somebody_s_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE/train.tsv").write_text("mine")
    with pytest.raises(
        DataError,
        match=r"RTE has no dev.tsv: copy this file into it, or remove the folder to fetch the whole task again$",
    ):
        fetch_glue(str(tmp_path), ("rte",), lambda _: None)
    assert (tmp_path / "RTE/train.tsv").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        DataError,
        match=r"file/RTE cannot be written \(.*File exists.*\): free space on its disk, or name another "
        r"folder$",
    ):
        fetch_glue(str(tmp_path / "file"), ("rte",), lambda _: None)


def test_every_task_has_its_archive_and_others_are_refused(tmp_path: Path) -> None:
    assert set(ARCHIVES) == set(TASKS)
    assert all(
        split.file.startswith(f"{ARCHIVES[name].folder}/") for name, task in TASKS.items() for split in task.splits
    )
    with pytest.raises(
        ConfigError,
        match=r"^task \(squad\) is not in GLUE: choose from cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax$",
    ):
        fetch_glue(str(tmp_path), ("rte", "squad"), lambda _: None)
    with pytest.raises(
        ConfigError,
        match=r"^data \(s3://x/glue\) must be a local folder, into which GLUE is downloaded: name a local folder, or "
        r"copy the unpacked archives to the URL$",
    ):
        fetch_glue("s3://x/glue", ("rte",), lambda _: None)
