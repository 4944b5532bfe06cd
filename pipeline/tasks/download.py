"""Download GLUE's official archives once."""

import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import requests

from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.files.locations import is_url
from pipeline.reporting import Report
from pipeline.tables.content import lines
from pipeline.tasks.glue import TASKS

BASE = "https://dl.fbaipublicfiles.com"
"""Host of the archives, run by the benchmark's owners (gluebenchmark.com/tasks)."""
TIMEOUT = (10, 60)
"""Maximum seconds to connect, and between two reads."""
BLOCK_BYTES = 1 << 20
MOST_UNPACKED = 2 << 30  # bytes; the largest archive, QQP, unpacks to about 100 MB
SHOWN_CHARACTERS = 200
"""Maximum number of characters that our messages quote from an error of the requests library."""


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The files to download for one task, and the function that makes the task's folder from them."""

    folder: str
    """Name of the task's folder, both in the archive and in the data folder."""
    files: tuple[str, ...]
    """Paths relative to the base URL."""
    fill: Callable[[list[Path], Path], None]
    """Function of (downloaded files, path of the task's folder) that creates the folder from the files."""


def fetch_glue(folder: str, tasks: Sequence[str], report: Report, base: str = BASE) -> None:
    """Download the tasks that are missing in a local folder, in the layout that pipeline.tasks.glue reads.

    A task's folder appears only when it is complete. Raises ConfigError if `folder` is a URL, or a task is not one of
    GLUE's. Raises DataError if a file cannot be downloaded, unpacked or written, or an existing folder is incomplete.
    """
    if is_url(folder):
        raise ConfigError(
            f"data ({folder}) must be a local folder, into which GLUE is downloaded: name a local folder, or copy "
            "the unpacked archives to the URL"
        )
    if unknown := [name for name in tasks if name not in ARCHIVES]:
        raise ConfigError(f"task ({', '.join(unknown)}) is not in GLUE: choose from {', '.join(ARCHIVES)}")
    root = Path(folder)
    for name in dict.fromkeys(tasks):
        if not _is_complete(root, name):
            try:
                _fetch_task(root, name, report, base)
            except OSError as error:
                raise DataError(
                    f"{root / ARCHIVES[name].folder} cannot be written ({storage.first_line(error)}): free "
                    "space on its disk, or name another folder"
                ) from error


def _is_complete(root: Path, task: str) -> bool:
    """Return whether a task's folder has all of its files. Raises DataError if the folder exists but lacks a file."""
    folder, missing = root / ARCHIVES[task].folder, _missing_files(root, task)
    if missing and folder.exists():
        raise DataError(
            f"{folder} has no {missing[0].rsplit('/', 1)[1]}: copy this file into it, or remove the folder to fetch "
            "the whole task again"
        )
    return not missing


def _missing_files(root: Path, task: str) -> list[str]:
    """Return the missing files of a task's splits."""
    return [split.file for split in TASKS[task].splits if not (root / split.file).is_file()]


def _fetch_task(root: Path, task: str, report: Report, base: str) -> None:
    """Download one task into a temporary folder, then move it into the data folder."""
    archive = ARCHIVES[task]
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{archive.folder}.", dir=root) as temporary:
        fetched = [
            _fetch(f"{base}/{file}", Path(temporary) / Path(file).name, report, _layout(task)) for file in archive.files
        ]
        unpacked = Path(temporary) / "unpacked"
        unpacked.mkdir()
        archive.fill(fetched, unpacked / archive.folder)
        if missing := _missing_files(unpacked, task):
            raise DataError(f"{base}/{archive.files[0]} has no {missing[0]}: {_layout(task)}")
        if not _is_complete(root, task):  # another process may have finished first
            os.replace(unpacked / archive.folder, root / archive.folder)


def _layout(task: str) -> str:
    """Return the advice at the end of messages about a task that cannot be downloaded."""
    return (
        "download GLUE by other means, in the official layout (such as "
        f"GLUE/{TASKS[task].splits[0].file}), and name its folder: GLUE=folder for make, --data folder for the job"
    )


def _fetch(url: str, target: Path, report: Report, advice: str) -> Path:
    """Download a URL to a file. Raises DataError with `advice` if the download fails or is incomplete."""
    report(f"fetching {url}")
    try:
        with requests.get(url, stream=True, timeout=TIMEOUT) as answer, open(target, "wb") as file:
            answer.raise_for_status()
            file.writelines(answer.iter_content(BLOCK_BYTES))
    except requests.RequestException as error:
        raise DataError(
            f"{url} cannot be fetched ({storage.first_line(error)[:SHOWN_CHARACTERS]}): {advice}"
        ) from error
    return target


