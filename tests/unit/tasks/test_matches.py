"""Files of matching texts with and without negative texts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.finetune import Finetune
from pipeline.config.similarity import Similarity
from pipeline.errors import ConfigError, DataError
from pipeline.tables.bad_rows import BadRows
from pipeline.tasks.matches import MatchColumns, match_columns, read_matches
from pipeline.tasks.own import read_own, with_pair_columns

LISTS = [
    {"anchor": "a", "positive": "b", "negatives": ["c", "b", " ", "c", "d"]},
    {"anchor": "e", "positive": "f\ud800", "negatives": None},
]


def written(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("anchor,positive,negative", ("anchor", "positive", ("negative",))),
        ("negative_2,query,positive,negative_1", ("query", "positive", ("negative_1", "negative_2"))),
        ("question,answer", ("question", "answer", ())),
        ("text,pair,other", ("text", "pair", ())),
    ],
)
def test_columns_are_found(tmp_path: Path, header: str, columns: tuple[str, str, tuple[str, ...]]) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\n{','.join('x' for _ in header.split(','))}\n")
    found = match_columns(str(tmp_path / "a.csv"), None, None, ())
    assert (found.first, found.second, found.negatives) == columns
    found = match_columns(str(tmp_path / "a.csv"), None, None, ("two",))
    assert (found.first, found.second, found.negatives) == (*columns[:2], ("two",))
    found = match_columns(str(tmp_path / "a.csv"), "one", None, ())
    assert (found.first, found.second, found.negatives) == ("one", "pair", columns[2])
    found = match_columns(str(tmp_path / "a.csv"), None, "pair", ())
    assert (found.first, found.second, found.negatives) == ("text", "pair", columns[2])


def test_columns_of_negative_texts_are_those_of_any_row(tmp_path: Path) -> None:
    rows = [
        {"anchor": "a", "positive": "b"},
        {"anchor": "c", "positive": "d", "negative_2": "e"},
        {"anchor": "f", "positive": "g", "negative": ["h"]},
    ]
    lines, one_list = written(tmp_path / "a.jsonl", rows), tmp_path / "a.json"
    one_list.write_text(json.dumps(rows))
    for file in (lines, str(one_list)):
        columns = match_columns(file, None, None, ())
        assert columns.negatives == ("negative", "negative_2")
        table = read_matches(file, columns, BadRows(), loss="contrastive")
        assert table["negatives"].to_pylist() == [[], ["e"], ["h"]]
    missing = MatchColumns(first="anchor", second="positive", negatives=("negative", "other"))
    with pytest.raises(DataError, match=r"has no column other: its columns are .*; name yours with --text, --pair and"):
        read_matches(lines, missing, BadRows(), loss="contrastive")


def test_negative_texts_may_be_lists_and_never_equal_the_texts_of_their_row(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", LISTS)
    columns = match_columns(file, None, None, ())
    table = read_matches(file, columns, BadRows(), loss="contrastive")
    assert table.select(["id", "first", "second", "negatives"]).to_pylist() == [
        {"id": "1", "first": "a", "second": "b", "negatives": ["c", "d"]},
        {"id": "2", "first": "e", "second": "f\ufffd", "negatives": []},
    ]
    (tmp_path / "a.csv").write_text('anchor,positive,negative,negative_1\na,b,"[""c"", ""d""]",\na,b,,e\n')
    file = str(tmp_path / "a.csv")
    table = read_matches(file, match_columns(file, None, None, ()), BadRows(), loss="triplet")
    assert table["negatives"].to_pylist() == [["c", "d"], ["e"]]


def test_a_row_has_at_most_the_asked_number_of_negative_texts(tmp_path: Path) -> None:
    rows = [
        {"anchor": f"a {number}", "positive": f"b {number}", "negatives": [str(text) for text in range(number)]}
        for number in (4, 2, 3, 0)
    ]
    file = written(tmp_path / "a.jsonl", rows)
    settings = Similarity(loss="contrastive", negatives=2)
    config = Finetune(checkpoint="m", train=file, kind="similarity", similarity=settings)
    _, items, lost = read_own(with_pair_columns(config), file, None)
    assert items["train"]["negatives"].to_pylist() == [["0", "1"], ["0", "1"], ["0", "1"], []]
    line = "3 negative texts left out of 2 rows that have more than 2 (similarity.negatives)"
    assert lost == {"train": (line,)}
    _, items, lost = read_own(replace(with_pair_columns(config), similarity=Similarity(loss="contrastive")), file, None)
    assert [len(texts) for texts in items["train"]["negatives"].to_pylist()] == [4, 2, 3, 0] and lost == {"train": ()}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"anchor": " ", "positive": "b", "negative": "c"}, "column anchor is ' '; it must be a text"),
        ({"anchor": "a", "positive": None, "negative": "c"}, "column positive is 'None'; it must be a text"),
        (
            {"anchor": "a", "positive": "b", "negative": [1]},
            "column negative is '[1]'; it must be a text or a list of texts",
        ),
        (
            {"anchor": "a", "positive": "b", "negative": "b "},
            "column negative has no negative text besides the row's own texts, which similarity.loss triplet needs",
        ),
    ],
)
def test_bad_rows_are_one_line_or_are_counted(tmp_path: Path, row: dict[str, object], words: str) -> None:
    file = written(tmp_path / "a.jsonl", [{"anchor": "a", "positive": "b", "negative": "c"}, row])
    columns = MatchColumns(first="anchor", second="positive", negatives=("negative",))
    with pytest.raises(DataError) as refused:
        read_matches(file, columns, BadRows(), loss="triplet")
    assert str(refused.value) == f"{file}:2: {words}"
    bad = BadRows(skip=True)
    assert read_matches(file, columns, bad, loss="triplet").num_rows == 1 and bad.reasons.total() == 1


def test_a_task_has_the_metric_of_negative_texts_if_there_are_some(tmp_path: Path) -> None:
    for rows, metrics in ((LISTS, ("triplet_accuracy", "match_accuracy")), (LISTS[1:] * 2, ("match_accuracy",))):
        rows = [row | {"positive": f"match {number}"} for number, row in enumerate(rows)]
        file = written(tmp_path / "a.jsonl", rows)
        config = Finetune(checkpoint="m", train=file, kind="similarity", similarity=Similarity(loss="contrastive"))
        task, items, _ = read_own(with_pair_columns(config), file, file)
        assert (task.kind, task.metrics, items["dev"].num_rows) == ("matching", metrics, len(rows))


def test_development_rows_without_negative_texts_are_refused(tmp_path: Path) -> None:
    rows = [{"anchor": f"a {number}", "positive": f"b {number}", "negative": "c"} for number in range(2)]
    train, dev = (
        written(tmp_path / "a.jsonl", rows),
        written(tmp_path / "b.jsonl", [row | {"negative": ""} for row in rows]),
    )
    config = Finetune(checkpoint="m", train=train, kind="similarity", similarity=Similarity(loss="contrastive"))
    with pytest.raises(DataError) as refused:
        read_own(with_pair_columns(config), train, dev)
    assert str(refused.value) == (
        f"none of the 2 rows of {dev} has a negative text, but training rows have some, so triplet_accuracy cannot be "
        f"computed: add negative texts to {dev}"
    )
    assert read_own(with_pair_columns(config), dev, dev)[0].metrics == ("match_accuracy",)


def test_triplets_without_a_column_of_negative_texts_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", [{"anchor": "a", "positive": "b"}])
    config = Finetune(checkpoint="m", train=file, kind="similarity", similarity=Similarity(loss="triplet"))
    with pytest.raises(ConfigError) as refused:
        read_own(config, file, None)
    assert str(refused.value) == (
        f"similarity.loss (triplet) compares texts with negative texts, but {file} has no column negative: name the "
        "column with --negative, or set similarity.loss contrastive"
    )
    config = Finetune(checkpoint="m", train=file, kind="similarity", similarity=Similarity(loss="contrastive"))
    with pytest.raises(DataError, match=r"all 2 rows have the same match; give rows with different texts$"):
        file = written(tmp_path / "a.jsonl", [{"anchor": "a", "positive": "b"}, {"anchor": "c", "positive": "b"}])
        read_own(with_pair_columns(config), file, None)
    with pytest.raises(DataError, match=r"has no column x: .*; name yours with --text, --pair and --negative$"):
        read_matches(file, MatchColumns(first="anchor", second="x"), BadRows(), loss="contrastive")


def test_columns_that_the_loss_does_not_read_are_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        Finetune(checkpoint="m", train="a.csv", kind="similarity", negative=("other",))
    assert str(refused.value) == (
        "negative (other) is for --kind similarity with similarity.loss contrastive and triplet: leave negative out"
    )
    with pytest.raises(ConfigError) as refused:
        loss = Similarity(loss="triplet")
        Finetune(checkpoint="m", train="a.csv", kind="similarity", similarity=loss, label=("score",))
    assert str(refused.value) == (
        "label (score) has no effect on similarity.loss triplet, whose rows have no label: leave label out"
    )
