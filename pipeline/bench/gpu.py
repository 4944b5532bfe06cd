"""Measure a GPU: slots by size, training steps and their longest kernels, then a real training.

The bench needs torch, NumPy, pyarrow, safetensors, tokenizers and requests, and no Ray. The training is of bert-small
on a file of tokens (`python jobs/bench.py tokens`), for the time that is left, with its held-out loss and, with
--blimp, its accuracy on minimal pairs.

    python jobs/bench.py gpu --token-file tokens.arrow --blimp BLIMP
"""

import argparse
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch.profiler import ProfilerActivity, profile

from pipeline.bench.cases import SIZES, Case, automatic_rows, counted, in_slots, make_batch
from pipeline.bench.step import (
    GRAPH_MODES,
    MODES,
    StepFunctions,
    at_least_one,
    device_name,
    our_steps,
)
from pipeline.bench.train import table_of, train_on_tokens
from pipeline.bench.turns import median_seconds, synchronise
from pipeline.command_line.columns import aligned
from pipeline.command_line.stopping import interrupt_on_sigterm
from pipeline.config.jobs import Pretrain
from pipeline.config.phases import OnePhase
from pipeline.config.training import Batch, Checkpoints
from pipeline.corpus import token_file
from pipeline.errors import as_called
from pipeline.evaluation.blimp import read_pairs
from pipeline.files import storage
from pipeline.files.locations import absolute
from pipeline.model.flops import utilisation
from pipeline.objectives.table import flops_per_token
from pipeline.objectives.utilisation import device_peak
from pipeline.presets.table import PRESETS
from pipeline.reporting import Report, print_line
from pipeline.saved.naming import with_name
from pipeline.train.automatic import free_memory

PRECISION = "bfloat16"
SIZES_OF_GPUS = ["base", "large"]
SLOTS = (4_096, 8_192, 16_384, 32_768, 65_536, 131_072)
"""Tokens of a slot, for the table of slots."""
NOT_COMPILED = ("eager", "graphs")
"""Modes for which slots are measured; compiling a step for each size of slots would take minutes."""
LONGEST = 10
"""Kernels that are listed."""
REPETITIONS = 10
LENGTH = 128
"""Maximum tokens of a row in the training."""
SHARE_MEASURED = 0.5
"""Share of the time after which no further step is measured, so that the training has time."""
SHARE_TRAINED = 0.8
"""Share of the time left that the steps of the training take; the rest is for evaluations and the checkpoint."""
LEAST_SECONDS = 30.0
"""Seconds of the training's steps, at least."""
EVALUATIONS = 3
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")
"""Calls of CUDA, by the names that the profiler gives them, that launch a kernel or a graph of kernels."""
HEADS = ["milliseconds per step", "tokens/s", "share of the peak", "GB"]
OUT_OF_MEMORY = ["out of memory", "", "", ""]


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """Measurements of one training step."""

    seconds: float
    tokens: int
    memory: float
    """Peak memory in GB."""
    utilisation: float | None
    """Model FLOPs utilisation, from 0 to 1; None if the device's peak is unknown."""

    @property
    def cells(self) -> list[str]:
        share = "-" if self.utilisation is None else f"{self.utilisation:.1%}"
        return [f"{1000 * self.seconds:,.1f}", f"{self.tokens / self.seconds:,.0f}", share, f"{self.memory:.1f}"]


