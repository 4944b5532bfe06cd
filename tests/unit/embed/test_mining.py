"""Hard negatives from made-up vectors, chosen by hand, and by the whole job with an encoder of random weights."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from jobs.mine import main
from pipeline.config.mine import Mine
from pipeline.config.placement import ModelPlacement
from pipeline.embed import mining
from pipeline.embed import pairs as reading
from pipeline.embed.mining import Miner
from pipeline.embed.model import VectorModel, describe, load
from pipeline.embed.pairs import Matches, digest, open_pairs
from pipeline.errors import ConfigError, DataError
from pipeline.tables.bad_rows import BadRows
from pipeline.tasks.matches import match_columns, read_matches
from tests.conftest import WORDS
from tests.unit.embed.conftest import Write

ANGLES = {"near": 10, "match": 20, "just below": 22, "far": 40, "farther": 60, "other": 90}
"""Text of the vectors -> angle to the query in degrees."""


@dataclass(frozen=True)
class ByAngle:
    """An encoder that knows the angles of texts with the prompt of documents; all queries have the angle 0."""

    prompt: str = "query: "

    def vectors(self, texts: list[str]) -> np.ndarray:
        return on_circle([0 if self.prompt else ANGLES[text.strip().lower()] for text in texts])


def on_circle(degrees: list[int]) -> np.ndarray:
    return np.array([[np.cos(np.radians(angle)), np.sin(np.radians(angle))] for angle in degrees], np.float32)


def mined(
    write_vectors: Write,
    rows: list[tuple[str, str]],
    *,
    index: bool = False,
    texts: list[str] | None = None,
    chunks: list[int] | None = None,
    **settings,
) -> list[list[str]]:
    """The negative texts of rows (query, match), found among `texts`."""
    texts = list(ANGLES) if texts is None else texts
    vectors = write_vectors(on_circle([ANGLES[text.strip().lower()] for text in texts]), texts=texts, chunks=chunks)
    config = Mine(vectors=vectors.folder, pairs="x", output="x.jsonl", **settings)
    queries, matching = [query for query, _ in rows], [match for _, match in rows]
    of_pairs, model = Matches.of(iter([(queries, matching)])), cast(VectorModel, ByAngle())
    miner = Miner(config=config, vectors=vectors, model=model, matches=of_pairs, with_index=index, report=print)
    return miner.negatives(queries, matching)


@pytest.mark.parametrize("index", [False, True])
def test_negatives_are_similar_but_less_so_than_the_match_by_the_margin(index: bool, write_vectors: Write) -> None:
    rows = [("q", "match")]  # cosines: near 0.985, match 0.940, just below 0.927, far 0.766, farther 0.5
    assert mined(write_vectors, rows, index=index, negatives=2) == [["far", "farther"]]


def test_without_a_margin_everything_below_the_match_is_a_negative(write_vectors: Write) -> None:
    rows = [("q", "match")]
    assert mined(write_vectors, rows, margin=0.0) == [["just below", "far", "farther", "other"]]


def test_texts_that_match_the_query_in_another_row_are_no_negatives(write_vectors: Write) -> None:
    rows = [("q", "match"), ("q", "FAR "), ("other query", "match")]
    assert mined(write_vectors, rows) == [["farther", "other"], ["farther", "other"], ["far", "farther", "other"]]


@pytest.mark.parametrize(("margin", "expected"), [(0.05, ["far"]), (0.3, [])])
def test_only_the_most_similar_texts_are_candidates(margin: float, expected: list, write_vectors: Write) -> None:
    assert mined(write_vectors, [("q", "match")], negatives=2, among=4, margin=margin) == [expected]


def test_equal_texts_are_chosen_once_and_the_query_itself_is_no_negative(write_vectors: Write) -> None:
    texts = ["match", "far", " Far", "FAR", "farther", "other"]
    assert mined(write_vectors, [("farther", "match")], texts=texts) == [["far", "other"]]


def test_a_chunk_of_a_matching_text_is_no_negative(write_vectors: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANGLES, "farfarther", 50)
    rows = [("q", "match"), ("q", "farfarther")]
    chunks = [0, 0, 1, 0]  # far and farther are the chunks of one text, which matches
    found = mined(write_vectors, rows, texts=["match", "far", "farther", "other"], chunks=chunks)
    assert found == [["other"], ["other"]]


def test_many_matches_do_not_hide_the_texts_behind_them(write_vectors: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    near = {f"match {number}": 30 + number for number in range(9)}
    for text, angle in near.items():
        monkeypatch.setitem(ANGLES, text, angle)
    rows = [("q", "match"), *(("q", text) for text in near)]
    assert mined(write_vectors, rows, texts=["match", *near, "farther"], negatives=1)[0] == ["farther"]


def test_many_copies_of_a_text_do_not_hide_the_texts_behind_them(write_vectors: Write) -> None:
    texts = ["match", *["far"] * 20, "farther", "other"]
    found = mined(write_vectors, [("q", "match"), ("p", "match")], texts=texts, negatives=3)
    assert found == [["far", "farther", "other"]] * 2


def test_binary_vectors_are_compared_with_a_binary_match(write_vectors: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    # Eight numbers, because bits are stored in bytes. The match and the first text have the same bits.
    numbers = {
        "q": [9, 1, 1, 1, 1, 1, 1, 1],
        "match": [1, 9, 9, 9, 9, 9, 9, 9],
        "same bits": [9] * 8,
        "far": [1, 1, 1, 1, 1, 1, -1, -1],
    }
    monkeypatch.setattr(ByAngle, "vectors", lambda _, texts: np.array([numbers[text] for text in texts], np.float32))
    vectors = write_vectors(
        np.array([numbers["same bits"], numbers["far"]], np.float32), texts=["same bits", "far"], format="binary"
    )
    config = Mine(vectors=vectors.folder, pairs="x", output="x.jsonl")
    of_pairs, model = Matches.of(iter([(["q"], ["match"])])), cast(VectorModel, ByAngle())
    miner = Miner(config=config, vectors=vectors, model=model, matches=of_pairs, with_index=False, report=print)
    assert miner.negatives(["q"], ["match"]) == [["far"]]


def test_matches_of_a_query_are_found_among_many(write_vectors: Write) -> None:
    blocks = [([f"query {row % 50}" for row in range(500)], [f"text {row}" for row in range(500)])]
    matches = Matches.of(iter(blocks))
    expected = {digest(f"text {row}") for row in range(500) if row % 50 == 7} | {digest("Query  7")}
    assert matches.of_query("query 7") == expected and len(expected) == 11
    assert matches.of_query("unknown") == {digest("unknown")}


def write_rows(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_columns_are_the_usual_ones_or_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "pairs.jsonl", [{"question": "a", "answer": "b", "x": "c"}])
    settings = {"vectors": "v", "pairs": path, "output": "o.jsonl"}
    assert list(open_pairs(Mine(**settings)).blocks()) == [(["a"], ["b"])]
    assert list(open_pairs(Mine(**settings, text="x", pair="answer")).blocks()) == [(["c"], ["b"])]
    with pytest.raises(DataError, match="has no column pair: its columns are .*; name the right one with --pair"):
        open_pairs(Mine(**settings, text="x"))


def test_rows_are_read_in_blocks_over_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ROWS_AT_ONCE", 2)
    for name in "ab":
        write_rows(tmp_path / f"{name}.jsonl", [{"query": f"{name}{row}", "positive": "p"} for row in range(3)])
    pairs = open_pairs(Mine(vectors="v", pairs=str(tmp_path), output="o.jsonl"))
    assert [queries for queries, _ in pairs.blocks()] == [["a0", "a1"], ["a2"], ["b0", "b1"], ["b2"]]


def test_an_output_in_the_folder_of_the_pairs_is_no_file_of_pairs(tmp_path: Path) -> None:
    write_rows(tmp_path / "pairs.jsonl", [{"query": "a", "positive": "b"}])
    output = write_rows(tmp_path / "mined.jsonl", [{"query": "a", "positive": "b", "negatives": ["c"]}])
    for given in (str(tmp_path), f"{tmp_path}/*.jsonl"):
        pairs = open_pairs(Mine(vectors="v", pairs=given, output=output))
        assert [file.location for file in pairs.files] == [f"{tmp_path}/pairs.jsonl"]
    with pytest.raises(ConfigError, match=r"^pairs \(.+mined.jsonl\) has no file except the output: give another"):
        open_pairs(Mine(vectors="v", pairs=output, output=output))


@pytest.mark.parametrize("value", ["", "  ", None])
def test_a_row_without_a_text_is_an_error_with_its_number(tmp_path: Path, value: object) -> None:
    rows = [{"query": "a", "positive": "b"}, {"query": "a", "positive": value}]
    with pytest.raises(DataError, match=r"pairs.jsonl, row 2: column positive is .*; it must be a text, or the row"):
        list(open_pairs(Mine(vectors="v", pairs=write_rows(tmp_path / "pairs.jsonl", rows), output="o.jsonl")).blocks())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"negatives": 0}, "negatives .0. must be at least 1"),
        ({"negatives": 5, "among": 4}, r"among \(4\) must be at least negatives \(5\)"),
        ({"margin": 1.5}, r"margin \(1.5\) must lie between 0 and 1"),
        ({"output": "o.csv"}, r"output \(o.csv\) must end in .jsonl or .parquet"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Mine(**{"vectors": "v", "pairs": "p", "output": "o.jsonl"} | settings)


@pytest.fixture
def job(tiny_run: Path, write_vectors: Write, tmp_path: Path) -> list[str]:
    """Arguments of the job, with vectors of twelve texts that a run's encoder made."""
    texts = [" ".join(WORDS[number : number + 3]) for number in range(12)]
    loaded = load(str(tiny_run), ModelPlacement(device="cpu"), None, ())
    folder = write_vectors(loaded.vectors(texts), texts=texts, model=describe(loaded)).folder
    rows = [{"query": text, "positive": text.upper()} for text in texts]
    output = str(tmp_path / "negatives.jsonl")
    return ["--vectors", folder, "--pairs", write_rows(tmp_path / "pairs.jsonl", rows), "--output", output]


