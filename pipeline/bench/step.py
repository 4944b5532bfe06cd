"""Compare the speed of our training step and of transformers' training step, with the same batches and dropout.

The bench needs only torch, NumPy and pyarrow. The comparison also needs transformers.
DeBERTa is measured with masked tokens and the plain head, because transformers has neither its enhanced mask decoder
nor its head for replaced tokens.

    python jobs/bench.py step base large --no-attention-dropout
    python jobs/bench.py step mini --family electra
    python jobs/bench.py step mini --family longformer --length 4096 --rows 2
"""

import argparse
import copy
import gc
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from torch import nn

from pipeline.batch import AnyBatch
from pipeline.bench.cases import BATCHES, MASKED_SHARE, SIZES, Case, Lengths, case_of, counted, rows_of
from pipeline.bench.peer import masked_only_loss, padded, peer_model, peer_optimizer, peer_step, shipped_loss
from pipeline.bench.turns import median_seconds
from pipeline.config.checks import require
from pipeline.config.jobs import require_recordable
from pipeline.config.model import FamilyName
from pipeline.config.placement import Placement
from pipeline.config.training import AdamW
from pipeline.errors import ConfigError, as_called
from pipeline.model.encoder import encoders_in
from pipeline.model.float8 import refuse_float8, to_float8
from pipeline.model.flops import peak_flops, utilisation
from pipeline.objectives.table import Pretraining, flops_per_token
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.train.compiling import compile_layers
from pipeline.train.graphs import Capacity, SlotGraphs
from pipeline.train.step import StepContext, train_step

AIMS = {"tiny": 4.0, "mini": 2.5, "small": 2.0, "base": 1.3}
"""Size -> ratio to aim for: seconds of unmodified transformers divided by ours (BERT, full length, two CPU cores)."""
AIM = 1.3
"""Ratio to aim for, as in AIMS, for the size mini of each family except BERT."""
FLOORS = {
    "tiny full": 3.5,
    "tiny ragged": 3.7,
    "mini full": 2.2,
    "mini ragged": 2.3,
    "small full": 1.6,
    "small ragged": 1.8,
    "base full": 1.1,
    "base ragged": 1.2,
}
"""Name of a ratio -> value below which the bench fails: 80% of the ratio measured on two CPU cores. The ratio "tiny
full" varied from 4.0 to 4.9 between runs; its floor is about 80% of the middle of this range.
"""

LONG, LONG_AIM = 4_096, 1.5
"""Length of long rows, and the ratio to aim for at this length, for the size mini of the families of long texts."""
LONG_FAMILIES = ("longformer", "bigbird", "modernbert")
FLOAT32_PEERS = ("deberta", "bigbird")
"""Families that transformers 5.23 cannot train under autocast: it fills scores with float32's lowest number, or
scatters numbers of another format.
"""

GRAPH_MODES = ("graphs", "layers-graphs", "compiled-graphs")
MODES = ("eager", "graphs", "layers", "layers-graphs", "compiled", "compiled-graphs")
"""Ways to take our step. GRAPH_MODES are CUDA graphs of eager and of compiled code; "layers": each layer is compiled,
as with several workers.
"""
PEER_MODES = ("eager", "compiled")
StepFunctions = dict[tuple[str, str], Callable[[int], None]]
"""(column of the table, mode) -> function that gets a step number and performs that training step; with articles, a
step on each of the case's batches, whose sizes differ much.
"""


def our_step(
    objective: nn.Module,
    module: Pretraining,
    optimizer: torch.optim.Optimizer,
    autocast: torch.autocast,
    graphs: SlotGraphs | None,
    batch: AnyBatch,
) -> None:
    """Take one step as the training loop does. `objective` is `module`, compiled or not."""
    device = next(module.parameters()).device
    compute = StepContext(device=device, autocast=autocast, seed=0, graphs=graphs)
    train_step(
        objective,
        optimizer,
        [(0, batch)],
        divisors(module.counts(batch), module.weights),
        compute,
        step=0,
        rate=AdamW().learning_rate,
        clip_norm=AdamW().clip_norm,
    )


