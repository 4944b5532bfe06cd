"""Collections as users have them, and what is wrong with them in one line."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import ConfigError, DataError
from pipeline.evaluation.retrieval.bm25 import rank_by_bm25
from pipeline.evaluation.retrieval.ranking import rank_by_cosine, tie_ranks
from pipeline.evaluation.retrieval.reading import read_collection

DOCUMENTS = [
    {"_id": "a", "title": "Wings", "text": "lift and drag"},
    {"_id": "b", "text": "heat in slabs"},
    {"_id": "c", "title": "", "text": " "},
]
QUERIES = [{"_id": "1", "text": "drag"}, {"_id": "2", "text": "heat"}, {"_id": "3", "text": "no judgement"}]
QRELS = ["query-id\tcorpus-id\tscore", "1\ta\t2.0", "1\tc\t1", "2\tb\t1", "2\ta\t0"]


def beir(
    folder: Path,
    documents: list[dict] = DOCUMENTS,
    queries: list[dict] = QUERIES,
    qrels: list[str] = QRELS,
    split: str = "test",
) -> str:
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (folder / f"qrels/{split}.tsv").write_text("\n".join(qrels) + "\n")
    return str(folder)


def test_beir_s_layout(tmp_path: Path) -> None:
    found = read_collection(beir(tmp_path, split="dev"), "dev")
    assert found.documents == {"a": "Wings lift and drag", "b": "heat in slabs"}
    assert found.queries == {"1": "drag", "2": "heat"}
    assert found.grades == {"1": {"a": 2, "c": 1}, "2": {"b": 1, "a": 0}} and found.relevant == 3
    assert found.notes == ("1 documents have no text", "1 queries have no relevant document")


def test_cranfield_s_files_whose_queries_are_counted_and_whose_best_code_is_1(tmp_path: Path) -> None:
    (tmp_path / "cran.all.1400.gz").write_bytes(
        gzip.compress(b".I 1\n.T\nwings\n.A\nmiller,a.\n.B\nj. 1958.\n.W\nwings\nand lift .\n.I 2\n.T\n.A\n.B\n.W\n")
    )
    (tmp_path / "cran.qry").write_text(".I 001\n.W\nwhat of\nwings .\n.I 004\n.W\nwhat of heat .\n")
    (tmp_path / "cranqrel").write_text("1 1 1\n1 2 4\n2 1 2 \n2 2 -1\n2 1 3\n")
    found = read_collection(str(tmp_path))
    assert found.own == {} and found.documents == {"1": "wings and lift ."}
    assert found.queries == {"1": "what of wings .", "2": "what of heat ."}
    assert found.grades == {"1": {"1": 4, "2": 1}, "2": {"1": 3, "2": 0}}
    assert found.notes == ("1 documents have no text", "1 judgements are given twice; the highest grade counts")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"documents": [*DOCUMENTS, DOCUMENTS[0]]}, "corpus.jsonl:4: document 'a' is given twice; give each id once"),
        ({"queries": [*QUERIES, QUERIES[0]]}, "queries.jsonl:4: query '1' is given twice; give each id once"),
        ({"qrels": [*QRELS, "9\ta\t1"]}, "qrels/test.tsv:6: no query has the id '9'; correct the id"),
        ({"qrels": [*QRELS, "1\tz\t1"]}, "qrels/test.tsv:6: no document has the id 'z'; correct the id"),
        ({"qrels": [*QRELS, "1\ta\tx"]}, "qrels/test.tsv:6: \"['1', 'a', 'x']\" is not two ids and a whole number"),
        ({"qrels": [*QRELS, "1 a 1"]}, "qrels/test.tsv:6: \"['1 a 1']\" is not two ids and a whole number, with tabs"),
        ({"documents": [*DOCUMENTS, {"_id": "d", "text": 7}]}, "corpus.jsonl:4: text is not a text but '7'"),
        ({"documents": [*DOCUMENTS, {"_id": "\ud800"}]}, "corpus.jsonl:4: _id '\\ud800' holds half of a surrogate"),
        ({"documents": [*DOCUMENTS, {"text": "x"}]}, "corpus.jsonl:4: _id is not a text but 'None'"),
    ],
)
def test_a_bad_row_is_one_line_or_counted(tmp_path: Path, change: dict, message: str) -> None:
    folder = beir(tmp_path, **change)
    with pytest.raises(DataError) as error:
        read_collection(folder)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert str(error.value).endswith("; --on-bad-rows skip leaves such rows out")
    found = read_collection(folder, skip=True)
    assert found.queries == {"1": "drag", "2": "heat"} and found.grades["1"] == {"a": 2, "c": 1}
    assert found.notes[-1].startswith("1 rows left out (") and message in found.notes[-1]


def test_a_query_that_is_a_document_is_not_among_its_own_results(tmp_path: Path) -> None:
    """As in BEIR for ArguAna; Cranfield's queries and documents share numbers by chance."""
    queries = [{"_id": "a", "text": "Wings lift and drag"}, {"_id": "2", "text": "heat"}]
    found = read_collection(beir(tmp_path, queries=queries, qrels=[QRELS[0], "a\tb\t1", "2\tb\t1"]))
    assert found.own == {"a": "a"} and found.own_indices() == [0, None]
    assert found.notes[-1] == "1 queries are documents, which are not among their own results"
    ties, vectors = tie_ranks(list(found.documents)), np.eye(2)
    assert [list(ranking) for ranking in rank_by_cosine(vectors, vectors, ties, found.own_indices())] == [[1], [1, 0]]
    texts = ["wings lift", "wings drag"]
    assert [list(ranking) for ranking in rank_by_bm25(["wings lift"] * 2, texts, ties, [0, None])] == [[1], [0, 1]]


