"""Blocks of the stream from Ray Data, compared with rows made without it."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ray.data import ExecutionOptions, ExecutionResources
from ray.data._internal.execution.operators.map_operator import MapOperator
from ray.data._internal.execution.streaming_executor import StreamingExecutor

from pipeline.config.data import Sampling
from pipeline.config.training import Batch
from pipeline.corpus import order
from pipeline.corpus.order import WindowRange
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.stream import (
    TOKEN_BYTES,
    StreamLoop,
    StreamSettings,
    blocks_for_ranks,
    build_stream,
    rows_of_range,
    slots_of_blocks,
    stream_from_items,
)
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary

pytestmark = [pytest.mark.second, pytest.mark.usefixtures("local_ray")]


@pytest.mark.parametrize(("world", "of_block"), [(1, 5), (3, 5), (3, 1)])
def test_each_rank_receives_its_slots(
    world: int, of_block: int, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "MOST_SLOTS", of_block)
    monkeypatch.setattr(order, "SLOTS_PER_RANK", 0)
    monkeypatch.setattr(order, "LEAST_BLOCK_TOKENS", 0)
    batch = Batch(rows_per_step=12, rows_per_slot=4)
    settings = StreamSettings(
        corpus=tiny_corpus, vocabulary=tiny_vocabulary, sampling=Sampling(maximum_length=32), batch=batch, seed=0
    )
    stream = blocks_for_ranks(build_stream(settings, None, 200), world)
    assert stream.context.custom_execution_callback_classes == [StreamLoop]
    assert stream.context.execution_no_progress_timeout_s == -1 and not stream.context.enable_progress_bars
    stream.context.execution_options = ExecutionOptions(preserve_order=True)
    blocks = [block for block in stream.iter_batches(batch_size=None, batch_format="pyarrow") if block.num_rows]
    whole = blocks[: len(blocks) // world * world]
    if world == 1 or of_block == 1:
        whole = whole[:-world]  # where the order is as it was, the end may be short
    assert {block.num_rows for block in whole} == {4 * of_block}
    dealt = [list(slots_of_blocks(whole[rank::world], 4)) for rank in range(world)]
    found = pa.concat_tables([dealt[slot % world][slot // world] for slot in range(len(whole) * of_block)])
    made = pa.concat_tables(rows_of_range(settings, CachedTokenizer(tiny_vocabulary), WindowRange(first=0, count=40)))
    assert found.num_rows >= 200 and found.equals(made.slice(0, found.num_rows))
    if world > 1 < of_block:
        assert len(whole) == len(blocks)


@pytest.mark.parametrize(("cpus", "world"), [(1, 1), (2, 2)])
def test_blocks_arrive_while_rows_are_made_with_few_cpus(
    cpus: int,
    world: int,
    tiny_corpus: Corpus,
    tiny_vocabulary: Vocabulary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray Data may starve the last operators of a stream of CPUs as long as the first have work."""
    monkeypatch.setattr(order, "LEAST_BLOCK_TOKENS", 0)
    settings = StreamSettings(
        corpus=tiny_corpus,
        vocabulary=tiny_vocabulary,
        sampling=Sampling(maximum_length=32),
        batch=Batch(rows_per_step=4, rows_per_slot=2),
        seed=0,
    )

    def rows_of_block(block: pa.Table) -> Iterator[pa.Table]:
        for item in block.to_pylist():
            (tmp_path / str(item["number"])).touch()
            time.sleep(0.03)
            yield pa.table({"row": range(16)})

    stream = blocks_for_ranks(
        stream_from_items(settings, [{"number": number} for number in range(60)], rows_of_block), world
    )
    stream.context.execution_options = ExecutionOptions(
        preserve_order=True, resource_limits=ExecutionResources.for_limits(cpu=cpus)
    )
    made = [len(list(tmp_path.iterdir())) for _ in stream.iter_batches(batch_size=None, batch_format="pyarrow")]
    assert made[len(made) // 4] < 40


def test_the_dealing_process_frees_dealt_blocks(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    log, blocks = tmp_path / "log", 80

    class Watched(StreamLoop):
        def on_execution_step(self, executor: StreamingExecutor) -> None:
            super().on_execution_step(executor)
            statistics = sum(
                len(operator._output_blocks_stats)
                for operator in executor._topology
                if isinstance(operator, MapOperator)
            )
            anonymous = next(
                line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")
            )
            with log.open("a") as file:
                file.write(f"{statistics} {int(anonymous.split()[1])}\n")

    def rows_of_block(block: pa.Table) -> Iterator[pa.Table]:
        for _ in range(block.num_rows):
            yield pa.table({"ids": [np.random.bytes(round(TOKEN_BYTES * 32))] * 2048})  # bytes of a row of 32 tokens

    settings = StreamSettings(
        corpus=tiny_corpus,
        vocabulary=tiny_vocabulary,
        sampling=Sampling(maximum_length=32),
        batch=Batch(rows_per_step=16, rows_per_slot=4),
        seed=0,
    )
    stream = blocks_for_ranks(
        stream_from_items(settings, [{"number": number} for number in range(blocks)], rows_of_block), 1
    )
    stream.context.custom_execution_callback_classes = [Watched]
    stream.context.execution_options = ExecutionOptions(preserve_order=True)
    (part,) = stream.streaming_split(1, equal=True)
    rows = sum(block.num_rows for block in part.iter_batches(batch_size=None, batch_format="pyarrow"))
    assert rows == blocks * 2048
    statistics, kilobytes = zip(*(map(int, line.split()) for line in log.read_text().splitlines()))
    assert max(statistics) < blocks / 4
    assert kilobytes[-1] - kilobytes[len(kilobytes) // 4] < 8_000
