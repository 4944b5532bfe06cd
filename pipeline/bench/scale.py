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

from pipeline.columns import aligned
from pipeline.config.training import Batch
from pipeline.corpus.order import WindowRange, rows_of_round, slots_at, slots_of_block, slots_of_rank
from pipeline.corpus.stream import (
    StreamSettings,
    blocks_for_ranks,
    build_stream,
    bytes_ahead,
    rows_of_range,
    slots_of_blocks,
    stream_from_items,
)
from pipeline.plan import STREAM_TOKENS
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.dealing import Dealing
from pipeline.train.slots import exchange, make_slot

WARM_STEPS = 5
"""Steps before the clock starts, in worlds that sleep: processes start and tables fill."""
WORLDS = (1, 2, 4)
GPU_TOKENS = 500_000
"""Approximate tokens per second of bert-base on one H100 at 30% of its peak."""
WORLDS_ON_PAPER = (8, 64, 512)
ROWS = (32, 256)
"""Rows per slot in the estimate for many GPUs."""
WINDOWS_A_TASK = 16
ROUNDS = {8: 60, 64: 6}
"""World -> blocks per rank that the single reader takes."""


@dataclass(frozen=True, kw_only=True)
class Sleeper:
    """Settings of each worker."""

    batch: Batch
    seconds: float
    """Seconds of sleep per slot."""
    steps: int
    warm: int
    """Warm-up steps, not timed."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Figures of one world after the warm-up."""

    world: int
    tokens: int
    slots: int
    blocks: float
    seconds: float
    slept: float
    """Time of the sleeps alone."""


def _no_terms(batch: object) -> dict[str, int]:
    """Return no counts: nothing is trained here."""
    return {}


def _sleep_instead_of_training(settings: dict[str, Any]) -> None:
    """Run a worker's loop: blocks, exchange of records and a reduction as in training, and a sleep instead of the
    model.
    """
    about: Sleeper = settings["sleeper"]
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    blocks = ray.train.get_dataset_shard("train").iter_batches(
        batch_size=None, batch_format="pyarrow", prefetch_batches=4
    )
    coming = slots_of_blocks(blocks, about.batch.rows_per_slot)
    tokens, started = 0, 0.0
    for step in range(about.warm + about.steps):
        if step == about.warm:
            tokens, started = 0, time.perf_counter()
        slots = [
            make_slot(next(coming), number, _no_terms) for number in slots_of_rank(step, 0, about.batch, rank, world)
        ]
        records = exchange([slot.record for slot in slots], slots_at(step, about.batch), world)
        time.sleep(about.seconds * len(slots))
        if world > 1:
            dist.all_reduce(torch.zeros(1))
        tokens += sum(record.tokens for record in records)
    if rank == 0:
        Path(settings["result"]).write_text(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - started}))


def pace(settings: StreamSettings, sleeper: Sleeper, world: int) -> Pace:
    """Run one world."""
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
    return Pace(
        world=world,
        tokens=metrics["tokens"],
        slots=slots,
        blocks=blocks,
        seconds=metrics["seconds"],
        slept=sleeper.steps * per_rank * sleeper.seconds,
    )


@dataclass(frozen=True, kw_only=True)
class Dealt:
    """Figures of one stream with one reader in place of a world."""

    world: int
    slots: int
    blocks: int
    tokens: int
    seconds: float
    """Seconds from the stream's start."""
    cpu: float
    """CPU seconds of the process that plans the stream's tasks and here also reads; the tasks' own work can spread over
    cores.
    """


def read_dealt_blocks(settings: StreamSettings, world: int, rounds: int) -> Dealt:
    """Read the blocks of a world without its workers. The rows repeat one window, so that making them takes no time."""
    length = settings.sampling.maximum_length
    one_round = rows_of_round(settings.batch, length, world)
    window = next(rows_of_range(settings, CachedTokenizer(settings.vocabulary), WindowRange(first=0, count=1)))
    there = ray.put(window)

    def same_rows(block: pa.Table) -> Iterator[pa.Table]:
        yield from (ray.get(there) for _ in range(block.num_rows * WINDOWS_A_TASK))

    numbers = range(math.ceil((rounds + 1) * one_round / window.num_rows / WINDOWS_A_TASK))
    stream = blocks_for_ranks(stream_from_items(settings, [{"number": number} for number in numbers], same_rows), world)
    limit = ExecutionResources.for_limits(object_store_memory=bytes_ahead(one_round, length))
    stream.context.execution_options = ExecutionOptions(preserve_order=True, resource_limits=limit)
    stream.context.enable_progress_bars = False
    tokens, begun, cpu = 0, time.perf_counter(), time.process_time()
    for block in itertools.islice(
        stream.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=4), rounds * world
    ):
        tokens += len(block["ids"].combine_chunks().flatten())
    slots = one_round // settings.batch.rows_per_slot // world
    return Dealt(
        world=world,
        slots=slots,
        blocks=rounds * world,
        tokens=tokens,
        seconds=time.perf_counter() - begun,
        cpu=time.process_time() - cpu,
    )


def dealt_table(found: Sequence[Dealt]) -> str:
    """Return a table with one line per world."""
    rows = [
        (
            f"{one.world}",
            f"{one.slots}",
            f"{one.blocks / one.seconds:,.1f}",
            f"{one.tokens / one.seconds:,.0f}",
            f"{1000 * one.cpu / one.blocks:.1f} ms",
            f"{one.blocks / one.cpu:,.0f}",
        )
        for one in found
    ]
    return "\n".join(
        aligned(
            (
                "ranks",
                "slots a block",
                "blocks/s",
                "tokens/s",
                "of its one process, a block",
                "blocks/s of that process",
            ),
            rows,
        )
    )


def table(paces: Sequence[Pace]) -> str:
    """Return a table with one line per world."""
    rows = [
        (
            f"{one.world}",
            f"{one.tokens / one.seconds:,.0f}",
            f"{one.slots / one.seconds:,.1f}",
            f"{one.blocks / one.seconds:,.1f}",
            f"{one.slept / one.seconds:.1%}",
            f"{1000 * (one.seconds - one.slept) / max(1, one.slots):.1f} ms",
        )
        for one in paces
    ]
    return "\n".join(
        aligned(("workers", "tokens/s", "slots/s", "blocks/s", "of the time is sleep", "beside it, a slot"), rows)
    )


def estimate_for_many_gpus(blocks_per_second: float, tokens_per_row: float, maximum_length: int) -> str:
    """Estimate from one stream's blocks per second what it feeds at many GPUs, assuming larger blocks are no slower."""
    rows = []
    for gpus in WORLDS_ON_PAPER:
        needed = gpus * GPU_TOKENS
        for of_slot in ROWS:
            slots = needed / (of_slot * tokens_per_row)
            blocks = slots / slots_of_block(Batch(rows_per_step=of_slot, rows_per_slot=of_slot), maximum_length, gpus)
            rows.append(
                (
                    f"{gpus}",
                    str(of_slot),
                    f"{needed / 1e6:,.0f} M",
                    f"{slots:,.0f}",
                    f"{blocks:,.0f}",
                    f"{blocks / blocks_per_second:.1f}",
                    f"{math.ceil(needed / STREAM_TOKENS)}",
                )
            )
    heads = (
        "GPUs",
        "rows a slot",
        "tokens/s",
        "slots/s",
        "blocks/s needed",
        "times what one stream gives",
        "cores for text",
    )
    return "\n".join(
        [
            f"on paper, GPUs that take {GPU_TOKENS:,} tokens a second each (bert-base on an H100, about):",
            *aligned(heads, rows),
        ]
    )
