"""Given pairs: tables in four formats, which columns are the texts, and what is dropped."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.data import GivenPairs, NextSentence, Preparation, Sampling, TitleParagraph
from pipeline.corpus.given_pairs import require_fitting_pairs
from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_documents
from pipeline.corpus.prepare import list_sources
from pipeline.corpus.sources import parse
from pipeline.errors import ConfigError, DataError
from pipeline.text.documents import Dropped

SETTINGS = Preparation(piece_characters=100)


def read(path: Path, options: str = "") -> tuple[list[tuple[str, list[str]]], dict[str, int]]:
    """Return the (id without its file, texts) of a table's documents, and {reason: count}."""
    dropped: Counter[str] = Counter()
    found = []
    (file,) = list_files(parse(f"{path}::format=pairs{options}"))
    for item in file_documents(file, SETTINGS):
        if isinstance(item, Dropped):
            dropped[item.reason] += 1
        else:
            assert item.lines_are_sentences and item.title == ""
            found.append((item.id.removeprefix(path.name), item.text.split("\n")))
    return found, dict(dropped)


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def test_four_formats_have_the_same_pairs(tmp_path: Path) -> None:
    rows = [{"anchor": "a", "positive": "b c", "negative": "n"}, {"anchor": "d", "positive": "e", "negative": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    write(tmp_path / "a.jsonl", *rows)
    write(tmp_path / "a.csv", "anchor,positive,negative", 'a,"b', 'c",n', "", "d,e,")
    write(tmp_path / "b.csv", "anchor;positive;negative", "a;b c;n", "d;e;")
    write(tmp_path / "a.tsv", "anchor\tpositive\tnegative", "a\tb c\tn", "d\te\t")
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress((tmp_path / "a.tsv").read_bytes()))
    write(tmp_path / "c.csv", "sep=;", "anchor;positive;negative", "a;b c;n", "d;e;")
    write(tmp_path / "d.csv", '"anchor"|"positive"|"negative"', "a|b c|n", "d|e|")
    for name in ("a.parquet", "a.jsonl", "a.csv", "b.csv", "c.csv", "d.csv", "a.tsv", "a.tsv.gz"):
        assert read(tmp_path / name) == ([(":0#0", ["a", "b c", "n"]), (":1#0", ["d", "e"])], {}), name


def test_columns_are_named_or_have_usual_names(tmp_path: Path) -> None:
    row = {"id": "1", "question": "a", "paragraph": "b", "hard_negatives": ["c", "d"], "neg": "e", "other": "f"}
    path = write(tmp_path / "a", row)
    assert read(path)[0] == [(":0#0", ["a", "b", "c", "d", "e"])]
    assert read(path, "::column=other,question")[0] == [(":0#0", ["f", "a"])]
    assert read(path, "::column=other,question,neg,id")[0] == [(":0#0", ["f", "a", "e", "1"])]


def test_lists_give_a_pair_for_each_combination_and_known_answers_are_no_negatives(tmp_path: Path) -> None:
    path = write(tmp_path / "a", {"query": "q", "pos": ["a", " b"], "neg": ["c", "b", "c", "", "q"]})
    assert read(path)[0] == [(":0.0#0", ["q", "a", "c"]), (":0.1#0", ["q", "b", "c"])]


def test_what_is_dropped(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a",
        {"query": "a", "positive": "b", "negative": 3},
        {"query": "a"},
        "no json",
        {"query": "", "positive": "b"},
        {"query": "a", "positive": " "},
        {"query": "a", "positive": []},
        {"query": "\ud800", "positive": "b"},
        {"query": "a", "positive": "b", "negative": "n"},
    )
    assert read(path, "::column=query,positive,negative") == (
        [(":7#0", ["a", "b", "n"])],
        {"broken record": 3, "empty": 3, "not UTF-8": 1, "file not UTF-8": 1},
    )
    table = write(tmp_path / "a.csv", "query,positive", "a,b,c", '"a"x,b', "a,b")
    assert read(table) == ([(":2#0", ["a", "b"])], {"broken record": 2})


def test_an_open_quote_that_takes_more_than_its_line_is_refused(tmp_path: Path) -> None:
    for before, rows in ((["query,positive"], ['"a,b', "c,d"]), (["", "query,positive"], ['"a,b', '"c",d', "e,f"])):
        path = write(tmp_path / "a.csv", *before, "a,b", *rows)
        with pytest.raises(DataError, match=rf"^{path}:{len(before) + 2}: quotes are broken in the row that begins "):
            read(path)


def test_a_truncated_table_may_end_within_quotes(tmp_path: Path) -> None:
    table = 'query,positive\n"a","b"\n"' + "".join(f"{number}\n" for number in range(20_000))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(table.encode())[:-9])
    assert read(tmp_path / "a.csv.gz") == ([(":0#0", ["a", "b"])], {"truncated file": 1})


