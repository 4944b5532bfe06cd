from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from pipeline.config.data import Sampling
from pipeline.config.training import Batch
from pipeline.corpus import stream
from pipeline.corpus.order import WindowRange, permutation
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.corpus.stream import (
    REST_SECONDS,
    RESTS,
    STREAM_BYTES,
    StreamLoop,
    StreamSettings,
    bytes_ahead,
    count_rows_if_small,
    documents_of_window,
    rows_by_rank,
    rows_of_range,
    slots_of_blocks,
    window_rows,
    windows_for,
)
from pipeline.corpus.weights import repeat_by_weight, uniform
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary

DOCUMENTS = pa.table({"id": [f"{number}#0" for number in range(2000)], "source": ["a", "b"] * 1000})


def times(weights: dict[str, float], epoch: int) -> Counter[str]:
    return Counter(repeat_by_weight(DOCUMENTS, weights, epoch)["id"].to_pylist())


def test_a_weight_is_how_often_a_document_occurs() -> None:
    assert repeat_by_weight(DOCUMENTS, {"a": 1, "b": 1}, 0) is DOCUMENTS
    assert repeat_by_weight(DOCUMENTS, {}, 0) is DOCUMENTS
    found = times({"a": 2, "b": 1}, 0)
    assert set(found.values()) == {1, 2} and all(found[f"{number}#0"] == 2 - number % 2 for number in range(2000))
    rows = repeat_by_weight(DOCUMENTS, {"a": 2, "b": 1}, 0)["id"].to_pylist()
    assert rows[:3] == ["0#0", "1#0", "2#0"] and rows[1999:2002] == [
        "1999#0",
        "0#0",
        "2#0",
    ]  # no document beside its copy
    assert repeat_by_weight(DOCUMENTS, {"a": 0, "b": 0}, 0).num_rows == 0


def test_fractional_weights_are_drawn_per_epoch_and_document() -> None:
    epochs = [times({"a": 1, "b": 0.3}, epoch) for epoch in range(10)]
    drawn = [{id for id in found if int(id[:-2]) % 2} for found in epochs]
    assert all(240 < len(ids) < 360 for ids in drawn) and all(
        len(found) == 1000 + len(ids) for found, ids in zip(epochs, drawn)
    )
    assert len(set.union(*drawn)) > 950 and times({"a": 1, "b": 0.3}, 3) == epochs[3]
    more = times({"a": 1, "b": 1.3}, 0)
    assert {id for id, count in more.items() if count == 2} == drawn[0]
    assert uniform("1#0", 0) == uniform("1#0", 0) != uniform("1#0", 1) and 0 <= uniform("x", 5) < 1


def test_rows_of_a_window_come_from_its_documents_as_often_as_they_weigh(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary
) -> None:
    heavy = replace(tiny_corpus, sources={"made up": {"weight": 3.0}})
    settings = StreamSettings(
        corpus=heavy, vocabulary=tiny_vocabulary, sampling=Sampling(maximum_length=32), batch=Batch(), seed=0
    )
    rows = window_rows(settings, CachedTokenizer(tiny_vocabulary), heavy.train, 0, 0)
    alone = window_rows(
        replace(settings, corpus=tiny_corpus), CachedTokenizer(tiny_vocabulary), tiny_corpus.train, 0, 0
    )
    documents = read_window(heavy, heavy.train[0]).num_rows
    assert max(rows["document_a"].to_pylist()) >= 2 * documents and rows.num_rows > 2 * alone.num_rows
    # three copies of a document are one parent
    pairs = zip(rows["document_a"].to_pylist(), rows["document_b"].to_pylist(), rows["not_next"].to_pylist())
    assert all(a % documents != b % documents for a, b, not_next in pairs if not_next)


