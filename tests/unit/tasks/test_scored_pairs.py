"""Files of scored pairs and of triplets, with published columns and with others."""

from pathlib import Path

import pytest

from pipeline.config.finetune import Finetune
from pipeline.errors import DataError
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.roles import LAYOUTS
from pipeline.tasks.known import TASKS
from pipeline.tasks.own import read_own
from pipeline.tasks.scored_pairs import pair_columns, read_pairs, read_triplets

SICK_COLUMNS = LAYOUTS["similarity"][1]
STSB = 'index\tsentence1\tsentence2\tscore\n0\tA man.\tA "man".\t4.5\n1\tA dog.\tNo cat.\t0\n'


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("dev.tsv", STSB, ("sentence1", "sentence2", "score")),
        ("SICK.tsv", "\t".join(SICK_COLUMNS) + "\na\tb\t1\n", ("sentence_A", "sentence_B", "relatedness_score")),
        ("SICK_train.txt", "pair_ID\t" + "\t".join(SICK_COLUMNS) + "\n1\ta\tb\t1\n", SICK_COLUMNS),
        ("own.csv", "text,pair,label\na,b,1\n", ("text", "pair", "label")),
        ("own.jsonl", '{"sentence1": "a", "sentence2": "b", "score": 1}\n', ("sentence1", "sentence2", "score")),
    ],
)  # fmt: skip
def test_columns_are_found(tmp_path: Path, name: str, content: str, columns: tuple[str, str, str]) -> None:
    (tmp_path / name).write_text(content)
    found = pair_columns(str(tmp_path / name), None, None, ())
    assert (found.first, found.second, found.label) == columns


def test_sick_s_own_files_are_read_by_scores_and_by_fine_tuning(tmp_path: Path) -> None:
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
    for name in ("SICK_train.txt", "SICK_trial.txt"):
        (tmp_path / name).write_text(f"{header}1\tA dog\tA cat\t3.5\tNEUTRAL\r\n2\tA man\tA man\t5\tENTAILMENT\r\n")
    train, dev = (f"{tmp_path}/SICK_{split}.txt" for split in ("train", "trial"))
    task, items, _ = read_own(Finetune(checkpoint="m", train=train, kind="similarity"), train, dev)
    assert task.kind == "similarity" and items["dev"]["second"].to_pylist() == ["A cat", "A man"]
    assert read_pairs(train, pair_columns(train, None, None, ()), BadRows()).scores.tolist() == [3.5, 5]
    assert [split.name for split in TASKS["sick-similarity"].splits] == ["train", "dev", "test"]


def test_named_columns_go_before_those_found(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text(STSB)
    found = pair_columns(str(tmp_path / "dev.tsv"), "sentence1", None, ("score",))
    assert (found.first, found.second, found.label) == ("sentence1", "pair", "score")


def test_pairs_are_read_with_their_scores(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text(STSB)
    pairs = read_pairs(str(tmp_path / "dev.tsv"), pair_columns(str(tmp_path / "dev.tsv"), None, None, ()), BadRows())
    assert (pairs.first, pairs.second) == (["A man.", "A dog."], ['A "man".', "No cat."])
    assert pairs.scores.tolist() == [4.5, 0]


def test_scores_that_are_equal_or_no_numbers_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    columns = pair_columns(str(file), "text", "pair", ("label",))
    file.write_text("text,pair,label\na,b,1\nc,d,1.0\n")
    with pytest.raises(DataError, match=r"a\.csv: all 2 pairs have the score 1, so nothing correlates$"):
        read_pairs(str(file), columns, BadRows())
    file.write_text("text,pair,label\na,b,1\nc,d,high\ne,f,2\n")
    with pytest.raises(DataError, match=r"a\.csv:3: label 'high' is not a number$"):
        read_pairs(str(file), columns, BadRows())
    bad = BadRows(skip=True)
    assert read_pairs(str(file), columns, bad).scores.tolist() == [1, 2] and bad.reasons.total() == 1


def test_triplets(tmp_path: Path) -> None:
    file, names = tmp_path / "a.jsonl", ("anchor", "positive", "negative")
    file.write_text(
        '{"anchor": "a", "positive": "b", "negative": "c"}\n{"anchor": "a", "positive": " ", "negative": "c"}\n'
    )
    with pytest.raises(DataError, match=r"a\.jsonl:2: column positive is ' '; it must be a text$"):
        read_triplets(str(file), names, BadRows())
    bad = BadRows(skip=True)
    assert read_triplets(str(file), names, bad) == [("a", "b", "c")] and bad.reasons == {"no-text": 1}
    file.write_text('{"anchor": "a\\ud800", "positive": "b", "negative": "c"}\n')
    assert read_triplets(str(file), names, BadRows()) == [("a\ufffd", "b", "c")]
    with pytest.raises(DataError, match=r"has no column x: .*; name yours with --text, --pair and --negative$"):
        read_triplets(str(file), ("anchor", "positive", "x"), BadRows())
    file.write_text('{"anchor": 1, "positive": "b", "negative": "c"}\n')
    with pytest.raises(DataError, match="has no row that can be used"):
        read_triplets(str(file), names, BadRows(skip=True))