def our_steps(
    case: Case,
    autocast: torch.autocast,
    device: torch.device,
    modes: Sequence[str],
    *,
    float8: bool = False,
    narrow_residual: bool = False,
) -> StepFunctions:
    """Return our step in each mode, of MODES; all modes train the same weights.

    `narrow_residual`: the sums between layers are in bfloat16.
    """
    module = case.module.to(device)
    for encoder in encoders_in(module):
        encoder.narrow_residual = narrow_residual
        if float8:
            to_float8(encoder.layers)
    optimizer = build_optimizer(AdamW(), module)
    capacity = Capacity(rows=case.rows, row_length=case.length, masked_share=MASKED_SHARE)
    functions: StepFunctions = {}
    for mode in modes:
        objective = _objective(module, mode)
        graphs = SlotGraphs(objective, autocast, device, capacity, single=True) if mode in GRAPH_MODES else None
        step = partial(our_step, objective, module, optimizer, autocast, graphs)
        functions["ours", mode] = _steps(case, step, case.batches)
    return functions


def _objective(module: Pretraining, mode: str) -> nn.Module:
    """Return the module with its forward in a mode, of MODES; the parameters are the module's."""
    if mode not in ("eager", "graphs"):
        import torch._dynamo.config  # takes seconds

        torch._dynamo.config.specialize_float = True  # ty: ignore[invalid-assignment] - as in train/compiling.py
    if mode.startswith("compiled"):
        return torch.compile(module, dynamic=True)
    if mode.startswith("layers"):
        module = copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
        compile_layers(module)
    return module


def _their_step_functions(
    case: Case, autocast: torch.autocast, device: torch.device, modes: Sequence[str]
) -> StepFunctions:
    """Return two training steps of transformers in each mode: unmodified, and with vocabulary logits only at masked
    positions.

    All steps train the same weights. The result is empty if transformers is not installed.
    """
    if not _has_peer():
        return {}
    ours = case.module
    model = peer_model(ours, case.vocabulary_size).to(device)
    optimizer = peer_optimizer(model)
    inputs = [padded(batch, case.model) for batch in case.batches]
    functions: StepFunctions = {}
    for column, loss in (("as shipped", shipped_loss), ("masked only", masked_only_loss)):
        for mode in [mode for mode in modes if mode in PEER_MODES]:
            # All full batches have the same shape, and code compiled for one shape is the fastest.
            chosen = torch.compile(loss, dynamic=case.lengths != "full") if mode == "compiled" else loss
            functions[column, mode] = _steps(case, partial(peer_step, chosen, model, optimizer, autocast), inputs)
    return functions


def _has_peer() -> bool:
    """Return whether transformers is installed."""
    return importlib.util.find_spec("transformers") is not None


def _steps(case: Case, step: Callable[[Any], None], inputs: Sequence[Any]) -> Callable[[int], None]:
    """Return a function of the step number that takes a step on one input, or on all inputs if they are articles."""

    def take(number: int) -> None:
        for each in inputs if case.lengths == "articles" else [inputs[number % len(inputs)]]:
            step(each)

    return take


def measure(
    case: Case,
    autocast: torch.autocast,
    device: torch.device,
    modes: Sequence[str],
    repetitions: int,
    *,
    float8: bool = False,
) -> dict[tuple[str, str], float]:
    """Return (column, mode) -> median seconds per step.

    Each repetition takes one step of every column and mode, so that noise of the machine affects all equally.
    """
    functions = our_steps(case, autocast, device, modes, float8=float8)
    functions |= _their_step_functions(case, autocast, device, modes)
    return median_seconds(functions, device, repetitions)


