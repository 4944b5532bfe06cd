"""The training loop: one `for` over the steps, with one plain `if` for each kind of event.

The loop does not use Ray: slots come from an iterator, and metrics go to callables.
"""

import dataclasses
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

import pyarrow as pa
import torch
from torch import nn

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import Phase
from pipeline.corpus.order import check_chain, cursor_for_phase, slots_at, slots_of_rank
from pipeline.errors import ConfigError, DataError
from pipeline.evaluation.blimp import evaluate_pairs
from pipeline.evaluation.evaluate import evaluate
from pipeline.evaluation.minimal_pairs.figures import blimp_text
from pipeline.model.encoder import encoders_in
from pipeline.objectives.table import Pretraining
from pipeline.objectives.terms import divisors
from pipeline.objectives.utilisation import utilisation_percent
from pipeline.optim.loss_scale import scales_loss
from pipeline.optim.schedule import decay_start, rate_share
from pipeline.reporting import duration
from pipeline.train.automatic import without_graphs
from pipeline.train.checkpoint import State
from pipeline.train.extra_checkpoints import ExtraCheckpoints
from pipeline.train.hardware import out_of_memory_as_config_error, peak_memory_bytes
from pipeline.train.meter import Meter, Step, training_metrics
from pipeline.train.recording import recorded_steps
from pipeline.train.saver import Saver
from pipeline.train.slots import Slot, SlotRecord, exchange, make_slot
from pipeline.train.step import StepContext, distributed, train_step
from pipeline.train.stragglers import Stragglers
from pipeline.train.work import Work

MOST_SKIPPED = 20
"""A run with on_nonfinite skip ends after this number of consecutive non-finite steps."""


Opened = AbstractContextManager[tuple[Work, Iterator[pa.Table]]]
"""Inputs of a phase: the work of this rank, and its slots."""


def train_phases(
    config: Pretrain,
    opened: Callable[[Pretrain, Phase, State], Opened],
    module: Pretraining,
    optimizer: torch.optim.Optimizer,
    state: State,
) -> State:
    """Train from `state` to the end of the run, one phase after another, and return the last state.

    `opened` opens a phase from a state on, for `train`. Its first argument is `config`, without CUDA graphs if a new
    run could not record them. The module keeps its compiled code from phase to phase. Raises as `train` does.
    """
    while state.step < config.steps:
        with opened(config, config.phase_at(state.step), state) as (work, tables):
            state, has_graphs = _train_recorded(work, tables, module, optimizer, state)
        if not has_graphs:
            config = without_graphs(config)
    _set_phase(module, config.phase_at(state.step))  # a run that was stopped after its last step opens no phase
    return state


def _set_phase(module: Pretraining, phase: Phase) -> None:
    """Give the module's encoders the settings of a phase, such as its rotary angles."""
    for encoder in encoders_in(module):
        encoder.settings = phase.model(encoder.settings)


def train(
    work: Work,
    tables: Iterator[pa.Table],
    module: Pretraining,
    optimizer: torch.optim.Optimizer,
    state: State,
) -> State:
    """Train from `state` to the end of its phase, write the last checkpoint, and return its state.

    The module's encoders keep the settings of the phase, such as its rotary angles, also after the end.

    `tables` yields the rows of this rank's slots, one table per slot. Raises DataError if these rows are not the next
    rows of the stream, or if `tables` ends before the phase does. Raises ConfigError if memory runs out or gradients
    are not finite.
    """
    return _train_recorded(work, tables, module, optimizer, state)[0]


def _train_recorded(
    work: Work,
    tables: Iterator[pa.Table],
    module: Pretraining,
    optimizer: torch.optim.Optimizer,
    state: State,
) -> tuple[State, bool]:
    """Do the work of `train`; also return whether the steps were recorded as CUDA graphs."""
    phase = work.config.phase_at(state.step)
    _set_phase(module, phase)
    objective: nn.Module = module
    if (graphs := recorded_steps(work, module, optimizer, phase, state.step)) is None:
        objective = distributed(module, work.device, work.world, reduce_precision=work.config.batch.reduce_precision)
    hooked = objective if graphs is None else None
    with (
        Saver(work.folder, work.config, work.vocabulary, work.flush, work.say, work.attempt) as saver,
        Stragglers(hooked, work.rank, work.world, work.worker_name, work.device) as stragglers,
    ):
        compute = StepContext(
            device=work.device,
            autocast=work.autocast,
            seed=work.config.seed,
            world=work.world,
            graphs=graphs,
            timed=stragglers.timed,
        )
        take_step = partial(train_step, objective, optimizer, compute=compute)
        return _train_phase(work, tables, module, optimizer, state, saver, stragglers, take_step), graphs is not None


