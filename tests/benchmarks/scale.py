"""Measure the cost of coordination: local workers that sleep instead of computing, fed by one stream."""

import itertools
import json
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.train
import torch
import torch.distributed as dist
from ray.data import ExecutionOptions, ExecutionResources
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from pipeline.bench.benches import prepared
from pipeline.command_line.columns import aligned
from pipeline.config.data import Sampling
from pipeline.config.training import Batch
from pipeline.corpus.order import WindowRange, rows_of_round, slots_at, slots_of_block, slots_of_rank
from pipeline.corpus.stream import (
    Dealing,
    StreamSettings,
    blocks_for_ranks,
    build_stream,
    bytes_ahead,
    rows_of_range,
    slots_of_blocks,
    stream_from_items,
)
from pipeline.reporting import Report
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.plan import STREAM_TOKENS
from pipeline.train.slots import exchange, make_slot
from tests.benchmarks.settings import Scale

WARM_STEPS = 5
"""Untimed steps of workers that sleep. In this time, processes start and the tokenizers' tables fill."""
WORLDS = (1, 2, 4)
"""Numbers of workers to run."""
GPU_TOKENS = 500_000
"""Estimated tokens per second of bert-base on one H100, at 30% of its peak."""
WORLDS_ON_PAPER = (8, 64, 512)
"""Numbers of GPUs in the estimate for many GPUs."""
ROWS = (32, 256)
"""Rows per slot in the same estimate."""
WINDOWS_A_TASK = 16
"""Windows whose rows one task makes."""
ROUNDS = {8: 60, 64: 6}
"""Number of ranks -> number of blocks per rank. A single process reads the blocks of all ranks."""


@dataclass(frozen=True, kw_only=True)
class Sleeper:
    """Settings of workers that sleep."""

    batch: Batch
    seconds: float
    """Seconds of sleep per slot."""
    steps: int
    """Timed steps."""
    warm: int
    """Untimed steps before the timed ones."""


@dataclass(frozen=True, kw_only=True)
class StepPace:
    """Measurements of the timed steps with one number of workers."""

    world: int
    """Number of workers."""
    tokens: int
    slots: int
    blocks: float
    """Number of blocks that hold the timed slots."""
    seconds: float
    slept: float
    """Seconds that the worker with the most slots slept."""


def _no_terms(batch: object) -> dict[str, int]:
    """Return no counts of loss terms, since nothing is trained."""
    return {}


def _sleep_instead_of_training(settings: dict[str, Any]) -> None:
    """Run one worker as in training (blocks, records, reduction over ranks), with a sleep instead of computation.

    Rank 0 writes the tokens and seconds of the timed steps to the file settings["result"].
    """
    sleeper: Sleeper = settings["sleeper"]
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    blocks = ray.train.get_dataset_shard("train").iter_batches(
        batch_size=None, batch_format="pyarrow", prefetch_batches=4
    )
    tables = slots_of_blocks(blocks, sleeper.batch.slot_rows)
    tokens, started = 0, 0.0
    for step in range(sleeper.warm + sleeper.steps):
        if step == sleeper.warm:
            tokens, started = 0, time.perf_counter()
        slots = [
            make_slot(next(tables), number, _no_terms) for number in slots_of_rank(step, 0, sleeper.batch, rank, world)
        ]
        records = exchange([slot.record for slot in slots], slots_at(step, sleeper.batch), world)
        time.sleep(sleeper.seconds * len(slots))
        if world > 1:
            dist.all_reduce(torch.zeros(1))
        tokens += sum(record.tokens for record in records)
    if rank == 0:
        Path(settings["result"]).write_text(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - started}))


