"""Documents under the ids of the user's files, and rankings of them by vectors of their pieces and chunks."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.adapt import judged
from pipeline.adapt.documents import documents_of, own_id
from pipeline.adapt.judged import collection_of, rank_by_vectors
from pipeline.adapt.queries import given_queries
from pipeline.config.adapt import Adapt
from pipeline.corpus.prepared import Corpus, Window
from pipeline.embed.query_files import Query
from pipeline.errors import DataError
from pipeline.evaluation.retrieval.ranking import tie_ranks
from pipeline.text.schema import DOCUMENT
from tests.unit.embed.conftest import Write, write_vectors  # noqa: F401  (a fixture)

HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Three training documents, one of two pieces, and a held-out one without a title."""
    rows = [
        ("a.jsonl:0:x#1", "a.jsonl:0:x", "Ex", "second piece"),
        ("a.jsonl:1:y#0", "a.jsonl:1:y", "Why", "kar lost"),
        ("a.jsonl:0:x#0", "a.jsonl:0:x", "Ex", "first piece"),
        ("b.txt#0", "b.txt", "b.txt", "Mir nest sits here. Another one follows."),
    ]
    about = {"source": "s", "lines_are_sentences": False, "language": "en"}
    table = [
        dict(zip(("id", "parent", "title", "text"), row), **about)
        for row in rows
    ]  # fmt: skip
    with pq.ParquetWriter(tmp_path / "one.parquet", DOCUMENT) as writer:
        for group in (table[:3], table[3:]):
            writer.write_table(pa.Table.from_pylist(group, schema=DOCUMENT))
    train, heldout = (Window(shard="one.parquet", row_group=group, documents=1, characters=9) for group in (0, 1))
    return Corpus(
        folder=str(tmp_path), fingerprint="f", train=(train,), heldout=(heldout,), counts={}, dropped={}, sources={}
    )


@pytest.mark.parametrize(
    ("parent", "id"),
    [
        ("docs.jsonl:12:184", "184"),
        ("docs.jsonl:12:a:7:b", "a:7:b"),
        ("docs.jsonl:12", "docs.jsonl:12"),
        ("notes/a.txt", "notes/a.txt"),
    ],
)
def test_the_user_s_own_id_is_that_of_the_record(parent: str, id: str) -> None:
    assert own_id(parent) == id


def test_pieces_are_joined_in_order(corpus: Corpus) -> None:
    texts, parents = documents_of(corpus)
    assert texts == {
        "a.jsonl:0:x": "first piece\nsecond piece",
        "a.jsonl:1:y": "kar lost",
        "b.txt": "Mir nest sits here. Another one follows.",
    }
    assert parents["a.jsonl:0:x#1"] == "a.jsonl:0:x" and len(parents) == 4


def test_judgements_of_dropped_documents_are_counted(tmp_path: Path) -> None:
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text(f"{HEADER}1\tx\t2\n1\tgone\t1\n2\tgone\t1\n")
    texts, queries = {"a:0:x": "kar", "a:1:y": "mir"}, [Query(id="1", text="kar"), Query(id="2", text="mir")]
    found = collection_of(texts, queries, str(qrels))
    assert found.documents == {"x": "kar", "y": "mir"} and found.grades == {"1": {"x": 2}}
    assert "2 rows left out (unknown-document" in "; ".join(found.notes)
    qrels.write_text(f"{HEADER}1\ta:0\t2\n")
    with pytest.raises(
        DataError, match=r"no query has a text and a relevant.*; ids in the corpus are such as 'x', 'y'$"
    ):
        collection_of(texts, queries, str(qrels))


def test_a_document_has_the_similarity_of_its_best_piece(write_vectors: Write) -> None:  # noqa: F811
    vectors = write_vectors(np.array([[0, 1], [1, 0], [0.6, 0.8]], np.float32), ids=["p#0", "p#1", "q#0"])
    parents, ids = {"p#0": "f:0:p", "p#1": "f:0:p", "q#0": "f:1:q"}, ["p", "q"]
    queries = np.array([[1, 0], [0.6, 0.8], [0, -1]], np.float32)
    ranked = rank_by_vectors(vectors, queries, parents, ids, tie_ranks(ids))
    # cosines of p's pieces and of q: (0, 1) and 0.6; (0.8, 0.6) and 1; (-1, 0) and -0.8
    assert [order.tolist() for order in ranked] == [[0, 1], [1, 0], [0, 1]]


def test_the_pieces_of_a_long_document_do_not_end_a_ranking(
    write_vectors: Write,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judged, "DEPTH", 2)
    vectors = write_vectors(np.array([[1, 0], [1, 0], [1, 0], [0, 1]], np.float32), ids=["p#0", "p#1", "p#2", "q#0"])
    parents = dict.fromkeys(("p#0", "p#1", "p#2"), "f:0:p") | {"q#0": "f:1:q"}
    queries = np.array([[1, 0]], np.float32)
    (order,) = rank_by_vectors(vectors, queries, parents, ["p", "q"], tie_ranks(["p", "q"]))
    assert order.tolist() == [0, 1]


def test_queries_may_have_the_ids_of_beir(tmp_path: Path) -> None:
    (tmp_path / "beir.jsonl").write_text('{"_id": "q7", "text": "kar"}\n')
    (tmp_path / "own.jsonl").write_text('{"id": "q8", "_id": "no", "text": "kar"}\n')
    config = {name: Adapt(corpus=("a",), init="E", queries=str(tmp_path / f"{name}.jsonl")) for name in ("beir", "own")}
    assert given_queries(config["beir"]) == [Query(id="q7", text="kar")]
    assert given_queries(config["own"]) == [Query(id="q8", text="kar")]
    assert given_queries(Adapt(corpus=("a",), init="E", queries="kar lost")) == [Query(id="1", text="kar lost")]
    assert given_queries(Adapt(corpus=("a",), init="E")) == []
    (tmp_path / "other.csv").write_text("query\nkar\n")
    with pytest.raises(DataError, match=r"columns are query; rename the column of the queries to text$"):
        given_queries(Adapt(corpus=("a",), init="E", queries=str(tmp_path / "other.csv")))
