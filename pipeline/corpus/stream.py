"""Ray Data graph that makes masked rows from shards, starting at any cursor, and deals the rows to ranks in order."""

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray
from ray.data import DataIterator, ExecutionOptions, ExecutionResources
from ray.train import DataConfig, RunConfig

from pipeline.config.data import FullSentences, Sampling
from pipeline.config.flat import flatten
from pipeline.config.phases import Phase
from pipeline.config.training import Batch
from pipeline.corpus.order import Cursor, WindowRange, offset, permutation, rows_of_round, slots_by_rank, window_ranges
from pipeline.corpus.prepared import Corpus, Window, load_corpus
from pipeline.corpus.weights import NO_FACTORS, documents_of_epoch, language_factors, tokens_by_language
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.files.locations import absolute
from pipeline.on_ray import ray_private
from pipeline.text.cached_tokenizer import TABLE_CHUNKS, CachedTokenizer
from pipeline.text.example_table import with_positions
from pipeline.text.examples import make_examples
from pipeline.text.pairs import needed_documents
from pipeline.text.sentences import row_versions
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary

if TYPE_CHECKING:
    from pipeline.corpus.token_position import Position
    from pipeline.corpus.token_trainer import TokenStream

INPUT_BLOCKS = 2_000  # with more, Ray Data's planning takes seconds at every start
# Target size of a block: about the rows of one window. With Ray Data's default of 128 MiB, a block would be passed on
# much later.
BLOCK_BYTES = 4 * 2**20
STREAM_BYTES = 256 * 2**20  # minimum limit for the finished blocks that a stream holds (see bytes_ahead)
# Rounds of finished blocks that a stream may hold. With fewer, Ray Data gives an operator less memory than a round
# needs, and the stream stalls.
ROUNDS_AHEAD = 10
TOKEN_BYTES = 6.25  # bytes per token of a row in a block
PARTS_OF_ROUND = 16  # blocks per round from the tasks that make rows; few, because each block costs Ray Data time
# CPUs of a task that makes rows, and of a task that orders a round. If both do not fit on one CPU, the second waits
# until the first hits back-pressure.
ROWS_CPUS, ORDER_CPUS = 0.75, 0.25
MEASURED_WINDOWS = 2  # windows that are read to estimate the rows per window
# Pause per iteration of Ray Data's scheduling loop. 0.01 s allows 100 iterations per second; each iteration passes on
# all finished blocks.
REST_SECONDS = 0.01
RESTS = 10  # maximum consecutive sleeps while blocks wait
CHARACTERS_PER_TOKEN = 5  # of English text; used only for estimates


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    """Settings of a stream's rows, and `table_chunks`, the size of the tokenizer's cache.

    The cache is a table of distinct chunks of text in each process. The size of the cache does not change the rows.
    """

    corpus: Corpus
    vocabulary: Vocabulary
    sampling: Sampling
    batch: Batch
    seed: int
    table_chunks: int = TABLE_CHUNKS

    @cached_property
    def language_factors(self) -> Mapping[str, float]:
        """{language: factor for the weights of its documents}; empty for sampling.language_exponent 1.

        The factors are computed once, in the process that builds the stream, and sent to the tasks with the settings.
        """
        if self.sampling.language_exponent == 1:
            return NO_FACTORS
        tokenizer = CachedTokenizer(self.vocabulary, self.table_chunks)
        return language_factors(tokens_by_language(self.corpus, tokenizer), self.sampling.language_exponent)


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Rows in the global order, and the settings that are needed to deal the rows to ranks."""

    dataset: ray.data.Dataset
    batch: Batch
    maximum_length: int
    cpus: float = 1.0
    """CPUs of a task that makes rows plus CPUs of a task that orders a round; at most 1."""


def settings_for_phase(settings: StreamSettings, phase: Phase) -> StreamSettings:
    """Return the settings with a phase's sampling and batch."""
    return replace(settings, sampling=phase.sampling, batch=phase.batch)


def window_rows(
    settings: StreamSettings, tokenizer: CachedTokenizer, windows: tuple[Window, ...], epoch: int, position: int
) -> pa.Table:
    """Make the rows (schema ROW) of the window at `position` in the epoch's order. This is a pure function."""
    index = int(permutation(settings.seed, epoch, len(windows))[position])
    documents = documents_of_window(settings, windows[index], epoch)
    examples = make_examples(documents, tokenizer, settings.sampling, seed=settings.seed, epoch=epoch, window=index)
    return with_positions(examples, epoch, position)


