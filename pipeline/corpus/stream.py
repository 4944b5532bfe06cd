"""Shards -> windows -> masked Arrow blocks of slots, dealt to ranks: a Ray Data graph in one global order, from any cursor."""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import ray
from ray.data._internal.execution.execution_callback import ExecutionCallback
from ray.data._internal.execution.operators.map_operator import MapOperator
from ray.data._internal.execution.streaming_executor import StreamingExecutor

from pipeline.config.data import Sampling
from pipeline.config.phases import Phase
from pipeline.config.training import Batch
from pipeline.corpus.order import Cursor, WindowRange, permutation, rows_of_round, slots_by_rank, window_ranges
from pipeline.corpus.prepare import Corpus, Window, read_window
from pipeline.errors import DataError
from pipeline.text.examples import make_examples
from pipeline.text.schema import ROW
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.wordpiece import TABLE_CHUNKS, WordPiece

INPUT_BLOCKS = 2_000  # Ray Data plans more than this for seconds at every start
BLOCK_BYTES = (
    4 * 2**20
)  # the rows of about one window: without it Ray Data collects 128 MiB before it hands anything on
STREAM_BYTES = 256 * 2**20  # of finished blocks that a stream may hold at least
ROUNDS_AHEAD = 10  # with less, Ray Data's shares for the steps of a stream are smaller than a round, and it stalls
TOKEN_BYTES = 6.25  # of a row in a block
PARTS_OF_ROUND = 16  # blocks, as they come from the tasks that make rows: what Ray Data does for each is done for none of them in parallel
ROWS_CPUS, ORDER_CPUS = (
    0.75,
    0.25,
)  # of a task that makes rows, and of one that puts a round in order: where one CPU does not hold both, Ray Data starves the second until the first may hold no more
MEASURED_WINDOWS = 2
REST_SECONDS = 0.01  # a hundred rounds a second, each of which hands on all that is ready
RESTS = 10  # one after the other at most, while blocks wait
BATCH_AND_LENGTH = (
    "bertstream"  # key in a stream's context: where it is dealt there is no other way to learn these of a phase
)
CHARACTERS_PER_TOKEN = 5  # of English, for estimates only


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    """All that the rows of a stream are a function of, and how many words a process keeps the ids of."""

    corpus: Corpus
    vocabulary: Vocabulary
    sampling: Sampling
    batch: Batch
    seed: int
    table_chunks: int = TABLE_CHUNKS


def settings_for_phase(settings: StreamSettings, phase: Phase) -> StreamSettings:
    """The same stream with a phase's lengths and rows."""
    return replace(settings, sampling=phase.sampling, batch=phase.batch)


def window_rows(
    settings: StreamSettings, wordpiece: WordPiece, windows: tuple[Window, ...], epoch: int, place: int
) -> pa.Table:
    """Rows (schema ROW) of the window at a place of an epoch's order: a pure function of its arguments."""
    index = int(permutation(settings.seed, epoch, len(windows))[place])
    documents = repeat_by_weight(read_window(settings.corpus, windows[index]), settings.corpus.weights, epoch)
    examples = make_examples(documents, wordpiece, settings.sampling, seed=settings.seed, epoch=epoch, window=index)
    rows = examples.num_rows
    columns = [
        pa.repeat(pa.scalar(epoch, pa.int64()), rows),
        pa.repeat(pa.scalar(place, pa.int64()), rows),
        pa.array(range(rows), pa.int64()),
        pa.repeat(pa.scalar(rows, pa.int64()), rows),
    ]
    return pa.table(list(examples.columns) + columns, schema=ROW)


