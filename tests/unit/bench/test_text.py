from pathlib import Path

import pytest

from pipeline.bench.benches import AIMS, FLOORS, verdict
from pipeline.bench.text import MeasuredStage, measure, ratios
from pipeline.bench.windows import split_corpora
from pipeline.config.data import Sampling
from pipeline.corpus.prepared import read_window
from pipeline.errors import DataError
from pipeline.text.vocabulary import Vocabulary


@pytest.fixture
def books(tmp_path: Path) -> Path:
    (tmp_path / "books").mkdir()
    for number in range(8):
        text = "\n".join(
            f"The {place}th line of book {number} has a few words of its own. It ends here." for place in range(150)
        )
        (tmp_path / "books" / f"{number}.txt").write_text(text)
    return tmp_path / "books"


def test_the_halves_share_no_file(books: Path, tmp_path: Path) -> None:
    halves = split_corpora([str(books)], str(tmp_path / "out"), 2)
    parents = [
        {parent for window in half.train for parent in read_window(half, window)["parent"].to_pylist()}
        for half in halves
    ]
    assert parents[0].isdisjoint(parents[1]) and len(parents[0] | parents[1]) == 8


def test_every_way_is_measured_on_the_same_text(books: Path, tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    pytest.importorskip("transformers")
    found = measure([str(books)], tiny_vocabulary, Sampling(maximum_length=64), 1, str(tmp_path / "out"))
    assert (
        found.tokens > found.rows > 10
        and found.bytes > 30_000
        and all(seconds > 0 for seconds in found.seconds.values())
    )
    assert set(ratios(found, "wordpiece")) <= set(AIMS)
    assert 0.5 < found.seconds["usual tokens"] / found.tokens < 2


def test_ratios_by_hand() -> None:
    seconds = {
        "encode_batch_fast": 10.0,
        "ids, warm": 0.5,
        "ids, cold": 2.0,
        "whole path": 1.0,
        "usual preparation": 20.0,
        "usual tokens": 3e6,
    }
    assert ratios(MeasuredStage(bytes=1, tokens=3_000_000, rows=1, seconds=seconds), "unigram") == {
        "unigram warm / encode_batch_fast": 20.0,
        "unigram cold / encode_batch_fast": 5.0,
        "unigram whole path / usual preparation": 20.0,
        "unigram whole path, M tokens/s": 3.0,
    }


def test_a_ratio_below_its_floor_fails(capsys: pytest.CaptureFixture[str]) -> None:
    name = "Ray Data / the same work without it"
    assert verdict({name: FLOORS[name] + 0.01}) == 0
    assert verdict({name: FLOORS[name] - 0.01}) == 1
    assert f"below its floor: {name}" in capsys.readouterr().out
    assert verdict({"unigram whole path, M tokens/s": 0.1}) == 0, "what has no floor is printed only"
    assert capsys.readouterr().out == "unigram whole path, M tokens/s: 0.10\n"


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A single file that is in one half only, and so the other has none.")
    with pytest.raises(DataError, match="too little text for one window"):
        split_corpora([str(tmp_path / "a.txt")], str(tmp_path / "out"), 1)