def pace(settings: StreamSettings, sleeper: Sleeper, world: int) -> StepPace:
    """Run `world` sleeping workers on one stream, and return what was measured."""
    options = ExecutionOptions(preserve_order=True)
    rows = (sleeper.warm + sleeper.steps) * sleeper.batch.rows_per_step + rows_of_round(
        sleeper.batch, settings.sampling.maximum_length, world
    )
    with tempfile.TemporaryDirectory(prefix="bertstream-bench-") as folder:
        trainer = TorchTrainer(
            _sleep_instead_of_training,
            train_loop_config={"sleeper": sleeper, "result": f"{folder}/result.json"},
            datasets={"train": lambda: build_stream(settings, None, rows)},
            dataset_config=Dealing(datasets_to_split=["train"], execution_options=options),
            scaling_config=ScalingConfig(num_workers=world, resources_per_worker={"CPU": 0.1}),
            torch_config=TorchConfig(backend="gloo"),
            run_config=RunConfig(name="sleeping", storage_path=folder),
        )
        trainer.fit()
        metrics = json.loads(Path(folder, "result.json").read_text())
    per_rank = math.ceil(sleeper.batch.slots_per_step / world)
    slots = sleeper.steps * sleeper.batch.slots_per_step
    blocks = slots / slots_of_block(sleeper.batch, settings.sampling.maximum_length, world)
    return StepPace(
        world=world,
        tokens=metrics["tokens"],
        slots=slots,
        blocks=blocks,
        seconds=metrics["seconds"],
        slept=sleeper.steps * per_rank * sleeper.seconds,
    )


@dataclass(frozen=True, kw_only=True)
class Dealt:
    """Measurements of one stream with blocks for `world` ranks; one process reads all blocks."""

    world: int
    slots: int
    """Slots per block."""
    blocks: int
    """Number of blocks read, summed over all ranks."""
    tokens: int
    seconds: float
    """Seconds from the stream's start."""
    cpu: float
    """CPU seconds of the process that plans the stream's tasks and reads the blocks.

    The tasks run in other processes, so more cores can share their work. More cores do not help this process.
    """


def read_dealt_blocks(settings: StreamSettings, world: int, rounds: int) -> Dealt:
    """Read `rounds` blocks per rank of a stream for `world` ranks, without workers.

    The tasks return the rows of one window again and again, so that making rows takes no time.
    """
    length = settings.sampling.maximum_length
    round_rows = rows_of_round(settings.batch, length, world)
    window = next(rows_of_range(settings, CachedTokenizer(settings.vocabulary), WindowRange(first=0, count=1)))
    stored = ray.put(window)

    def same_rows(block: pa.Table) -> Iterator[pa.Table]:
        yield from (ray.get(stored) for _ in range(block.num_rows * WINDOWS_A_TASK))

    numbers = range(math.ceil((rounds + 1) * round_rows / window.num_rows / WINDOWS_A_TASK))
    stream = blocks_for_ranks(stream_from_items(settings, [{"number": number} for number in numbers], same_rows), world)
    limit = ExecutionResources.for_limits(object_store_memory=bytes_ahead(round_rows, length))
    stream.context.execution_options = ExecutionOptions(preserve_order=True, resource_limits=limit)
    tokens, begun, cpu = 0, time.perf_counter(), time.process_time()
    for block in itertools.islice(
        stream.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=4), rounds * world
    ):
        tokens += len(block["ids"].combine_chunks().flatten())
    slots = round_rows // settings.batch.slot_rows // world
    return Dealt(
        world=world,
        slots=slots,
        blocks=rounds * world,
        tokens=tokens,
        seconds=time.perf_counter() - begun,
        cpu=time.process_time() - cpu,
    )


def dealt_table(readings: Sequence[Dealt]) -> str:
    """Return a table with one line per number of ranks."""
    rows = [
        (
            f"{reading.world}",
            f"{reading.slots}",
            f"{reading.blocks / reading.seconds:,.1f}",
            f"{reading.tokens / reading.seconds:,.0f}",
            f"{1000 * reading.cpu / reading.blocks:.1f} ms",
            f"{reading.blocks / reading.cpu:,.0f}",
        )
        for reading in readings
    ]
    return "\n".join(
        aligned(
            (
                "ranks",
                "slots per block",
                "blocks/s",
                "tokens/s",
                "CPU time of its process per block",
                "blocks per second of that CPU time",
            ),
            rows,
        )
    )