def documents_of_window(settings: StreamSettings, window: Window, epoch: int) -> pa.Table:
    """Return the documents of a window in an epoch, repeated according to their weights (schema DOCUMENT)."""
    copy = settings.sampling.copy_of_epoch(epoch)
    return documents_of_epoch(settings.corpus, window, settings.language_factors, copy)


def rows_of_range(settings: StreamSettings, tokenizer: CachedTokenizer, windows: WindowRange) -> Iterator[pa.Table]:
    """Yield the rows of a range of windows (schema ROW), one table per window; windows without rows are skipped."""
    train = settings.corpus.train
    for number in range(windows.first, windows.first + windows.count):
        epoch, position = divmod(number, len(train))
        table = window_rows(settings, tokenizer, train, epoch, position)
        if number == windows.first:
            table = table.slice(windows.skip)
        if table.num_rows:
            yield table


def count_rows_if_small(settings: StreamSettings, rows: int) -> int | None:
    """Return the number of rows in the first epoch if it may be below `rows`, else None.

    Rows are counted only for a small corpus, because counting makes all rows of the epoch.
    """
    if _characters_of(settings.corpus.train) > 20 * CHARACTERS_PER_TOKEN * rows * settings.sampling.maximum_length:
        return None
    return _count_rows(settings, range(len(settings.corpus.train)))


def _characters_of(windows: Sequence[Window]) -> int:
    return sum(window.characters for window in windows)


def _count_rows(settings: StreamSettings, positions: Iterable[int]) -> int:
    """Count the rows of the windows at these positions of the first epoch's order."""
    tokenizer = CachedTokenizer(settings.vocabulary, settings.table_chunks)
    train = settings.corpus.train
    return sum(window_rows(settings, tokenizer, train, 0, position).num_rows for position in positions)


def windows_for(settings: StreamSettings, rows: int) -> int:
    """Return a number of windows with certainly at least `rows` rows: twice an estimate from the first two windows.

    Raises DataError if the first two windows have no rows.
    """
    sample = range(min(MEASURED_WINDOWS, len(settings.corpus.train)))
    index = permutation(settings.seed, 0, len(settings.corpus.train))
    characters = _characters_of([settings.corpus.train[index[position]] for position in sample])
    per_character = _count_rows(settings, sample) / characters
    if per_character == 0:
        raise DataError(
            f"the corpus {settings.corpus.folder} yields no examples: it needs {needed_documents(settings.sampling)}"
        )
    per_window = per_character * _characters_of(settings.corpus.train) / len(settings.corpus.train)
    return math.ceil(2 * rows / per_window) + len(sample)


class StreamLoop(ray_private.execution_callback()):
    """Callback that sleeps and drops statistics in each iteration of Ray Data's scheduling loop.

    - It sleeps for 10 ms, or for up to 100 ms while blocks wait for the consumer. Reason: if the consumer is slower
      than the stream, Ray Data may leave finished results unread. Then the loop polls again at once (ray 2.60,
      process_completed_tasks). Without the sleep, this polling took a whole core from the training.
    - It drops the statistics that Ray Data keeps for every finished block, because they grow during the whole run.
    """

    def on_execution_step(self, executor: Any) -> None:
        ray_private.drop_block_statistics(executor)
        for _ in range(RESTS):
            time.sleep(REST_SECONDS)
            if ray_private.consumer_waits(executor):
                return


def build_stream(settings: StreamSettings, cursor: Cursor | None, rows: int, cpus: float = 1.0) -> Stream:
    """Return a stream of at least `rows` rows (schema ROW), in global order.

    The stream starts after `cursor`, or at the beginning for None. `cpus` is as in `Stream`. Pass the stream to
    `blocks_for_ranks`. The order holds only under ExecutionOptions(preserve_order=True).
    """
    tokenizer = CachedTokenizer(settings.vocabulary, settings.table_chunks)
    ranges = list(window_ranges(cursor, len(settings.corpus.train), windows_for(settings, rows), INPUT_BLOCKS))
    items = [{"first": r.first, "count": r.count, "skip": r.skip} for r in ranges]

    def rows_of_block(block: pa.Table) -> Iterator[pa.Table]:
        for item in block.to_pylist():
            yield from rows_of_range(settings, tokenizer, WindowRange(**item))

    return stream_from_items(settings, items, rows_of_block, cpus)