def best(seconds: dict[tuple[str, str], float], column: str) -> tuple[float, str] | None:
    """Return (seconds, mode) of the column's fastest mode; None if the column was not measured."""
    timings = [(value, mode) for (name, mode), value in seconds.items() if name == column]
    return min(timings) if timings else None


def line(case: Case, seconds: dict[tuple[str, str], float], device: torch.device, precision: str) -> str:
    """Return a line of the table: tokens per second of each column in its fastest mode, and the ratios.

    If the peak FLOPs of the device are known, the line ends with the model FLOPs utilisation of our step.
    """
    batches = case.batches
    tokens = float(np.mean([batch.tokens for batch in batches])) * (BATCHES if case.lengths == "articles" else 1)
    fastest = {column: best(seconds, column) for column in ("ours", "as shipped", "masked only")}
    cells = [f"{case.name:<18}{case.rows:>5}"]
    cells += [f"{tokens / value[0]:>12,.0f} {value[1]:<9}" if value else f"{'-':>22}" for value in fastest.values()]
    cells += [
        f"{value[0] / fastest['ours'][0]:>12.2f}" if value and fastest["ours"] else f"{'-':>12}"
        for name, value in fastest.items()
        if name != "ours"
    ]
    peak = peak_flops(torch.cuda.get_device_name(device), precision) if device.type == "cuda" else None
    if peak and fastest["ours"]:
        flops = float(
            np.mean(
                [
                    flops_per_token(case.preset.objective, case.model, case.vocabulary_size, counted(batch))
                    for batch in batches
                ]
            )
        )
        cells.append(f"{utilisation(flops, tokens / fastest['ours'][0], peak):>8.1%}")
    return "".join(cells)


def _require_recordable(cases: Sequence[Case], placement: Placement) -> None:
    """Raise ConfigError if there is no GPU, or if CUDA graphs cannot train the cases' models."""
    require(torch.cuda.is_available(), "modes with graphs need a GPU, and this process sees none")
    for case in cases:
        require_recordable(replace(case.preset, placement=placement))