def _train_phase(
    work: Work,
    tables: Iterator[pa.Table],
    module: Pretraining,
    optimizer: torch.optim.Optimizer,
    state: State,
    saver: Saver,
    stragglers: Stragglers,
    take_step: Callable[..., tuple[dict[str, torch.Tensor], torch.Tensor]],
) -> State:
    """Train the steps of a phase; `take_step` is `train_step` of this module."""
    config, start = work.config, state.step
    phase = config.phase_at(start)
    if state.step == 0:
        state = dataclasses.replace(
            state, heldout_before=state.heldout_before | _evaluate_and_log(work, module, state, phase)
        )
        _evaluate_on_blimp(work, module, state)
    state = dataclasses.replace(state, cursor=cursor_for_phase(state.cursor, phase, start))
    meter, extra = (
        Meter(work.world, state.interval, work.device),
        ExtraCheckpoints(work.leaving, elastic=config.worker_range.elastic),
    )
    for step in range(start, phase.end):
        done = step + 1
        positions = slots_of_rank(step - phase.first, start - phase.first, phase.batch, work.rank, work.world)
        slots = _take_slots(work, module, tables, meter, positions, step, phase.batch.slot_rows)
        records = exchange([slot.record for slot in slots], slots_at(step - phase.first, phase.batch), work.world)
        check_order(state, records, step)
        counts = _counts_of(module, records)
        rate = config.optimizer.learning_rate * rate_share(config.schedule, step, config.steps)
        with out_of_memory_as_config_error(config, phase, done, work.device):
            batches = [(slot.record.index, slot.batch) for slot in slots]
            shares = divisors(counts, module.weights)
            sums, norm = take_step(batches, shares, step=step, rate=rate, clip_norm=config.optimizer.clip_norm)
        state = advance(state, records)
        meter.add(_step_of(state.step, sums, counts, norm, records))
        if done % config.tracking.every == 0 or done == phase.end:
            state = _log_interval(work, module, state, meter, rate, norm, stragglers)
        if done % config.evaluation_every == 0 or done == phase.end:
            state = _evaluated(work, module, state, phase, meter)
        saver.check()
        needed = done in (phase.end, decay_start(config))
        asked = needed or done % config.checkpoint.every == 0
        if extra.is_due(done, meter.step_seconds, due=asked):
            state = _count_time(work, state, meter)
            if work.rank == 0:
                # While an earlier write is in progress, extra checkpoints are skipped. Regular checkpoints wait for the
                # write, or are skipped while a failed write is retried. Needed checkpoints always wait.
                saver.save(state, module, optimizer, wait=needed or asked and not saver.failing.is_set())
    return state


def _evaluated(work: Work, module: Pretraining, state: State, phase: Phase, meter: Meter) -> State:
    """Evaluate the module and log the scores; return the state with them and with the time so far."""
    state = _count_time(work, state, meter)
    heldout = _evaluate_and_log(work, module, state, phase)
    blimp = _evaluate_on_blimp(work, module, state)
    meter.resume_clock()
    return dataclasses.replace(state, heldout_loss=heldout.get(module.selecting), blimp=blimp)


def _counts_of(module: Pretraining, records: Sequence[SlotRecord]) -> dict[str, int]:
    """Return the count of each loss term over all slots of a step."""
    return {term: sum(record.counts[index] for record in records) for index, term in enumerate(module.terms)}


def _take_slots(
    work: Work,
    module: Pretraining,
    tables: Iterator[pa.Table],
    meter: Meter,
    positions: Sequence[int],
    step: int,
    rows_per_slot: int,
) -> list[Slot]:
    """Return this rank's slots of the step; add the time spent waiting for them to `meter.wait`."""
    slots = []
    for position in positions:
        asked = time.perf_counter()
        table = next(tables, None)
        meter.wait += time.perf_counter() - asked
        if table is None:
            raise DataError(
                f"the stream ended at step {step} of {work.config.steps}: the corpus yields no more examples"
            )
        if table.num_rows != rows_per_slot:
            raise DataError(f"step {step}: a slot came with {table.num_rows} rows instead of {rows_per_slot}")
        slots.append(make_slot(table, position, module.counts))
    return slots


def check_order(state: State, records: Sequence[SlotRecord], step: int) -> None:
    """Raise DataError unless the step's slots are the next rows after the cursor.

    The check is necessary because Ray does not guarantee the order in which it deals blocks to workers.
    """
    problem = check_chain(state.cursor, [(record.first, record.last) for record in records])
    if problem:
        raise DataError(
            f"step {step} got rows out of order ({problem}) and was not trained. Run the same command again"
        )


def advance(state: State, records: Sequence[SlotRecord]) -> State:
    """Return the state after a step; `records` describe the slots of that step."""
    crc32 = state.crc32
    for record in records:
        crc32 = zlib.crc32(record.crc32.to_bytes(4, "little"), crc32)
    summed = {
        name: getattr(state, name) + sum(getattr(record, name) for record in records)
        for name in ("tokens", "squares", "masked")
    }
    return dataclasses.replace(
        state, step=state.step + 1, cursor=records[-1].last, crc32=crc32, heldout_loss=None, blimp={}, **summed
    )