def _unzip(fetched: list[Path], folder: Path) -> None:
    """Unpack an archive, which contains the task's folder.

    Raises DataError if the archive is damaged or unpacks to more than MOST_UNPACKED bytes. Also raises DataError if an
    entry is a link, or has a path outside of the folder into which the archive is unpacked.
    """
    (location,) = fetched
    try:
        with zipfile.ZipFile(location) as archive:
            for entry in archive.infolist():
                _require_inside(location.name, entry)
            if (unpacked := sum(entry.file_size for entry in archive.infolist())) > MOST_UNPACKED:
                raise DataError(
                    f"{location.name} is refused: unpacked, it would have {unpacked:,} bytes, more than the limit of "
                    f"{MOST_UNPACKED:,}"
                )
            archive.extractall(folder.parent)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(
            f"{location.name} is not a valid zip file ({storage.first_line(error)}): download it again"
        ) from error


def _require_inside(archive: str, entry: zipfile.ZipInfo) -> None:
    """Raise DataError for an entry that is a link, or would be written outside of the archive's folder."""
    if storage.escapes_folder(entry.filename) or stat.S_ISLNK(entry.external_attr >> 16):
        raise DataError(
            f"{archive} is refused: its entry {entry.filename!r} is a link, or would be written outside of its folder"
        )


def _move(fetched: list[Path], folder: Path) -> None:
    """Create the folder of the diagnostic set, which is a single table."""
    folder.mkdir()
    shutil.move(fetched[0], folder / "diagnostic.tsv")


def _divide_mrpc(fetched: list[Path], folder: Path) -> None:
    """Split MRPC's own training file as GLUE does: the pairs whose ids GLUE lists are the development split."""
    train, test, ids = (_table(str(file)) for file in fetched)
    listed = {tuple(row) for row in ids}
    head, rows = train[0], train[1:]
    splits = {
        "train": [head, *(row for row in rows if (row[1], row[2]) not in listed)],
        "dev": [head, *(row for row in rows if (row[1], row[2]) in listed)],
        "test": [
            ["index", *test[0][1:]],
            *([str(number), *row[1:]] for number, row in enumerate(test[1:])),
        ],  # an index replaces the labels, which GLUE does not publish
    }
    folder.mkdir()
    for name, split in splits.items():
        (folder / f"{name}.tsv").write_text(
            "".join("\t".join(row) + "\n" for row in split), encoding="utf-8", newline=""
        )


def _table(location: str) -> list[list[str]]:
    """Return the non-blank lines of a file as tab-separated fields.

    Raises DataError if a line does not have as many fields as the first line.
    """
    rows = [(number, line.strip().split("\t")) for number, line in enumerate(lines(location), 1) if line.strip()]
    for number, row in rows:
        if len(row) != len(rows[0][1]):
            raise DataError(
                f"{Path(location).name}:{number}: {len(row)} columns instead of {len(rows[0][1])}: download it again"
            )
    return [row for _, row in rows]


PARAPHRASES = "senteval/senteval_data/msr_paraphrase"
ARCHIVES: dict[str, Archive] = {
    "cola": Archive(folder="CoLA", files=("glue/data/CoLA.zip",), fill=_unzip),
    "sst2": Archive(folder="SST-2", files=("glue/data/SST-2.zip",), fill=_unzip),
    "mrpc": Archive(
        folder="MRPC",
        files=(f"{PARAPHRASES}_train.txt", f"{PARAPHRASES}_test.txt", "glue/data/mrpc_dev_ids.tsv"),
        fill=_divide_mrpc,
    ),
    "stsb": Archive(folder="STS-B", files=("glue/data/STS-B.zip",), fill=_unzip),
    "qqp": Archive(folder="QQP", files=("glue/data/QQP-clean.zip",), fill=_unzip),
    "mnli": Archive(folder="MNLI", files=("glue/data/MNLI.zip",), fill=_unzip),
    "qnli": Archive(folder="QNLI", files=("glue/data/QNLIv2.zip",), fill=_unzip),
    "rte": Archive(folder="RTE", files=("glue/data/RTE.zip",), fill=_unzip),
    "wnli": Archive(folder="WNLI", files=("glue/data/WNLI.zip",), fill=_unzip),
    "ax": Archive(folder="diagnostic", files=("glue/data/AX.tsv",), fill=_move),
}
"""Task -> its archive; the files are the same as in the benchmark's own download script."""