@pytest.fixture
def settings(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> StreamSettings:
    sampling = Sampling(maximum_length=32)
    return StreamSettings(corpus=tiny_corpus, vocabulary=tiny_vocabulary, sampling=sampling, batch=Batch(), seed=0)


def test_table_size_does_not_change_rows(settings: StreamSettings, tiny_vocabulary: Vocabulary) -> None:
    assert tables(replace(settings, table_chunks=9)) == tables(replace(settings, table_chunks=999))
    forgetful, keeper = CachedTokenizer(tiny_vocabulary, 9).table, CachedTokenizer(tiny_vocabulary, 999).table
    assert 9 < len(forgetful.entries) < len(keeper.entries)  # the words of the last window, those of all


def tables(settings: StreamSettings, first: int = 0, count: int = 5, skip: int = 0) -> list[pa.Table]:
    tokenizer = CachedTokenizer(settings.vocabulary, settings.table_chunks)
    return list(rows_of_range(settings, tokenizer, WindowRange(first=first, count=count, skip=skip)))


def test_a_range_begins_at_the_first_row_that_was_not_consumed(settings: StreamSettings) -> None:
    epoch = tables(settings)
    assert tables(settings, 1, 2, skip=3) == [epoch[1].slice(3), epoch[2]]
    assert tables(settings, 3, 2, skip=epoch[3].num_rows) == [epoch[4]]
    assert tables(settings, 4, 2)[0] == epoch[4] and tables(settings, 4, 2)[1]["epoch"].to_pylist()[0] == 1


@pytest.mark.parametrize("rows", [1, 100, 1000])
def test_a_stream_has_windows_for_all_rows_and_for_about_twice_as_many(settings: StreamSettings, rows: int) -> None:
    found = sum(table.num_rows for table in tables(settings, count=windows_for(settings, rows)))
    most_of_window = max(table.num_rows for table in tables(settings))
    assert rows <= found <= 3 * rows + 3 * most_of_window


def test_rows_are_counted_in_a_small_corpus_only(settings: StreamSettings) -> None:
    assert count_rows_if_small(settings, 100) == sum(table.num_rows for table in tables(settings))
    assert count_rows_if_small(settings, 1) is None  # each window surely has one


def test_bytes_ahead_grow_with_the_tokens_of_a_round() -> None:
    assert bytes_ahead(1024, 128) == STREAM_BYTES  # ten rounds of 6.25 bytes per token are less
    assert bytes_ahead(2**18, 128) == 10 * 6.25 * 2**18 * 128


def test_blocks_are_cut_into_the_slots_that_were_put_in_them() -> None:
    rows = pa.table({"row": range(24), "ids": [[number] * (number % 3) for number in range(24)]})
    ordered = rows_by_rank(rows, rows_per_slot=2, world=3)
    assert ordered["row"].to_pylist() == [
        0,
        1,
        6,
        7,
        12,
        13,
        18,
        19,
        2,
        3,
        8,
        9,
        14,
        15,
        20,
        21,
        4,
        5,
        10,
        11,
        16,
        17,
        22,
        23,
    ]
    assert ordered.sort_by("row") == rows and ordered["ids"].num_chunks == 1
    slots = list(slots_of_blocks([ordered.slice(8, 8), ordered.slice(0, 3)], rows_per_slot=2))
    assert [slot["row"].to_pylist() for slot in slots] == [[2, 3], [8, 9], [14, 15], [20, 21], [0, 1], [6]]


@pytest.mark.parametrize(("taken_after", "rests"), [(0, 1), (1, 1), (4, 4), (100, RESTS)])
def test_the_stream_rests_until_its_blocks_are_taken_but_not_for_ever(
    taken_after: int, rests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(stream.time, "sleep", slept.append)

    class Executor:  # of Ray Data: what a round of its loop hands to a callback
        _topology: dict[object, object] = {}

        def _consumer_idling(self) -> bool:
            return len(slept) >= taken_after

    StreamLoop().on_execution_step(Executor())
    assert slept == [REST_SECONDS] * rests


def test_windows_keep_the_order_of_their_own_epoch_when_copies_are_shown_again(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary
) -> None:
    """Also the documents, which a weight with a fraction repeats by epoch, are those of the copy."""
    heavy = replace(tiny_corpus, sources={"made up": {"weight": 1.5}})
    sampling, tokenizer = Sampling(maximum_length=32, copies=2), CachedTokenizer(tiny_vocabulary)
    settings = StreamSettings(corpus=heavy, vocabulary=tiny_vocabulary, sampling=sampling, batch=Batch(), seed=0)
    windows = heavy.train

    def by_window(epoch: int) -> dict[int, list[dict[str, object]]]:
        order = permutation(0, epoch, len(windows))
        tables = [window_rows(settings, tokenizer, windows, epoch, position) for position in range(len(windows))]
        assert {row["epoch"] for table in tables for row in table.select(["epoch"]).to_pylist()} == {epoch}
        return {
            int(index): table.drop(["epoch", "window"]).to_pylist() for index, table in zip(order, tables, strict=True)
        }

    zero, one, two = map(by_window, range(3))
    assert zero == two and zero != one
    assert permutation(0, 0, len(windows)).tolist() != permutation(0, 2, len(windows)).tolist()
    documents = [documents_of_window(settings, windows[0], epoch)["id"].to_pylist() for epoch in range(3)]
    assert documents[0] == documents[2] != documents[1]
