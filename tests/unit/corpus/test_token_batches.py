"""Batches for any trainer of Ray Train, without Ray: rows are dealt to workers here as `blocks_for_ranks` does."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.train import RunConfig

from pipeline.config.data import PAIRS, FullSentences, NextSentence, Sampling, TwoCrops
from pipeline.config.training import Batch
from pipeline.corpus.order import Cursor
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.stream import StreamSettings, token_stream, window_rows
from pipeline.corpus.token_batches import Arrays, TokenBatches, flat_arrays, padded_arrays
from pipeline.corpus.token_position import Position, can_be_ahead
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

SIZES = (5, 1, 0, 7, 4, 9, 3, 11)
"""Rows of each window of an epoch."""
BATCH = Batch(rows_per_step=8, rows_per_slot=2, warmup_steps=2, warmup_rows=6)


def cursors(epochs: int = 4) -> list[Cursor]:
    return [
        Cursor(epoch=epoch, window=window, row=row, rows_in_window=rows)
        for epoch in range(epochs)
        for window, rows in enumerate(SIZES)
        for row in range(rows)
    ]


ROWS = pa.table({name: [vars(cursor)[name] for cursor in cursors()] for name in vars(cursors()[0])})


def batches_of(first: int, rank: int, world: int, start: Position, steps: int = 9) -> TokenBatches:
    """Batches of a worker whose stream begins at a row of ROWS; a batch is the numbers of its rows."""

    def slots() -> Iterator[pa.Table]:
        for row in range(first + 2 * rank, ROWS.num_rows, 2 * world):
            yield ROWS.slice(row, 2)

    order = {tuple(vars(cursor).values()): number for number, cursor in enumerate(cursors())}
    return TokenBatches(
        slots=slots(),
        batch=BATCH,
        rank=rank,
        world=world,
        start=start,
        steps=steps,
        arrays=lambda rows: [order[tuple(row.values())] for row in rows.to_pylist()],  # ty: ignore[invalid-argument-type]
        settings={"seed": 0},
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_the_state_of_a_worker_means_the_last_row_of_all_workers(rank: int) -> None:
    worker = batches_of(0, rank, 2, Position())
    next(worker)  # six rows in three slots: rank 0 has two of these, rank 1 the one between
    position = Position.of_metadata(worker.state(), {"seed": 0}, "a checkpoint")
    assert position.cursor_ahead(len(SIZES), lambda number: SIZES[number % len(SIZES)]) == cursors()[5]


@given(world=st.integers(1, 3), later=st.integers(1, 3), taken=st.integers(0, 8), rank=st.integers(0, 2))
def test_a_step_has_the_same_rows_on_other_workers_after_the_state_of_any_of_them(
    world: int, later: int, taken: int, rank: int
) -> None:
    before = batches_of(0, rank % world, world, Position())
    for _ in range(taken):
        next(before)
    metadata = json.loads(json.dumps(before.state()))
    position = Position.of_metadata(metadata, {"seed": 0}, "a checkpoint")
    last = position.cursor_ahead(len(SIZES), lambda number: SIZES[number % len(SIZES)])
    first = 0 if last is None else cursors().index(last) + 1
    workers = [batches_of(first, rank, later, position) for rank in range(later)]
    steps = [sorted(row for slots in step for slot in slots for row in slot) for step in zip(*workers, strict=True)]
    ends = [0, 6, 12, *range(20, 69, 8)]  # six rows in the first two steps, then eight
    assert steps == [list(range(*step)) for step in zip(ends, ends[1:])][taken:]
    assert all(worker.step == 9 for worker in workers)


def test_rows_out_of_order_are_not_given() -> None:
    with pytest.raises(DataError, match="step 0 got rows out of order .slot 0 starts at epoch 0, window 0, row 2"):
        next(batches_of(2, 0, 1, Position()))
    exchanged = batches_of(0, 0, 2, Position())
    next(exchanged)
    exchanged.slots = iter([ROWS.slice(10, 2)])
    with pytest.raises(DataError, match="step 1 got rows out of order"):
        next(exchanged)


def test_a_stream_that_ends_early_is_no_end_of_the_training() -> None:
    ended = batches_of(0, 0, 1, Position())
    ended.slots = iter([ROWS.slice(0, 2)])
    with pytest.raises(DataError, match="the stream ended in step 0 of 9"):
        list(ended)


def test_the_distance_of_rows_is_known_within_a_window_and_from_one_to_the_next() -> None:
    rows = cursors()
    for first, later in ((0, 3), (4, 5), (9, 14), (6, 12), (13, 20)):
        assert can_be_ahead(rows[first], rows[later], later - first)
        assert not can_be_ahead(rows[first], rows[later], later - first - 1)
    assert can_be_ahead(None, rows[3], 4) and not can_be_ahead(None, rows[3], 3)
    assert can_be_ahead(rows[3], rows[6], 4)  # there may be three rows or fewer between windows 0 and 3


def test_more_workers_than_slots_are_refused() -> None:
    message = r"4 workers need as many slots per step, but batch.rows_per_step \(6\) has 3 of batch.rows_per_slot \(2\)"
    with pytest.raises(ConfigError, match=message):
        batches_of(0, 0, 4, Position())


def test_a_checkpoint_must_have_the_position_of_the_same_stream() -> None:
    with pytest.raises(CheckpointError, match="/x has no position of the stream: call checkpoint.update_metadata"):
        Position.of_metadata({}, {}, "/x")
    state = batches_of(0, 0, 1, Position()).state()
    with pytest.raises(ConfigError, match="seed was 0 in /x and is now 1: keep it, or choose another name"):
        Position.of_metadata(state, {"seed": 1}, "/x")


def example_rows(corpus: Corpus, vocabulary: Vocabulary, sampling: Sampling) -> pa.Table:
    settings = StreamSettings(corpus=corpus, vocabulary=vocabulary, sampling=sampling, batch=Batch(), seed=0)
    return window_rows(settings, CachedTokenizer(vocabulary), corpus.train, 0, 0)


ROW = {"ids": [2, 7, 4, 3], "masked_positions": [2], "masked_labels": [8], "first_length": 4}
SHORT = {"ids": [2, 3], "masked_positions": [], "masked_labels": [], "first_length": 2}
TWO = pa.table(
    {name: [ROW[name], SHORT[name]] for name in ROW}
    | {name: pa.nulls(2, pa.bool_()) for name in ("not_next", "swapped")}
)


def listed(arrays: Arrays) -> dict[str, list[object]]:
    return {name: array.tolist() for name, array in arrays.items()}


def test_plain_rows_have_no_masks_and_masked_rows_have_labels_at_their_masks_alone() -> None:
    mask = [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert listed(padded_arrays(TWO, pad_id=0, masked=False)) == {
        "input_ids": [[2, 7, 8, 3], [2, 3, 0, 0]],
        "labels": [[2, 7, 8, 3], [2, 3, -100, -100]],
        "attention_mask": mask,
    }
    assert listed(padded_arrays(TWO, pad_id=1, masked=True)) == {
        "input_ids": [[2, 7, 4, 3], [2, 3, 1, 1]],
        "labels": [[-100, -100, 8, -100], [-100] * 4],
        "attention_mask": mask,
    }
    assert listed(flat_arrays(TWO, masked=False)) == {
        "input_ids": [[2, 7, 8, 3, 2, 3]],
        "labels": [[-100, 7, 8, 3, -100, 3]],
        "position_ids": [[0, 1, 2, 3, 0, 1]],
        "cu_seqlens": [0, 4, 6],
    }


def test_pairs_have_their_segments_and_label(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    rows = example_rows(tiny_corpus, tiny_vocabulary, Sampling(maximum_length=32, pairs=NextSentence()))
    arrays = padded_arrays(rows.slice(3, 5), pad_id=0, masked=True)
    assert arrays["next_sentence_label"].tolist() == [int(label) for label in rows["not_next"].to_pylist()[3:8]]
    segments = (arrays["token_type_ids"] == 0) & (arrays["attention_mask"] == 1)
    assert segments.sum(1).tolist() == rows["first_length"].to_pylist()[3:8]
    assert {array.dtype.name for array in arrays.values()} == {"int64"}
    flat = flat_arrays(rows.slice(3, 5), masked=True)
    assert flat["input_ids"].shape == (1, arrays["attention_mask"].sum()) and flat["cu_seqlens"].dtype.name == "int32"


def test_a_stream_begins_at_the_start_where_there_is_no_checkpoint(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunConfig(name="new", storage_path=str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    save_vocabulary(tiny_vocabulary, tmp_path / "here", 128)
    stream = token_stream(tiny_corpus, "here", run, steps=3, batch=Batch(rows_per_step=64))
    assert stream.vocabulary.fingerprint == tiny_vocabulary.fingerprint
    assert stream.newest_position() == Position() and [*stream.datasets] == ["train"]
    assert stream.batch.slot_rows == 32 and stream.settings["sampling.pairs"] == FullSentences.__name__
    with pytest.raises(ConfigError, match=r"sampling.pairs \(TwoCrops\) makes rows of whole texts"):
        token_stream(tiny_corpus, tiny_vocabulary, run, steps=3, batch=BATCH, sampling=Sampling(pairs=TwoCrops()))
    with pytest.raises(
        ConfigError, match=r"sampling.pairs \(FullSentences\) needs a corpus of documents, but .* pairs"
    ):
        token_stream(
            replace(tiny_corpus, sources={"pairs.jsonl": {"format": PAIRS}}), tiny_vocabulary, run, steps=3, batch=BATCH
        )