def stream_from_items(
    settings: StreamSettings,
    items: Sequence[Mapping[str, int]],
    rows_of_block: Callable[[pa.Table], Iterator[pa.Table]],
    cpus: float = 1.0,
) -> Stream:
    """Return a stream of rows; `rows_of_block` makes the rows from each block of items.

    `cpus` is as in `Stream`. Pass the stream to `blocks_for_ranks`.
    """
    dataset = ray.data.from_items(items, override_num_blocks=min(len(items), INPUT_BLOCKS)).map_batches(
        rows_of_block, batch_size=None, batch_format="pyarrow", num_cpus=ROWS_CPUS * cpus
    )
    dataset.context.target_max_block_size = BLOCK_BYTES
    dataset.context.custom_execution_callback_classes = [StreamLoop]
    dataset.context.raise_original_map_exception = True  # so that a DataError stays a DataError
    dataset.context.enable_progress_bars = False
    dataset.context.execution_no_progress_timeout_s = -1  # no timeout: an evaluation pauses the stream
    return Stream(dataset=dataset, batch=settings.batch, maximum_length=settings.sampling.row_length, cpus=cpus)


def bytes_ahead(one_round: int, maximum_length: int) -> int:
    """Return the maximum bytes of finished blocks that a stream may hold; `one_round` is the rows per round."""
    return max(STREAM_BYTES, round(ROUNDS_AHEAD * TOKEN_BYTES * one_round * maximum_length))


def blocks_for_ranks(stream: Stream, world: int) -> ray.data.Dataset:
    """Group a stream's rows into equal blocks, to be dealt in turn to the ranks; `world` is the number of ranks.

    After dealing, slot k is at rank k mod `world`. With several ranks and several slots per block, slots are reordered,
    and rows at the end that do not fill a round are dropped. Otherwise the last block may have fewer rows.
    """
    dataset, batch = stream.dataset, stream.batch
    one_round = rows_of_round(batch, stream.maximum_length, world)
    rows = one_round // world
    dataset.context.target_max_block_size = max(
        BLOCK_BYTES, round(TOKEN_BYTES * one_round * stream.maximum_length / PARTS_OF_ROUND)
    )
    ordered = rows not in (one_round, batch.slot_rows)

    def by_rank(table: pa.Table) -> pa.Table:
        if not ordered:
            return table
        # The last rows may not fill a round. They can be dropped, because a stream has more rows than needed.
        whole = table.num_rows == one_round
        return rows_by_rank(table, batch.slot_rows, world) if whole else table.slice(0, 0)

    # Both operators must request the same CPUs. Then Ray Data fuses them, and their input is whole rounds.
    at_once = one_round if ordered else rows
    cpus = ORDER_CPUS * stream.cpus
    blocks = dataset.map_batches(by_rank, batch_size=at_once, batch_format="pyarrow", num_cpus=cpus).repartition(
        target_num_rows_per_block=rows, strict=True
    )
    ray_private.set_cpus_of_last_step(blocks, cpus)
    return blocks


def rows_by_rank(table: pa.Table, rows_per_slot: int, world: int) -> pa.Table:
    """Return the rows of a round in the order of ranks: the slots of rank 0, then of rank 1, and so on."""
    slots = slots_by_rank(table.num_rows // rows_per_slot, world)
    return pa.concat_tables([table.slice(slot * rows_per_slot, rows_per_slot) for slot in slots]).combine_chunks()


def slots_of_blocks(blocks: Iterable[pa.Table], rows_per_slot: int) -> Iterator[pa.Table]:
    """Yield the slots of a rank's blocks in order. The last slot of an incomplete block has fewer rows."""
    for block in blocks:
        yield from (block.slice(start, rows_per_slot) for start in range(0, block.num_rows, rows_per_slot))


class Dealing(DataConfig):
    """Deal each stream to the current number of workers with `blocks_for_ranks`.

    Ray Train allows a function in place of each dataset, and passes its result to `configure` unchanged, one dataset at
    a time and when the workers ask for it. So here the functions return a stream, or a function that builds the stream
    at that time, and `configure` makes the dataset. Other datasets are split as Ray Train splits them, with the same
    execution options.
    """

    def configure(
        self, datasets: Mapping[str, Any], world_size: int, *args: Any, **kwargs: Any
    ) -> list[dict[str, DataIterator]]:
        made = {name: each() if callable(each) else each for name, each in datasets.items()}
        blocks = {
            name: blocks_for_ranks(each, world_size) if isinstance(each, Stream) else each
            for name, each in made.items()
        }
        return super().configure(blocks, world_size, *args, **kwargs)


def dealing(held_bytes: int, cpus: float = math.inf) -> Dealing:
    """Return the `dataset_config` of a trainer for streams that hold at most `held_bytes` and use at most `cpus`."""
    limits = ExecutionResources.for_limits(cpu=cpus, object_store_memory=held_bytes)
    return Dealing(execution_options=ExecutionOptions(preserve_order=True, resource_limits=limits))


def blocks_of_shard(shard: DataIterator) -> Generator[pa.Table]:
    """Return this worker's blocks of a stream, in order. The first block is requested at once."""
    return prefetch_first_block(iter(shard.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=4)))