def repeat_by_weight(documents: pa.Table, weights: dict[str, float], epoch: int) -> pa.Table:
    """Each document as often as its source's weight says, all of them once before any comes again; a fraction is drawn by a hash of the document and the epoch."""
    if all(weight == 1 for weight in weights.values()):
        return documents
    identities = zip(documents["source"].to_pylist(), documents["id"].to_pylist())
    times = np.array([int(weights[source] + uniform(id, epoch)) for source, id in identities], np.int64)
    # A document beside its copy could fill a sequence with it: the answers of its masks would stand in sight.
    rounds = [np.flatnonzero(times > already) for already in range(times.max(initial=0))]
    return documents.take(np.concatenate([np.zeros(0, np.int64), *rounds]))


def uniform(id: str, epoch: int) -> float:
    """A number from [0, 1) for a document and an epoch."""
    return int.from_bytes(hashlib.blake2b(f"{epoch}:{id}".encode(), digest_size=6).digest(), "big") / 2**48


def rows_of_range(settings: StreamSettings, wordpiece: WordPiece, windows: WindowRange) -> Iterator[pa.Table]:
    """The rows of a range of windows, one table a window; windows without rows give none."""
    train = settings.corpus.train
    for number in range(windows.first, windows.first + windows.count):
        epoch, place = divmod(number, len(train))
        table = window_rows(settings, wordpiece, train, epoch, place)
        if number == windows.first:
            table = table.slice(windows.skip)
        if table.num_rows:
            yield table


def count_rows_if_small(settings: StreamSettings, rows: int) -> int | None:
    """Rows of the first epoch, counted, when the corpus is small enough that they may be fewer than `rows`; else None."""
    if characters_of(settings.corpus.train) > 20 * CHARACTERS_PER_TOKEN * rows * settings.sampling.maximum_length:
        return None
    return count_rows(settings, range(len(settings.corpus.train)))


def characters_of(windows: Sequence[Window]) -> int:
    return sum(window.characters for window in windows)


def count_rows(settings: StreamSettings, places: Iterable[int]) -> int:
    """Rows of the windows at these places of the first epoch's order."""
    wordpiece = WordPiece(settings.vocabulary, settings.table_chunks)
    return sum(window_rows(settings, wordpiece, settings.corpus.train, 0, place).num_rows for place in places)


def windows_for(settings: StreamSettings, rows: int) -> int:
    """Windows that surely hold `rows` rows: twice what a few of the corpus' windows, read now, let expect."""
    sample = range(min(MEASURED_WINDOWS, len(settings.corpus.train)))
    index = permutation(settings.seed, 0, len(settings.corpus.train))
    characters = characters_of([settings.corpus.train[index[place]] for place in sample])
    per_character = count_rows(settings, sample) / characters
    if per_character == 0:
        raise DataError(
            f"the corpus {settings.corpus.folder} yields no examples: it needs documents of several sentences"
        )
    per_window = per_character * characters_of(settings.corpus.train) / len(settings.corpus.train)
    return math.ceil(2 * rows / per_window) + len(sample)


class StreamLoop(ExecutionCallback):
    """Rest and forget in each round of Ray Data's scheduling loop.

    - It sleeps, up to ten times as long while blocks wait for the consumer. Where the consumer is slower than the stream, all that is ready
      may not be read yet, and the loop asks again at once (ray 2.60, process_completed_tasks): that took one whole core, beside the training
      that it waits for.
    - It drops the statistics that each operator keeps for every finished block, about 1 KB, until the stream ends (ray 2.60; ray issue 66016).
    """

    def on_execution_step(self, executor: StreamingExecutor) -> None:
        for operator in executor._topology:
            if isinstance(operator, MapOperator):
                operator._output_blocks_stats.clear()
        for _ in range(RESTS):
            time.sleep(REST_SECONDS)
            if executor._consumer_idling():
                return