def _step_of(
    number: int,
    sums: dict[str, torch.Tensor],
    counts: dict[str, int],
    norm: torch.Tensor,
    records: Sequence[SlotRecord],
) -> Step:
    """Return a `Step` for the meter, with the counts added up over all slots of the step."""
    tokens, squares, masked = (
        sum(getattr(record, name) for record in records) for name in ("tokens", "squares", "masked")
    )
    return Step(number=number, sums=sums, counts=counts, norm=norm, tokens=tokens, squares=squares, masked=masked)


def _count_time(work: Work, state: State, meter: Meter) -> State:
    """Return the state, updated with the time and totals that the meter collected since the last call.

    Raises ConfigError as `_refuse_nonfinite` does, because `meter.reduce` finds the steps with non-finite gradients.
    """
    before = dict(meter.total)
    total = meter.reduce()
    _refuse_nonfinite(work, meter)
    grown = {name: value - before.get(name, 0.0) for name, value in total.items()}
    return dataclasses.replace(
        state,
        seconds=state.seconds + grown["seconds"],
        wait_seconds=state.wait_seconds + grown["wait_seconds"],
        step_times=state.step_times
        | {name: state.step_times.get(name, 0.0) + count for name, count in grown.items() if name.startswith("time.")},
        interval=total if total.get("steps") else {},
    )


def _refuse_nonfinite(work: Work, meter: Meter) -> None:
    """Raise ConfigError if the meter has counted a non-finite step.

    If on_nonfinite is "skip", or with a loss scale, which makes gradients overflow now and then, this raises only if
    the last MOST_SKIPPED steps were all non-finite.
    """
    config = work.config
    skips = config.on_nonfinite == "skip" or scales_loss(work.autocast)
    if "nonfinite" not in meter.total or (skips and meter.nonfinite_in_a_row < MOST_SKIPPED):
        return
    number = meter.newest_nonfinite if skips else int(meter.total["first_nonfinite"])
    problem = (
        f"{meter.nonfinite_in_a_row} steps in a row, up to step {number}, have no finite gradient"
        if skips
        else f"the gradient of step {number} is not finite, so this step did not change the weights"
    )
    otherwise = "" if skips else ", or skip such steps with on_nonfinite skip"
    raise ConfigError(
        f"{problem}: lower optimizer.learning_rate ({config.optimizer.learning_rate}) "
        f"and start under another --name{otherwise}; "
        f"the rows of step {number} are shown by jobs/show.py seen {work.folder} {number}"
    )


def _log_interval(
    work: Work, module: Pretraining, state: State, meter: Meter, rate: float, norm: torch.Tensor, stragglers: Stragglers
) -> State:
    """Log the means since the last logged step, report a straggler, and start the next interval."""
    state = _count_time(work, state, meter)
    cursor = state.cursor
    assert cursor is not None  # set after the first step
    metrics = training_metrics(meter.total, module.weights) | {
        "speed/peak_memory_gigabytes": peak_memory_bytes(work.device) / 1e9
    }
    if work.peak_flops is not None:
        peak = work.world * work.peak_flops
        metrics["speed/model_flops_utilisation_percent"] = utilisation_percent(
            work.config, work.vocabulary.size, meter.total, meter.total["seconds"], peak
        )
    meter.clear()
    if line := stragglers.read():
        work.say(line)
    work.log(
        state.step,
        metrics
        | {
            "train/learning_rate": rate,
            "train/gradient_norm": float(norm),
            "stream/epoch": float(cursor.epoch),
            "stream/tokens": float(state.tokens),
            "stream/rows_crc32": float(state.crc32),
        },
    )
    return dataclasses.replace(state, interval={})


def _evaluate_and_log(work: Work, module: Pretraining, state: State, phase: Phase) -> dict[str, float]:
    """Evaluate on the phase's held-out examples; log and return the metrics and the phase's sequence length.

    The result is empty, and nothing is logged, if there are no held-out rows.
    """
    metrics = evaluate(module, work.heldout, world=work.world, device=work.device, autocast=work.autocast)
    if metrics:
        metrics |= {"heldout/maximum_length": phase.sampling.maximum_length}
        work.log(state.step, metrics)
    return metrics


def _evaluate_on_blimp(work: Work, module: Pretraining, state: State) -> dict[str, float]:
    """Evaluate on BLiMP; log, report and return {metric: accuracy}. Empty if evaluation.blimp is not set."""
    if work.blimp is None:
        return {}
    start = time.perf_counter()
    accuracies = accuracies_on_pairs(work, module)
    work.log(state.step, accuracies)
    text = blimp_text(accuracies, work.blimp.unigram_accuracy)
    work.say(f"minimal pairs after step {state.step:,}: {text}, in {duration(time.perf_counter() - start)}")
    return accuracies


def accuracies_on_pairs(work: Work, module: Pretraining) -> dict[str, float]:
    """Return {metric: accuracy} on the work's minimal pairs, which must be there; every rank must call it."""
    assert work.blimp is not None
    return evaluate_pairs(
        module,
        work.blimp,
        work.vocabulary,
        rank=work.rank,
        world=work.world,
        device=work.device,
        autocast=work.autocast,
        again=work.config.placement.precision != "float8",  # float8 layers cannot compute in float32
    )