def test_the_cranfield_collection_has_no_splits(tmp_path: Path) -> None:
    (tmp_path / "cran.all.1400").write_text("")
    with pytest.raises(
        ConfigError, match=r"^split \(dev\) is for BEIR's layout, but .* is the Cranfield collection: l"
    ):
        read_collection(str(tmp_path), "dev")


def test_half_of_a_surrogate_pair_in_a_text_is_replaced(tmp_path: Path) -> None:
    documents = [{"_id": "a", "text": "x\ud800"}, *DOCUMENTS[1:]]
    assert read_collection(beir(tmp_path, documents)).documents["a"] == "x\ufffd"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qrels": QRELS[1:]}, "qrels/test.tsv: the first line is 1, a, 2.0, but must be query-id, corpus-id, score"),
        ({"qrels": [QRELS[0], "2\ta\t0"]}, "no query has a text and a relevant document: 1 documents have no text"),
        ({"split": "dev"}, "qrels/test.tsv does not exist; its folder has dev.tsv: name one of them with --split"),
    ],
)
def test_a_collection_without_use_is_one_line(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(DataError) as error:
        read_collection(beir(tmp_path, **change), skip=True)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_folder_of_something_else_is_told_both_layouts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n")
    with pytest.raises(DataError, match=r"has no corpus.jsonl and no cran.all.1400, but a.csv: give a folder in BEIR"):
        read_collection(str(tmp_path))


@pytest.mark.parametrize("documents", [[], ["the of", "a"]])
def test_bm25_finds_nothing_in_documents_without_words(documents: list[str]) -> None:
    (ranking,) = rank_by_bm25(
        ["wings"], documents, tie_ranks([str(number) for number in range(len(documents))]), [None]
    )
    assert ranking.tolist() == []


def test_bm25_finds_only_documents_with_a_word_of_the_query() -> None:
    documents = ["wings lift drag", "heat heat slabs", "wings wings wings"]
    queries = ["Wings", "heat and wings", "unknown", "the of"]
    rankings = rank_by_bm25(queries, documents, tie_ranks(["a", "b", "c"]), [None] * len(queries))
    assert [ranking.tolist() for ranking in rankings] == [[2, 0], [1, 2, 0], [], []]
