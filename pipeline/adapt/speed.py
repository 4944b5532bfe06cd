"""Measure how fast this machine trains and embeds, with a few steps on words drawn from the encoder's vocabulary."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from pipeline.adapt.start import Start
from pipeline.config.jobs import Pretrain
from pipeline.objectives.terms import divisors
from pipeline.plan import loads
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import make_examples, with_positions
from pipeline.text.schema import DOCUMENT
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.building import build_module
from pipeline.train.hardware import autocast_of, chosen_precision, cores, required_device
from pipeline.train.optim import build_optimizer
from pipeline.train.slots import make_slot
from pipeline.train.step import Compute, backward, update

MOST_FLOPS = 2e11
"""Operations of a measured slot, if they are more than a row's: two seconds of two cores."""
MOST_SECONDS, MOST_TIMES = 2.0, 3
"""A measurement ends after so many seconds or repetitions; the repetition before the first does not count."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Times of a run's work on this machine, in seconds."""

    per_token: float
    """Forward and backward, per token."""
    per_step: float
    """Update of the weights, per step."""
    embedding: float
    """Forward alone, per token."""


def measure_speed(config: Pretrain, start: Start) -> Speed:
    """Measure steps of a run on this machine, in one process; the run's `model` must be the encoder's."""
    device = required_device(config.placement)
    (load,) = loads(config)
    rows = max(2, min(config.batch.rows_per_slot, int(MOST_FLOPS * load.rows / load.flops)))
    threads = torch.get_num_threads()
    torch.set_num_threads(config.placement.threads or cores())
    try:
        precision = chosen_precision(config.placement, device)
        module = build_module(config, start.vocabulary.size, device, precision).train()
        optimizer = build_optimizer(config.optimizer, module)
        slot = make_slot(_made_rows(config, start.vocabulary, rows), 0, module.counts)
        counts = divisors(dict(zip(module.terms, slot.record.counts, strict=True)), module.weights)
        compute = Compute(device=device, autocast=autocast_of(precision, device), seed=0)
        batch = slot.batch.to(device)

        def train() -> None:
            backward(module, [(0, batch)], counts, compute, step=1)

        def embed() -> None:
            with torch.inference_mode(), compute.autocast:
                module.encoder(batch)

        def step() -> None:
            train()
            update(optimizer, module, rate=0.0, clip_norm=config.optimizer.clip_norm)

        trained = _seconds(train, device)
        return Speed(
            per_token=trained / batch.tokens,
            per_step=max(0.0, _seconds(step, device) - trained),
            embedding=_seconds(embed, device) / batch.tokens,
        )
    finally:
        torch.set_num_threads(threads)


def _made_rows(config: Pretrain, vocabulary: Vocabulary, rows: int) -> pa.Table:
    """Return rows of random words (schema ROW), as long as a run's rows may be."""
    words = [token for token in vocabulary.tokens if token.isalpha()] or ["a"]
    drawn = np.random.default_rng(0).choice(words, (rows, 4, 2 * config.sampling.maximum_length))
    about = {"source": "", "lines_are_sentences": False, "language": "en"}
    documents = [
        about
        | {"id": f"{number}#0", "parent": f"{number}", "title": " ".join(lines[0, :8])}
        | {"text": "\n".join(" ".join(line) + "." for line in lines)}
        for number, lines in enumerate(drawn)
    ]
    table = pa.Table.from_pylist(documents, schema=DOCUMENT)
    examples = make_examples(table, CachedTokenizer(vocabulary), config.sampling, seed=0, epoch=0, window=0)
    return with_positions(examples[:rows], 0, 0)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the least seconds of `work`, after a repetition that does not count: other work makes it only slower."""
    work()
    times = []
    while len(times) < MOST_TIMES and sum(times) < MOST_SECONDS:
        begun = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begun)
    return min(times)