@dataclass(frozen=True, kw_only=True)
class StepChoices:
    """Choices that all measured steps have in common."""

    device: torch.device
    attention_dropout: bool = False
    narrow_residual: bool = False
    """Whether the sums between layers are in bfloat16."""

    def case(self, size: str, length: int, tokens: int) -> Case:
        """Return a case of full rows with `tokens` tokens (about) in its slot."""
        rows = max(1, tokens // length)
        return Case(size=size, rows=rows, length=length, lengths="full", attention_dropout=self.attention_dropout)

    def steps(self, case: Case, mode: str) -> StepFunctions:
        """Return the function that takes a step."""
        autocast = torch.autocast(self.device.type, dtype=torch.bfloat16)
        return our_steps(case, autocast, self.device, [mode], narrow_residual=self.narrow_residual)


def _measure(case: Case, mode: str, choices: StepChoices) -> tuple[MeasuredStep, StepFunctions]:
    """Return the measurements of a step, and the function that takes it."""
    device = choices.device
    _free(device)
    functions = choices.steps(case, mode)
    ((_, seconds),) = median_seconds(functions, device, REPETITIONS).items()
    batch, peak = make_batch(case, 0), device_peak(device, PRECISION)
    flops = flops_per_token(case.preset.objective, case.model, case.vocabulary_size, counted(batch))
    return MeasuredStep(
        seconds=seconds,
        tokens=batch.tokens,
        memory=torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else 0.0,
        utilisation=utilisation(flops, batch.tokens / seconds, peak) if peak else None,
    ), functions


def _free(device: torch.device) -> None:
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _longest_kernels(functions: StepFunctions, device: torch.device) -> list[list[str]]:
    """Profile one step; return rows of (name, calls, milliseconds, share) of the longest kernels, and of all.

    The first row has the number of launches, which is lower than the number of kernels with CUDA graphs. On a CPU, rows
    are operators instead, and nothing is launched.
    """
    (step,) = functions.values()
    gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * gpu]) as profiler:
        step(0)
        synchronise(device)
    averages = profiler.key_averages()
    launches = sum(event.count for event in averages if event.key in LAUNCHES)
    events = [
        (event.key, event.count, event.self_device_time_total if gpu else event.self_cpu_time_total)
        for event in averages
        if not gpu or event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation
    ]
    total = sum(time for *_, time in events) or 1.0  # 0 where the profiler may not see the device
    events.sort(key=lambda event: -event[2])
    rows = [("all", sum(count for _, count, _ in events), total), *events[:LONGEST]]
    texts = [[key[:90], f"{count:,}", f"{time / 1000:.2f}", f"{time / total:.1%}"] for key, count, time in rows]
    return [*[["launches", f"{launches:,}", "", ""]] * gpu, *texts]