def build_stream(settings: StreamSettings, cursor: Cursor | None, rows: int) -> ray.data.Dataset:
    """Rows (schema ROW) from the row after `cursor` on, at least `rows` of them, in the global order; `blocks_for_ranks` makes blocks of them.

    The order holds only under ExecutionOptions(preserve_order=True).
    """
    wordpiece = WordPiece(settings.vocabulary, settings.table_chunks)
    ranges = list(window_ranges(cursor, len(settings.corpus.train), windows_for(settings, rows), INPUT_BLOCKS))
    items = [{"first": r.first, "count": r.count, "skip": r.skip} for r in ranges]

    def rows_of_block(block: pa.Table) -> Iterator[pa.Table]:
        for item in block.to_pylist():
            yield from rows_of_range(settings, wordpiece, WindowRange(**item))

    return stream_from_items(settings, items, rows_of_block)


def stream_from_items(
    settings: StreamSettings,
    items: Sequence[Mapping[str, int]],
    rows_of_block: Callable[[pa.Table], Iterator[pa.Table]],
) -> ray.data.Dataset:
    """The rows that tasks make of some items each, as `blocks_for_ranks` takes them."""
    stream = ray.data.from_items(items, override_num_blocks=min(len(items), INPUT_BLOCKS)).map_batches(
        rows_of_block, batch_size=None, batch_format="pyarrow", num_cpus=ROWS_CPUS
    )
    stream.context.target_max_block_size = BLOCK_BYTES
    stream.context.custom_execution_callback_classes = [StreamLoop]
    stream.context.raise_original_map_exception = True  # a DataError must arrive as one
    stream.context.set_config(BATCH_AND_LENGTH, (settings.batch, settings.sampling.maximum_length))
    return stream


def bytes_ahead(one_round: int, maximum_length: int) -> int:
    """What a stream may hold in finished blocks, where one block of every rank has so many rows."""
    return max(STREAM_BYTES, round(ROUNDS_AHEAD * TOKEN_BYTES * one_round * maximum_length))


def blocks_for_ranks(stream: ray.data.Dataset, world: int) -> ray.data.Dataset:
    """A stream's rows as blocks of equal size which, dealt in turn to `world` ranks, bring slot k to rank k mod `world`.

    Only where no order is changed, by one rank or blocks of one slot, may the last block have fewer rows.
    """
    batch, maximum_length = stream.context.get_config(BATCH_AND_LENGTH)
    one_round = rows_of_round(batch, maximum_length, world)
    rows = one_round // world
    stream.context.target_max_block_size = max(
        BLOCK_BYTES, round(TOKEN_BYTES * one_round * maximum_length / PARTS_OF_ROUND)
    )
    ordered = rows not in (one_round, batch.rows_per_slot)

    def by_rank(table: pa.Table) -> pa.Table:
        if not ordered:
            return table
        whole = table.num_rows == one_round  # the stream's last rows may be fewer: more are asked for than are needed
        return rows_by_rank(table, batch.rows_per_slot, world) if whole else table.slice(0, 0)

    # Ray Data makes one task of the two, with whole rounds as its input, where both ask for as much; what the second asks for can only be told so.
    at_once = one_round if ordered else rows
    blocks = stream.map_batches(by_rank, batch_size=at_once, batch_format="pyarrow", num_cpus=ORDER_CPUS).repartition(
        target_num_rows_per_block=rows, strict=True
    )
    blocks._logical_plan.dag.ray_remote_args["num_cpus"] = ORDER_CPUS
    return blocks


def rows_by_rank(table: pa.Table, rows_per_slot: int, world: int) -> pa.Table:
    """The slots of a round of blocks, those of each rank one after the other."""
    slots = slots_by_rank(table.num_rows // rows_per_slot, world)
    return pa.concat_tables([table.slice(place * rows_per_slot, rows_per_slot) for place in slots]).combine_chunks()


def slots_of_blocks(blocks: Iterable[pa.Table], rows_per_slot: int) -> Iterator[pa.Table]:
    """The slots of a rank's blocks, in order; the last one is shorter where a block does not hold whole slots."""
    for block in blocks:
        yield from (block.slice(start, rows_per_slot) for start in range(0, block.num_rows, rows_per_slot))