def test_the_job_writes_the_rows_that_fine_tuning_reads(job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*job, "--margin", "0", "--negatives", "3"]) == 0
    rows = read_matches(job[-1], match_columns(job[-1], None, None, ()), BadRows(), loss="contrastive").to_pylist()
    given = [json.loads(line) for line in Path(job[3]).read_text().splitlines()]
    assert [(row["first"], row["second"]) for row in rows] == [(row["query"], row["positive"]) for row in given]
    counts = [len(row["negatives"]) for row in rows]
    assert max(counts) == 3 and all(row["first"] not in row["negatives"] for row in rows)
    none = f"; {counts.count(0)} rows have none, as" if counts.count(0) else ""
    assert f"12 rows with {sum(counts)} negative texts{none}" in capsys.readouterr().out
    assert main(job) == 2 and "exists already: give --replace" in capsys.readouterr().err
    assert main([*job, "--replace"]) == 0


def test_vectors_without_texts_are_refused(job: list[str], write_vectors: Write, capsys) -> None:
    folder = write_vectors(np.ones((3, 2), np.float32), name="bare", keep_text=False).folder
    assert main(["--vectors", folder, *job[2:]]) == 2
    assert "has no texts: embed them again without --no-keep-text" in capsys.readouterr().err
    assert not Path(job[-1]).exists()


def test_free_memory_is_given_back_after_each_block(job: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[None] = []
    monkeypatch.setattr(reading, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(mining, "return_free_memory", lambda: given_back.append(None))
    assert main(job) == 0 and len(given_back) == 3, "twelve rows"
