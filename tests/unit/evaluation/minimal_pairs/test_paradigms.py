"""BLiMP's files read, selected and downloaded."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.errors import ConfigError, DataError
from pipeline.evaluation.minimal_pairs import paradigms
from pipeline.evaluation.minimal_pairs.paradigms import (
    PAIRS,
    PARADIGMS,
    SELECTIONS,
    Paradigm,
    download,
    read_blimp,
    select,
)


def pair(number: int, phenomenon: str = "agreement") -> dict[str, str]:
    sentences = {"sentence_good": f"good {number}", "sentence_bad": f"bad {number}"}
    return sentences | {"linguistics_term": phenomenon, "pairID": str(number)}


def write_paradigm(folder: Path, name: str, numbers: range | list[int]) -> None:
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(pair(number)) + "\n" for number in numbers))


@pytest.fixture
def blimp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of 1,000 pairs, of a benchmark that has two."""
    monkeypatch.setattr(paradigms, "PARADIGMS", ("passive_1", "causative"))
    folder = tmp_path / "blimp"
    folder.mkdir()
    for name in ("passive_1", "causative"):
        write_paradigm(folder, name, range(PAIRS))
    return folder


def test_the_benchmark_has_67_paradigms() -> None:
    assert len(PARADIGMS) == len(set(PARADIGMS)) == 67


def test_pairs_are_read_in_the_order_of_their_numbers(blimp: Path) -> None:
    write_paradigm(blimp, "passive_1", list(reversed(range(PAIRS))))
    first, second = read_blimp(str(blimp), print)
    assert (first.name, second.name, first.phenomenon) == ("passive_1", "causative", "agreement")
    assert first.good == second.good == tuple(f"good {number}" for number in range(PAIRS))
    assert first.bad[999] == "bad 999"


def test_the_files_may_lie_in_a_subfolder_data(blimp: Path, tmp_path: Path) -> None:
    whole = tmp_path / "repository"
    whole.mkdir()
    blimp.rename(whole / "data")
    assert len(read_blimp(str(whole), print)) == 2


def test_a_missing_file_is_named(blimp: Path) -> None:
    (blimp / "causative.jsonl").unlink()
    with pytest.raises(DataError, match=r"blimp .* lacks 1 of BLiMP's 2 files, such as causative\.jsonl: copy them"):
        read_blimp(str(blimp), print)


def test_a_missing_pair_is_named(blimp: Path) -> None:
    write_paradigm(blimp, "causative", [number for number in range(PAIRS) if number != 17])
    with pytest.raises(DataError, match=r"causative\.jsonl has no pair 17 of 1,000: copy it again"):
        read_blimp(str(blimp), print)


@pytest.mark.parametrize("line", ["{", "[]", '{"sentence_good": 3}'])
def test_a_damaged_file_is_named(blimp: Path, line: str) -> None:
    (blimp / "causative.jsonl").write_text(line)
    with pytest.raises(DataError, match=r"causative\.jsonl cannot be read \("):
        read_blimp(str(blimp), print)


def test_selections_are_of_every_paradigm_and_a_fifth_is_odd() -> None:
    texts = tuple(str(number) for number in range(PAIRS))
    whole = [Paradigm(name=name, phenomenon="", good=texts, bad=texts) for name in "ab"]
    counts = {name: [len(paradigm.good) for paradigm in select(whole, name)] for name in SELECTIONS}
    assert counts == {"all": [1000] * 2, "odd": [500] * 2, "even": [500] * 2, "fifth": [200] * 2}
    odd, fifth = (set(select(whole, name)[1].bad) for name in ("odd", "fifth"))
    assert fifth < odd == {str(number) for number in range(1, PAIRS, 2)}


DIALOGUE = {
    "row": 0,
    "fragment": "sentence",
    "sentence_good": "A: What did you get?\nB: I got a chair.",
    "sentence_bad": "A: Who did you get?\nB: I got a chair for him.",
}


def write_lines(folder: Path, name: str, rows: list[dict]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_other_files_of_pairs_are_paradigms_with_pairs_numbered_by_line(tmp_path: Path) -> None:
    short = {"sentence_good": "He leaves.", "sentence_bad": "Leaves he does not."}
    write_lines(tmp_path / "pairs", "turn_taking", [short] * 3)
    write_lines(tmp_path / "pairs", "qa_congruence_easy", [DIALOGUE, short] * 5)
    (tmp_path / "pairs" / "README.md").touch()
    first, second = read_blimp(str(tmp_path / "pairs"), print)
    assert [(one.name, one.phenomenon, len(one.good)) for one in (first, second)] == [
        ("qa_congruence_easy", "", 10),
        ("turn_taking", "", 3),
    ]
    assert (first.good[0], first.bad[0]) == (DIALOGUE["sentence_good"], DIALOGUE["sentence_bad"])
    assert [one.numbers for one in select([first], "fifth")] == [(3, 7)]
    with pytest.raises(DataError, match=r"^turn_taking\.jsonl has 0 of its 3 pairs in the selection fifth, but an "):
        select([first, second], "fifth")


def test_filtered_blimp_keeps_its_numbers_and_leaves_other_files_out(blimp: Path) -> None:
    filtered = [pair(number) for number in (13, 3, 7, 100)]
    write_paradigm(blimp, "passive_1", [3, 13, 20])
    for row in filtered:
        row["pair_id"] = int(row.pop("pairID"))  # ty: ignore[invalid-assignment]
    write_lines(blimp, "causative", filtered)
    write_lines(blimp, "notes", [{"text": "of something else"}])
    said: list[str] = []
    passive, causative = read_blimp(str(blimp), said.append)
    assert (passive.numbers, causative.numbers) == ((3, 13, 20), (3, 7, 13, 100))
    assert select([causative], "fifth")[0].good == ("good 3", "good 7", "good 13")
    assert said == ["blimp: notes.jsonl left out: not of BLiMP"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"Context1": "a", "Target1": "b"}', "is not an object with the texts sentence_good and sentence_bad"),
        ("a,b", "is not JSON: Expecting value"),
    ],
)
def test_files_of_something_else_are_named_with_the_line(tmp_path: Path, line: str, message: str) -> None:
    write_lines(tmp_path, "ewok", [DIALOGUE])
    with (tmp_path / "ewok.jsonl").open("a") as file:
        file.write(line)
    with pytest.raises(DataError, match=rf"blimp .*ewok\.jsonl cannot be read \(line 2 {message}"):
        read_blimp(str(tmp_path), print)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(blimp: Path) -> Iterator[str]:
    """The URL at which the files are served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(blimp)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_download_is_whole_or_not_there(served: str, blimp: Path, tmp_path: Path) -> None:
    said: list[str] = []
    download(str(tmp_path / "new"), said.append, served)
    assert said == [f"blimp: downloading 2 files from {served} to {tmp_path / 'new'}"]
    assert read_blimp(str(tmp_path / "new"), print) == read_blimp(str(blimp), print)
    (blimp / "causative.jsonl").unlink()
    with pytest.raises(DataError, match=r"causative\.jsonl cannot be downloaded \(404"):
        download(str(tmp_path / "other"), print, served)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blimp", "new"]


def test_a_folder_that_another_process_has_downloaded_meanwhile_is_kept(served: str, tmp_path: Path) -> None:
    for _ in range(2):
        download(str(tmp_path / "new"), print, served)
    (tmp_path / "new" / "causative.jsonl").unlink()
    with pytest.raises(ConfigError, match="blimp .*new cannot be written: .*not empty"):
        download(str(tmp_path / "new"), print, served)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blimp", "new"]