def table(paces: Sequence[StepPace]) -> str:
    """Return a table with one line per number of workers."""
    rows = [
        (
            f"{measured.world}",
            f"{measured.tokens / measured.seconds:,.0f}",
            f"{measured.slots / measured.seconds:,.1f}",
            f"{measured.blocks / measured.seconds:,.1f}",
            f"{measured.slept / measured.seconds:.1%}",
            f"{1000 * (measured.seconds - measured.slept) / max(1, measured.slots):.1f} ms",
        )
        for measured in paces
    ]
    return "\n".join(
        aligned(("workers", "tokens/s", "slots/s", "blocks/s", "share of sleep", "other time per slot"), rows)
    )


def estimate_for_many_gpus(blocks_per_second: float, tokens_per_row: float, maximum_length: int) -> str:
    """Return a table of the blocks per second that many GPUs need, estimated.

    The table also has this rate divided by `blocks_per_second`, the rate of one stream. The estimate assumes that a
    stream needs the same time for a large block and a small block.
    """
    rows = []
    for gpus in WORLDS_ON_PAPER:
        needed = gpus * GPU_TOKENS
        for slot_rows in ROWS:
            slots = needed / (slot_rows * tokens_per_row)
            batch = Batch(rows_per_step=slot_rows, rows_per_slot=slot_rows)
            blocks = slots / slots_of_block(batch, maximum_length, gpus)
            rows.append(
                (
                    f"{gpus}",
                    str(slot_rows),
                    f"{needed / 1e6:,.0f} M",
                    f"{slots:,.0f}",
                    f"{blocks:,.0f}",
                    f"{blocks / blocks_per_second:.1f}",
                    f"{math.ceil(needed / STREAM_TOKENS)}",
                )
            )
    heads = (
        "GPUs",
        "rows per slot",
        "tokens/s",
        "slots/s",
        "blocks/s needed",
        "needed / one stream's",
        "cores to prepare the text",
    )
    return "\n".join(
        [
            f"estimated, for GPUs that take {GPU_TOKENS:,} tokens per second each (about bert-base on an H100):",
            *aligned(heads, rows),
        ]
    )


def run(config: Scale, report: Report) -> int:
    """Measure and print; return 0."""
    milliseconds, steps = config.milliseconds, config.steps
    with prepared(config.corpus, config.vocabulary, report) as (corpus, vocabulary):
        batch = Batch(rows_per_step=128, rows_per_slot=32)
        wanted = StreamSettings(corpus=corpus, vocabulary=vocabulary, sampling=Sampling(), batch=batch, seed=0)
        paces = [
            pace(
                wanted,
                Sleeper(batch=batch, seconds=milliseconds / 1000, steps=steps, warm=WARM_STEPS),
                world,
            )
            for world in WORLDS
        ]
        without_sleep = [
            pace(wanted, Sleeper(batch=batch, seconds=0, steps=20 * steps, warm=10 * steps), world) for world in WORLDS
        ]
        alone = [read_dealt_blocks(wanted, world, rounds) for world, rounds in ROUNDS.items()]
    print(f"4 slots of 32 rows per step, {milliseconds:g} ms of sleep per slot instead of training")
    print(table(paces))
    print("without any sleep")
    print(table(without_sleep))
    print("one stream read by one process, with rows made in advance")
    print(dealt_table(alone))
    print(
        estimate_for_many_gpus(
            min(reading.blocks / reading.seconds for reading in alone),
            without_sleep[0].tokens / without_sleep[0].slots / batch.slot_rows,
            wanted.sampling.maximum_length,
        )
    )
    return 0