def run(
    sizes: Sequence[str],
    *,
    length: int,
    lengths: Sequence[Lengths],
    rows: int | None,
    repetitions: int,
    attention_dropout: bool,
    precision: str,
    modes: Sequence[str],
    family: FamilyName = "bert",
) -> int:
    """Measure each size, print a table and the ratios; return 1 if a ratio is below its floor, else 0.

    `lengths`: kinds of lengths, measured one after the other. `rows`: rows per batch (None: by size and device).
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision != "float32")
    dropped = case_of(sizes[0], family, length).model
    print(
        f"{family}, {device_name(device)}, {precision}, dropout {dropped.hidden_dropout:g}, "
        f"attention dropout {dropped.attention_dropout if attention_dropout else 0:g}, torch {torch.__version__}; "
        "tokens/s without padding"
    )
    print(
        f"{'':<18}{'rows':>5}{'ours':>12}{'':<10}{'as shipped':>12}{'':<10}"
        f"{'masked only':>12}{'':<10}{'/ shipped':>12}{'/ masked':>12}"
    )
    ratios = {}
    for size in sizes:
        for kind in lengths:
            batch_rows = rows or rows_of(case_of(size, family, length), device)
            case = Case(
                size=size,
                rows=batch_rows,
                length=length,
                lengths=kind,
                attention_dropout=attention_dropout,
                family=family,
            )
            seconds = measure(case, autocast, device, modes, repetitions, float8=precision == "float8")
            print(line(case, seconds, device, precision), flush=True)
            ours, theirs = best(seconds, "ours"), best(seconds, "as shipped")
            if ours and theirs:
                ratios[case.ratio] = theirs[0] / ours[0]
            torch.compiler.reset()
            gc.collect()
    return verdict(ratios, device)


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"


def verdict(ratios: dict[str, float], device: torch.device) -> int:
    """Print the ratios with their aims; return 1 if one is below its floor, else 0. GPUs have no aims or floors."""
    if not ratios:
        print(f"no ratio: transformers is not installed, or none of its modes ({', '.join(PEER_MODES)}) is measured")
        return 0
    aims = {f"{family} mini full": AIM for family in get_args(FamilyName)}
    aims |= {f"{size} full": aim for size, aim in AIMS.items()}
    aims |= {f"{family} mini {kind} {LONG}": LONG_AIM for family in LONG_FAMILIES for kind in ("full", "articles")}
    if device.type != "cpu":
        aims = {}
    print(
        "speed of ours / speed of transformers as shipped: "
        + "; ".join(
            f"{name} {value:.2f}" + (f" (aim {aims[name]:g})" if name in aims else "") for name, value in ratios.items()
        )
    )
    low = [name for name, value in ratios.items() if device.type == "cpu" and not value >= FLOORS.get(name, 0)]
    for name in low:
        print(f"below its floor: {name}: {ratios[name]:.2f}, floor {FLOORS[name]:g}")
    return 1 if low else 0


def at_least_one(word: str) -> int:
    """Parse an integer of at least 1. Raises ArgumentTypeError, whose message argparse prints, for other words."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least 1")
    return int(word)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=as_called("python jobs/bench.py step"),
        description=as_called(str(__doc__)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "sizes",
        nargs="*",
        help=f"any of {', '.join(SIZES)}; default: {', '.join(AIMS)} on a CPU, base and large on a GPU. If the family "
        "has no preset of a size, its base preset is measured in BERT's shape of this size",
    )
    parser.add_argument("--family", choices=get_args(FamilyName), default="bert", help="default: bert")
    parser.add_argument("--length", type=at_least_one, default=128, help="maximum tokens of a row; default: 128")
    parser.add_argument(
        "--lengths",
        nargs="+",
        choices=get_args(Lengths),
        help="rows of the maximum length, of the lengths of next-sentence examples, or of the lengths of articles of "
        f"Wikipedia, sorted into batches; default: full and ragged; from {LONG} tokens on full and articles",
    )
    parser.add_argument("--rows", type=at_least_one, help="rows per batch; default: by size and device")
    parser.add_argument("--repetitions", type=at_least_one, default=7, help="timed steps; default: 7")
    parser.add_argument("--no-attention-dropout", action="store_true", help="set attention dropout to 0")
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16", "float8"),
        default="bfloat16",
        help="float8 applies to our layers only; transformers' layers stay in bfloat16",
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["eager", "compiled"])
    options = parser.parse_args(arguments)
    if unknown := [size for size in options.sizes if size not in SIZES]:
        parser.error(f"sizes ({unknown[0]}) must be of {', '.join(SIZES)}")
    sizes = options.sizes or (["base", "large"] if torch.cuda.is_available() else list(AIMS))
    for size in sizes:
        if options.length > (most := case_of(size, options.family, options.length).model.maximum_positions):
            parser.error(
                f"--length ({options.length}) must be at most {most}, the positions of {options.family} {size}"
            )
    if options.family in FLOAT32_PEERS and options.precision != "float32" and _has_peer():
        parser.error(f"transformers' {options.family} does not train under autocast: add --precision float32")
    try:
        if options.precision == "float8":
            refuse_float8(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        if not set(options.modes).isdisjoint(GRAPH_MODES):
            cases = [case_of(size, options.family, options.length) for size in sizes]
            _require_recordable(cases, Placement(graphs="on", precision=options.precision))
    except ConfigError as error:
        parser.error(str(error))
    return run(
        sizes,
        length=options.length,
        lengths=options.lengths or ["full", "articles" if options.length >= LONG else "ragged"],
        rows=options.rows,
        repetitions=options.repetitions,
        attention_dropout=not options.no_attention_dropout,
        precision=options.precision,
        modes=options.modes,
        family=options.family,
    )