def prefetch_first_block(coming: Generator[pa.Table]) -> Generator[pa.Table]:
    """Return the blocks in order. The first block is requested at once, while the caller builds the model.

    Once a block was taken, closing the result closes `coming`.
    """
    first = ThreadPoolExecutor(max_workers=1).submit(next, coming, None)

    def in_order() -> Generator[pa.Table]:
        block = first.result()
        with closing(coming):
            if block is not None:
                yield block
                yield from coming

    return in_order()


PACKED = Sampling(pairs=FullSentences())
"""Full sentences of consecutive documents, packed into rows of at most 128 tokens."""


def token_stream(
    corpus: str | Corpus,
    vocabulary: str | Vocabulary,
    run_config: RunConfig,
    *,
    steps: int,
    batch: Batch,
    sampling: Sampling = PACKED,
    seed: int = 0,
) -> "TokenStream":
    """Return a stream of rows for any trainer of Ray Train.

    `corpus` is a folder that jobs/prepare.py wrote; `vocabulary`, a file or folder as in `load_vocabulary`.
    `run_config` is the trainer's. At every start of the workers, the stream continues after the newest committed
    checkpoint of that run, whose metadata must have the `state()` of the batches. A step has batch.rows_per_step rows,
    the same for any number of workers, which get its slots in turn.

    Raises ConfigError if the settings cannot be used or differ from those of the checkpoint, DataError if the corpus or
    the vocabulary cannot be used, and CheckpointError if the checkpoint has no position.
    """
    # here: pretraining has a position and batches of its own, and has checked its corpus before Ray starts
    from pipeline.corpus.given_pairs import require_fitting_pairs
    from pipeline.corpus.token_trainer import TokenStream

    if not sampling.masks:
        raise ConfigError(
            f"sampling.pairs ({type(sampling.pairs).__name__}) makes rows of whole texts, which token_stream does not "
            "deal: choose NextSentence, SentenceOrder, FullSentences or SingleSegment"
        )
    settings = StreamSettings(
        corpus=load_corpus(absolute(corpus)) if isinstance(corpus, str) else corpus,
        vocabulary=load_vocabulary(absolute(vocabulary), None) if isinstance(vocabulary, str) else vocabulary,
        sampling=sampling,
        batch=replace(batch, rows_per_slot=batch.slot_rows),
        seed=seed,
    )
    require_fitting_pairs(sampling, settings.corpus.formats, settings.corpus.folder)
    stream = TokenStream(
        run=storage.join(str(run_config.storage_path), str(run_config.name)),
        filesystem=run_config.storage_filesystem,
        steps=steps,
        batch=settings.batch,
        vocabulary=settings.vocabulary,
        settings={
            "corpus.fingerprint": settings.corpus.fingerprint,
            "vocabulary.fingerprint": settings.vocabulary.fingerprint,
            "seed": seed,
            **flatten(sampling, "sampling."),
            **flatten(settings.batch, "batch."),
            **row_versions(),
        },
        dataset_config=dealing(bytes_ahead(_most_of_round(settings), sampling.row_length)),
        stream_after=partial(_stream_after, settings, steps),
        slots_of_shard=lambda shard: slots_of_blocks(blocks_of_shard(shard), settings.batch.slot_rows),
    )
    stream.newest_position()  # raises here, before the workers start
    return stream


def _most_of_round(settings: StreamSettings) -> int:
    """Return the maximum number of rows in a round of as many workers as the first step has slots."""
    batch, length = settings.batch, settings.sampling.row_length
    return max(rows_of_round(batch, length, world) for world in range(1, batch.fewest_slots + 1))


def _stream_after(settings: StreamSettings, steps: int, position: "Position") -> Stream:
    """Return the stream after a position, up to `steps` steps and one more step and round."""
    train, tokenizer = settings.corpus.train, CachedTokenizer(settings.vocabulary, settings.table_chunks)
    cursor = position.cursor_ahead(
        len(train), lambda number: window_rows(settings, tokenizer, train, *divmod(number, len(train))).num_rows
    )
    left = offset(max(steps, position.step) + 1, settings.batch) - offset(position.step, settings.batch)
    return build_stream(settings, cursor, left + _most_of_round(settings))