def _report_steps(options: argparse.Namespace, ends: float, choices: StepChoices, report: Report) -> None:
    """Report steps as they are measured, and the longest kernels of each size at the first length."""
    for mode, size, length in product(options.modes, options.sizes, options.lengths):
        if time.monotonic() > ends:
            report("no time left: the other steps are not measured")
            return
        case = choices.case(size, length, options.slots[-1] // 4)
        title = f"\nbert-{size}, {length} tokens, {case.rows} rows, {mode}"
        try:
            measured, functions = _measure(case, mode, choices)
        except torch.OutOfMemoryError:
            report(f"{title}: out of memory")
            continue
        report("\n".join([title, *aligned(HEADS, [measured.cells])]))
        if length == options.lengths[0]:
            heads = ["kernel", "calls", "milliseconds", "share"]
            report("\n".join(aligned(heads, _longest_kernels(functions, choices.device))))
        del functions  # the model and its optimiser, which the next measurement would count


def _report_slots(options: argparse.Namespace, ends: float, choices: StepChoices, report: Report) -> None:
    """Report a table of steps with slots of different sizes for each mode that compiles nothing.

    On a GPU, the slot that batch.rows_per_slot auto means is measured too, and compared with the best.
    """
    size, length = options.sizes[0], options.lengths[0]
    chosen: list[int] = []
    if choices.device.type == "cuda":
        chosen = [length * automatic_rows(choices.case(size, length, length), free_memory(choices.device))]
    for mode in [mode for mode in options.modes if mode in NOT_COMPILED]:
        rows, speeds = [], dict[int, float]()
        for slot in sorted({*options.slots, *chosen}):
            if time.monotonic() > ends:
                break
            try:
                measured = _measure(choices.case(size, length, slot), mode, choices)[0]
                speeds[slot], cells = measured.tokens / measured.seconds, measured.cells
            except torch.OutOfMemoryError:
                cells = OUT_OF_MEMORY
            rows.append([f"{slot:,}", *cells])
        report("\n".join([f"\nslots of bert-{size}, {length} tokens, {mode}", *aligned(["tokens", *HEADS], rows)]))
        for tokens in chosen:
            report(choice_beside_best(tokens, length, speeds))


def choice_beside_best(chosen: int, length: int, speeds: dict[int, float]) -> str:
    """Return the slot that `auto` means, in tokens, beside the fastest of those measured, {tokens: tokens/s}."""
    name = f"batch.rows_per_slot auto: {chosen // length} rows, {chosen:,} tokens"
    if chosen not in speeds:
        return f"{name}, which was not measured"
    best = max(speeds, key=lambda tokens: speeds[tokens])
    return (
        f"{name}: {speeds[chosen]:,.0f} tokens/s, {speeds[chosen] / speeds[best]:.1%} of the best "
        f"({best:,} tokens: {speeds[best]:,.0f} tokens/s)"
    )


def _config_of_training(config: Pretrain, rows: int, seconds: float, per_step: float) -> Pretrain:
    """Return the settings of a training with steps of `rows` rows (about), in one slot where memory allows.

    Its steps take about SHARE_TRAINED of `seconds`, if each takes `per_step` seconds.
    """
    steps = max(EVALUATIONS, int(SHARE_TRAINED * seconds / per_step))
    return replace(
        config,
        steps=steps,
        phases=OnePhase(),
        batch=Batch(rows_per_step=in_slots(rows)),
        evaluation=replace(config.evaluation, every=steps // EVALUATIONS),
        checkpoint=Checkpoints(every=steps),
    )


def _report_training(options: argparse.Namespace, ends: float, choices: StepChoices, report: Report) -> None:
    """Train until about `ends` (of time.monotonic) and report what was measured."""
    case, preset = choices.case(options.train, LENGTH, options.slots[-1] // 4), PRESETS[f"bert-{options.train}"]
    mode = "graphs" if "graphs" in options.modes else "eager"  # graphs leave the host time to make batches
    per_step = _measure(case, mode, choices)[0].seconds
    _free(choices.device)
    preset = replace(
        preset,
        output=options.output,
        model=replace(preset.model, attention_dropout=case.model.attention_dropout),
        evaluation=replace(preset.evaluation, blimp=options.blimp),
        placement=replace(preset.placement, graphs="on" if mode == "graphs" else "off", residual=options.residual),
    )
    left = max(LEAST_SECONDS, ends - time.monotonic())
    config = with_name(_config_of_training(preset, case.rows, left, per_step), f"bert-{options.train}")
    report(f"\ntraining bert-{options.train}: {config.steps:,} steps of {config.batch.rows_per_step} rows, {mode}")
    report(table_of(train_on_tokens(config, options.token_file, report)))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=as_called("python jobs/bench.py gpu"),
        description=as_called(str(__doc__)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--token-file", help="file of tokens for the training; default: no training")
    parser.add_argument("--blimp", help="folder of BLiMP, for minimal pairs during the training; default: none")
    parser.add_argument("--minutes", type=float, default=10.0, help="time for everything; default: 10")
    parser.add_argument("--output", default="output", help="folder of the training's run; default: output")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES_OF_GPUS, help="default: base large")
    parser.add_argument("--lengths", nargs="+", type=at_least_one, default=[128, 512], help="default: 128 512")
    parser.add_argument("--modes", nargs="+", choices=MODES, help="default: all on a GPU, else eager")
    parser.add_argument("--train", choices=SIZES, default="small", help="size that is trained; default: small")
    parser.add_argument(
        "--slots",
        nargs="+",
        type=at_least_one,
        default=list(SLOTS),
        help="tokens of a slot, for the table of slots; other steps have a quarter of the last; default: "
        + " ".join(map(str, SLOTS)),
    )
    parser.add_argument(
        "--residual",
        choices=("float32", PRECISION),
        default="float32",
        help="number format of the sums between layers; default: float32",
    )
    parser.add_argument("--attention-dropout", action="store_true", help="train with attention dropout of 0.1")
    options = parser.parse_args(arguments)
    interrupt_on_sigterm()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    options.modes = options.modes or (MODES if device.type == "cuda" else ["eager"])
    if device.type == "cpu" and not set(options.modes).isdisjoint(GRAPH_MODES):
        parser.error("this process sees no GPU, which CUDA graphs need: leave the modes with graphs out")
    if device.type == "cpu" and options.sizes == SIZES_OF_GPUS:
        parser.error("this process sees no GPU; to try the bench on a CPU, give --sizes tiny and small --slots")
    if options.token_file:  # errors in these come before the measurements
        options.token_file = absolute(options.token_file)
        token_file.read(options.token_file)
        read_pairs(options.blimp, print_line)
        storage.require_writable("--output", absolute(options.output))
    started = time.monotonic()
    measured = SHARE_MEASURED if options.token_file else 1
    middle, ends = (started + share * 60 * options.minutes for share in (measured, 1))
    choices = StepChoices(
        device=device, attention_dropout=options.attention_dropout, narrow_residual=options.residual == PRECISION
    )
    print_line(
        f"{device_name(device)}, {PRECISION}, sums between layers in {options.residual}, hidden dropout 0.1, attention "
        f"dropout {0.1 * options.attention_dropout:g}, torch {torch.__version__}"
    )
    _report_slots(options, middle, choices, print_line)
    _report_steps(options, middle, choices, print_line)
    if options.token_file:
        _report_training(options, ends, choices, print_line)
    else:
        print_line("no training: --token-file is not given")
    return 0
