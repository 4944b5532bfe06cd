"""Run the training loop of a recorded run without Ray, on rows made in advance; print a line of JSON per log interval.

python -m tests.benchmarks.plain OUTPUT/runs/NAME STEPS on|off STEPS_BETWEEN_LOG_LINES THREADS

"on" compiles the model with torch.compile.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import torch

from pipeline.bench.train import slots
from pipeline.config.jobs import Pretrain
from pipeline.config.placement import Placement
from pipeline.config.training import Tracking
from pipeline.corpus.order import WindowRange, offset
from pipeline.corpus.stream import StreamSettings, rows_of_range, windows_for
from pipeline.evaluation.heldout import heldout_batches
from pipeline.objectives.table import build_objective
from pipeline.optim.build import build_optimizer
from pipeline.saved import run
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.checkpoint import State
from pipeline.train.hardware import autocast_of, chosen_precision
from pipeline.train.loop import train
from pipeline.train.run_stream import stream_of_run
from pipeline.train.work import Work

RATE, STEP_TIME = "speed/tokens_per_second", "speed/step_milliseconds"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Measurements of one log interval."""

    step: int
    """Last step of the interval."""
    end: float
    """Time of logging, in seconds since 1970."""
    seconds: float
    """Duration of the interval."""
    tokens_per_second: float


def _train_alone(config: Pretrain, settings: StreamSettings, folder: str) -> None:
    """Train a whole run in this process and print its log intervals. Checkpoints are written to `folder`."""
    tokenizer, (phase, *_) = CachedTokenizer(settings.vocabulary, settings.table_chunks), config.all_phases
    everything = WindowRange(first=0, count=windows_for(settings, offset(config.steps, config.batch)))
    blocks = list(
        islice(
            slots(rows_of_range(settings, tokenizer, everything), config.batch.slot_rows),
            config.steps * config.batch.slots_per_step,
        )
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if config.placement.threads:
        torch.set_num_threads(config.placement.threads)
    torch.manual_seed(config.seed)
    module = build_objective(config.objective, config.sampling, config.model, settings.vocabulary.size).to(device)
    if config.placement.compile == "on":
        module.compile(dynamic=True)

    def log(step: int, metrics: dict[str, float]) -> None:
        if RATE in metrics:
            interval = Interval(
                step=step,
                end=time.time(),
                seconds=config.tracking.every * metrics[STEP_TIME] / 1000,
                tokens_per_second=metrics[RATE],
            )
            print(json.dumps(asdict(interval)), flush=True)

    work = Work(
        config=config,
        folder=folder,
        vocabulary=settings.vocabulary,
        rank=0,
        world=1,
        device=device,
        autocast=autocast_of(chosen_precision(config.placement, device), device),
        heldout=heldout_batches(
            settings.corpus,
            tokenizer,
            phase.sampling,
            rows=config.evaluation.rows,
            rows_per_batch=phase.batch.slot_rows,
            rank=0,
            world=1,
        ),
        log=log,
        flush=lambda: None,
    )
    train(work, iter(blocks), module, build_optimizer(config.optimizer, module), State())


def main(arguments: Sequence[str]) -> int:
    """Train in this process for the given steps, with the settings, corpus and vocabulary of a recorded run."""
    folder, steps, every, threads = (arguments[index] for index in (0, 1, 3, 4))
    compiled: Any = arguments[2]
    recorded = run.read_run(folder)
    assert recorded, folder
    config = replace(
        run.settings_of(recorded),
        steps=int(steps),
        placement=Placement(compile=compiled, threads=int(threads)),
        tracking=Tracking(every=int(every)),
    )
    with tempfile.TemporaryDirectory(prefix="bertstream-bench-") as scratch:
        _train_alone(config, stream_of_run(folder, recorded), scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