def test_long_texts_are_truncated_and_equal_second_texts_have_one_parent(tmp_path: Path) -> None:
    rows = [{"query": f"{n}", "positive": "x" * 300, "negative": "y" * 300} for n in range(2)]
    path = write(tmp_path / "a", *rows, {"query": "2", "positive": "z"})
    (file,) = list_files(parse(f"{path}::format=pairs::language=de"))
    first, second, other = file_documents(file, SETTINGS)
    assert first.text == f"0\n{'x' * 100}\n{'y' * 100}" and first.language == "de"
    assert first.parent == second.parent != other.parent and first.id != second.id


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            "",
            "has no column for the second text of a pair (positive, positives, pos, paragraph, passage, answer): its "
            "columns with text are query, body; name those of both texts, and of any hard negatives, with "
            "::column=FIRST,SECOND,NEGATIVE",
        ),
        (
            "::column=query,text",
            "has no column text with text: its columns with text are query, body; name those of both texts, and of any "
            "hard negatives, with ::column=FIRST,SECOND,NEGATIVE",
        ),
        ("::column=query,stars", "has no column stars with text: its columns with text are query, body; name those"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_table_without_the_columns_is_refused(tmp_path: Path, name: str, options: str, words: str) -> None:
    row = {"query": "a", "body": "b", "stars": 5}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    write(tmp_path / "a.jsonl", row)
    with pytest.raises(DataError) as refused:
        read(tmp_path / name, options)
    assert str(refused.value).startswith(f"{tmp_path / name} {words}")


def test_one_column_and_mixed_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        parse("/a::format=pairs::column=query")
    assert str(refused.value) == (
        "corpus /a::format=pairs::column=query: column (query) must name at least two columns of pairs, as in "
        "PATH::format=pairs::column=QUESTION,PARAGRAPH,NEGATIVE"
    )
    pairs, text = write(tmp_path / "a", {"query": "a", "positive": "b"}), write(tmp_path / "b.txt", "text")
    with pytest.raises(ConfigError) as mixed:
        list_sources([str(text), f"{pairs}::format=pairs"], Preparation(), str(tmp_path / "out"), print)
    assert str(mixed.value) == (
        f"corpus {pairs}::format=pairs has given pairs, and corpus {text} has documents: prepare them as two corpora"
    )


def test_kinds_of_pairs_and_corpora_go_together() -> None:
    require_fitting_pairs(Sampling(pairs=GivenPairs()), ["pairs", "pairs"], "corpora/a")
    require_fitting_pairs(Sampling(), [None, "text"], "corpora/a")
    for pairs, kind in ((NextSentence(), "NextSentence"), (TitleParagraph(), "TitleParagraph")):
        with pytest.raises(ConfigError) as refused:
            require_fitting_pairs(Sampling(pairs=pairs), ["pairs"], "corpora/a")
        assert str(refused.value) == (
            f"sampling.pairs ({kind}) needs a corpus of documents, but corpora/a has given pairs: choose "
            "objective:contrastive sampling.pairs:given-pairs, or give other text"
        )
    with pytest.raises(ConfigError) as reverse:
        require_fitting_pairs(Sampling(pairs=GivenPairs()), [None], "corpora/a")
    assert str(reverse.value) == (
        "sampling.pairs (GivenPairs) needs a corpus of given pairs, but corpora/a has documents: give a table of "
        "pairs, as in --corpus 'pairs.jsonl::format=pairs', or choose other sampling.pairs"
    )
    with pytest.raises(ConfigError, match=r"^sampling.pairs.negatives \(-1\) must be at least 0"):
        GivenPairs(negatives=-1)
