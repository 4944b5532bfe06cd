"""Search of made-up vectors: exact results by hand, long texts, formats, the index, and folders that are refused."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.embed import Search
from pipeline.embed import index
from pipeline.embed.folder import begin, parts_in
from pipeline.embed.index import index_hits, wants_index
from pipeline.embed.queries import load_query_model
from pipeline.embed.query_files import Query, read_queries
from pipeline.embed.results import result_table, write_results
from pipeline.embed.search import exact_hits, found_of, require_similarity
from pipeline.embed.vectors import Vectors, open_vectors
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.files import storage
from pipeline.workflows.search import search
from tests.unit.embed.conftest import Write

PLANE = np.array([[1, 0], [0, 2], [3, 3], [-1, 0]], np.float32)


def test_the_order_of_cosine_and_of_dot_product(write_vectors: Write) -> None:
    query = np.array([[2, 1]], np.float32)
    cosine = exact_hits(write_vectors(PLANE), query, 3)
    assert cosine.rows.tolist() == [[2, 0, 1]]
    assert cosine.scores[0] == pytest.approx([9 / 90**0.5, 2 / 5**0.5, 1 / 5**0.5])
    dot = exact_hits(write_vectors(PLANE, name="dot", similarity="dot"), query, 9)
    assert dot.rows.tolist() == [[2, 0, 1, 3]] and dot.scores.tolist() == [[9, 2, 2, -2]]


def test_a_long_text_is_found_once_by_its_best_chunk(write_vectors: Write) -> None:
    vectors = write_vectors(PLANE, chunks=[0, 1, 2, 0])
    ((best, other),) = found_of(vectors, exact_hits(vectors, np.array([[0, 1]], np.float32), 5))
    assert (best.id, best.chunk, best.text, best.score) == ("t1", 1, "text 1", pytest.approx(1))
    assert (other.id, other.chunk) == ("t2", 0)


def test_many_parts_and_queries_equal_one_product(write_vectors: Write) -> None:
    random = np.random.default_rng(1)
    stored, queries = (random.normal(size=(count, 8)).astype(np.float32) for count in (450, 600))
    hits = exact_hits(write_vectors(stored, similarity="dot"), queries, 7)
    scores = queries @ stored.T
    assert np.array_equal(hits.rows, np.argsort(-scores, axis=1)[:, :7])
    np.testing.assert_allclose(hits.scores, np.take_along_axis(scores, hits.rows, axis=1), rtol=1e-5)


def test_of_equal_scores_the_first_rows_are_found(write_vectors: Write) -> None:
    hits = exact_hits(write_vectors(np.ones((250, 4), np.float32)), np.ones((2, 4), np.float32), 3)
    assert hits.rows.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_equal_vectors_have_equal_scores_at_every_place_of_every_part(write_vectors: Write) -> None:
    random = np.random.default_rng(5)
    stored, queries = (random.normal(size=(count, 384)).astype(np.float32) for count in (203, 5))
    copies = [0, 51, 99, 100, 150, 201, 202]  # a float32 product gives these up to 5 different scores
    stored[copies] = queries[0]
    hits = exact_hits(write_vectors(stored), queries, 4)
    assert hits.rows[0].tolist() == copies[:4] and set(hits.scores[0].tolist()) == {1.0}
    alone = exact_hits(open_vectors(str(write_vectors(stored, name="again").folder)), queries[:1], 4)
    assert alone.rows.tolist() == hits.rows[:1].tolist()


@pytest.mark.parametrize("format", ["float16", "int8", "binary"])
def test_a_vector_finds_itself_in_every_format(format, write_vectors: Write) -> None:
    stored = np.random.default_rng(2).normal(size=(200, 64)).astype(np.float32)
    hits = exact_hits(write_vectors(stored, format=format), stored, 1)
    assert hits.rows[:, 0].tolist() == list(range(200))


def test_the_index_finds_what_an_exact_search_finds_and_is_built_once(write_vectors: Write) -> None:
    random, lines = np.random.default_rng(3), []
    stored = random.normal(size=(3_000, 48)).astype(np.float32)
    queries = stored[::60] + 0.7 * random.normal(size=(50, 48)).astype(np.float32)
    vectors = write_vectors(stored)
    exact, near = exact_hits(vectors, queries, 10), index_hits(vectors, queries, 10, lines.append)
    shared = [len(set(a) & set(b)) for a, b in zip(exact.rows.tolist(), near.rows.tolist())]
    assert sum(shared) / 500 >= 0.99
    same = exact.rows[:, 0] == near.rows[:, 0]
    np.testing.assert_allclose(near.scores[same, 0], exact.scores[same, 0], rtol=1e-5)
    assert lines == [f"building an index of 3,000 vectors: {vectors.folder}/index"]
    index_hits(vectors, queries, 10, lines.append)
    assert len(lines) == 1


def test_the_index_proposes_more_if_one_text_has_all_of_the_candidates(write_vectors: Write) -> None:
    angles = np.concatenate([np.linspace(0, 0.1, 95), [0.5, 0.4, 0.3, 0.2, 0.6]])
    stored = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    vectors = write_vectors(stored, chunks=[*range(95), 0, 0, 0, 0, 0])
    query = np.array([[1, 0]], np.float32)
    assert (vectors.count, vectors.texts) == (100, 6)
    assert index_hits(vectors, query, 5, print).rows.tolist() == [[0, 98, 97, 96, 95]]
    assert index_hits(vectors, query, 9, print).rows.tolist() == [[0, 98, 97, 96, 95, 99]]


def test_a_query_with_too_few_candidates_is_compared_with_all_vectors(
    write_vectors: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MOST_CANDIDATES", 8)
    vectors = write_vectors(np.stack([np.ones(100), np.arange(100)], axis=1), chunks=[*range(98), 0, 0])
    queries = np.array([[1, 0], [0, 1]], np.float32)
    hits = index_hits(vectors, queries, 2, print)
    assert hits.rows.tolist() == [[0, 98], [99, 98]] == exact_hits(vectors, queries, 2).rows.tolist()


def test_the_index_answers_without_comparing_all_vectors(write_vectors: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = write_vectors(PLANE)
    exact = exact_hits(vectors, PLANE, 2).rows.tolist()
    index_hits(vectors, PLANE, 2, print)  # builds the index, which reads all vectors
    monkeypatch.delattr(Vectors, "blocks")
    assert index_hits(vectors, PLANE, 2, print).rows.tolist() == exact


def test_the_graph_is_read_for_a_check_only_if_it_changed(
    write_vectors: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, lines, checks, sound = write_vectors(PLANE), [], [], storage.damage
    monkeypatch.setattr(storage, "damage", lambda folder: checks.append(folder) or sound(folder))
    for _ in range(3):
        index_hits(vectors, PLANE, 2, lines.append)
    assert len(checks) == 1  # by the second search, because the first one built the index
    graph = Path(vectors.folder) / "index" / "vectors.usearch"
    content = graph.read_bytes()
    graph.write_bytes(content[:-1] + bytes([content[-1] ^ 255]))
    index_hits(vectors, PLANE, 2, lines.append)
    assert len(checks) == 2 and len(lines) == 3 and lines[1].endswith("index is damaged: building the index again")
    assert index_hits(vectors, PLANE, 2, lines.append).rows.tolist() == exact_hits(vectors, PLANE, 2).rows.tolist()
    assert len(lines) == 3  # the new graph is sound


def test_an_index_of_other_vectors_is_built_again(write_vectors: Write) -> None:
    vectors, lines = write_vectors(PLANE, chunks=[0, 1, 2, 0]), []
    index_hits(vectors, PLANE, 2, lines.append)
    path = Path(vectors.folder) / "index" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"vectors": "older"}))
    hits = index_hits(vectors, PLANE, 2, lines.append)
    assert lines[1] == f"{vectors.folder}/index is an index of other vectors (older): building the index again"
    assert hits.rows.tolist() == exact_hits(vectors, PLANE, 2).rows.tolist() == [[0, 3], [1, 3], [2, 3], [3, 1]]


def test_an_index_is_for_more_than_a_million_vectors(write_vectors: Write) -> None:
    vectors = write_vectors(PLANE)
    assert [wants_index(setting, vectors) for setting in ("auto", "on", "off")] == [False, True, False]


def test_folders_that_hold_no_vectors(write_vectors: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^vectors \(.*none\) is not a folder of vectors: give the --output"):
        open_vectors(str(tmp_path / "none"))
    begin(str(tmp_path / "begun"), {"format": "int8"}, replace=False)
    with pytest.raises(DataError, match=r"begun\) are not complete: run the same jobs/embed\.py again$"):
        open_vectors(str(tmp_path / "begun"))
    vectors = write_vectors(PLANE)
    part = Path(vectors.folder) / "parts" / vectors.names[0]
    content = bytearray(part.read_bytes())
    content[content.index(PLANE.tobytes())] ^= 255
    part.write_bytes(content)
    cannot_be_read = r"000000-000000\.parquet cannot be read \(.*embed again with --replace$"
    with pytest.raises(DataError, match=cannot_be_read):
        exact_hits(vectors, PLANE, 1)
    part.write_bytes(content[:-10])
    with pytest.raises(DataError, match=cannot_be_read):
        vectors.rows_of([0])


def test_a_folder_of_other_vectors_or_files_is_refused(write_vectors: Write, tmp_path: Path) -> None:
    vectors = write_vectors(PLANE)
    assert begin(vectors.folder, {"format": "float32"}, replace=False)
    with pytest.raises(ConfigError, match=r"holds vectors for format float32, not for format int8: give --replace, or"):
        begin(vectors.folder, {"format": "int8"}, replace=False)
    assert not begin(vectors.folder, {"format": "int8"}, replace=True) and parts_in(vectors.folder).done() == set()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"mine\) has other files, such as a\.parquet: choose a new folder$"):
        begin(str(tmp_path / "mine"), {}, replace=True)


def test_unfinished_vectors_of_the_same_kind_are_continued_and_others_replaced(tmp_path: Path) -> None:
    folder, left = str(tmp_path / "begun"), tmp_path / "begun/parts/000000-000000.parquet"
    begin(folder, {"format": "int8"}, replace=False)
    left.write_bytes(b"")
    assert not begin(folder, {"format": "int8"}, replace=True) and left.exists()
    assert not begin(folder, {"format": "float32"}, replace=True) and not left.exists()


def test_a_job_that_was_killed_while_replacing_vectors_is_run_again(
    write_vectors: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, asked = write_vectors(PLANE).folder, {"format": "int8"}

    def killed(location: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "delete_folder", killed)
    with pytest.raises(KeyboardInterrupt):
        begin(folder, asked, replace=True)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"vectors\) has vectors that are partly deleted: give --replace to delete"):
        begin(folder, asked, replace=False)
    assert not begin(folder, asked, replace=True) and parts_in(folder).done() == set()
    (Path(folder) / "parts" / "000000-000000.parquet").write_bytes(b"")
    assert not begin(folder, asked, replace=True) and parts_in(folder).done() == {(0, 0)}
    assert not begin(folder, {"format": "binary"}, replace=True) and parts_in(folder).done() == set()


def test_records_that_a_killed_job_left_are_deleted(write_vectors: Write) -> None:
    folder = write_vectors(PLANE).folder
    parts_in(folder).begin({"format": "float32"}, 9)
    assert begin(folder, {"format": "float32"}, replace=False)
    assert os.listdir(f"{folder}/parts") == ["000000-000000.parquet"]


def test_equal_ids_are_refused_and_the_manifest_is_not_written(write_vectors: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^input has two texts with the id 'b': .*--id, and delete .*vectors$"):
        write_vectors(PLANE, ids=["a", "b", "c", "b"])
    assert not (tmp_path / "vectors" / "manifest.json").exists()


def test_results_as_a_table_and_as_lines(write_vectors: Write, tmp_path: Path) -> None:
    vectors = write_vectors(PLANE, chunks=[0, 1, 0, 0])
    found = found_of(vectors, exact_hits(vectors, PLANE[1:2], 2))
    assert result_table(Query(id="1", text="up?"), found[0]).splitlines() == [
        "up?",
        "rank   score  id    text",
        "   1  1.0000  t1#1  text 1",
        "   2  0.7071  t2    text 2",
    ]
    write_results(str(tmp_path / "found.jsonl"), [Query(id="q", text="up?")], found)
    line = json.loads((tmp_path / "found.jsonl").read_text())
    assert (line["id"], line["text"], [result["id"] for result in line["results"]]) == ("q", "up?", ["t1", "t2"])
    assert line["results"][0] == {"id": "t1", "score": 1.0, "chunk": 1, "start": 0, "end": 1, "text": "text 1"}


def test_queries_that_are_refused_and_a_text_that_is_none_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n')
    with pytest.raises(DataError, match="has two queries with the id a: give each query an id of its own"):
        read_queries(Search(vectors="v", queries=str(file)))
    assert [query.text for query in read_queries(Search(vectors="v", queries="~5 dollars"))] == ["~5 dollars"]


def test_a_model_that_is_gone_or_changed_is_refused_with_what_the_command_has(
    write_vectors: Write, tiny_run: Path
) -> None:
    vectors = write_vectors(PLANE)
    with pytest.raises(CheckpointError) as gone:
        load_query_model(Search(vectors=vectors.folder, queries="q"), vectors)
    assert str(gone.value).endswith(
        f"; {vectors.folder} needs its model there, but jobs/search.py and jobs/mine.py read it elsewhere with "
        "--checkpoint"
    )
    changed = replace(vectors, model=replace(vectors.model, checkpoint=str(tiny_run)))
    for given, remedy in ((None, "put the model back"), (str(tiny_run), f"give --checkpoint {tiny_run}")):
        with pytest.raises(ConfigError, match=rf"to the queries: {re.escape(remedy)}, or embed the texts again$"):
            load_query_model(Search(vectors=vectors.folder, queries="q", checkpoint=given), changed)


def test_an_existing_file_of_results_is_kept(write_vectors: Write, tmp_path: Path) -> None:
    (tmp_path / "found.jsonl").write_text("mine")
    config = Search(vectors=write_vectors(PLANE).folder, queries="x", output=f"{tmp_path}/found.jsonl")
    with pytest.raises(ConfigError, match="found.jsonl exists already: give --replace, or choose another --output"):
        search(config, print)
    assert (tmp_path / "found.jsonl").read_text() == "mine"


def test_other_similarities_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^the model's similarity \(euclidean\) is not supported"):
        require_similarity("euclidean")
