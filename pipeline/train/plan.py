"""Estimate a pretraining run without running it: size, tokens, operations, storage, slots, time and cost on GPUs."""

import math
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from pipeline.command_line.columns import aligned
from pipeline.config.data import AdjacentParagraphs, GivenPairs, Sampling, Sentences, TitleParagraph, TwoCrops
from pipeline.config.jobs import Pretrain, eager_reason
from pipeline.config.phases import Phase, share_of_masks
from pipeline.config.workers import WorkerRange
from pipeline.corpus.order import offset, slots_at, slots_of_block
from pipeline.errors import ConfigError, listed
from pipeline.model.flops import BACKWARD, PEAKS, TokenCounts
from pipeline.objectives.table import OBJECTIVES, build_objective, flops_per_token
from pipeline.optim.schedule import decay_start
from pipeline.reporting import estimate
from pipeline.train.slot_size import LAUNCH_SECONDS, slot_advice, slot_operators

PRICES = Path(__file__).parents[1] / "prices.toml"
FILL = 0.92
"""Tokens per row as a share of maximum_length. Measured: 118.4 of 128, mean of 109,000 rows of books and Wikipedia."""
TEXT_FILL: dict[type, float] = {
    TwoCrops: 0.59,
    AdjacentParagraphs: 0.66,
    TitleParagraph: 0.36,
    GivenPairs: 1.0,
}
"""Tokens per text as a share of maximum_length, for rows of two texts.

Measured with maximum_length 128 in one window of books and Wikipedia. Given pairs may have any length, so their texts
count as full.
"""
SENTENCE_TOKENS = 29.4
"""Tokens per sentence. Measured in one window of Wikipedia, with maximum_length 128."""
STREAM_TOKENS = 1.6e6
"""Tokens per second and core through Ray Data. Measured: 3.2e6 on two cores (`jobs/bench.py stream`, English books)."""
STREAM_BLOCKS = 27
"""Blocks per second that one stream on two cores delivers to 64 ranks.

Measured with rows that were made in advance (`jobs/bench.py scale`, English books).
"""
CHECKPOINT_BYTES = 12
"""Bytes per parameter in a checkpoint: the parameter and both moments of Adam, in float32."""
EXPORT_BYTES = 4
"""Bytes per parameter in an exported model, which is in float32."""
GRADIENT_BYTES = {"float32": 4, "bfloat16": 2}
"""Number format in which gradients are sent -> bytes of a number."""
MINUTE = 60
MOST_WORLDS = 12
"""Highest number of slots per step for which the plan shows every world size."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Machine for rent: a row of the price table."""

    name: str
    chip: str
    """GPU model, a key of PEAKS."""
    gpus: int
    cpus: int
    on_demand: float
    """USD per hour."""
    spot: float
    """USD per hour."""
    utilisation: float
    """Model FLOPs utilisation that a step reaches, as a share of the chip's dense peak."""
    network_gigabits: float
    """Network bandwidth between machines, gigabits per second."""
    link_gigabytes: float | None = None
    """All-reduce bandwidth of each GPU inside the machine, gigabytes per second; None for machines with one GPU."""

    @property
    def flops(self) -> float:
        """Return the expected floating-point operations per second of one GPU."""
        peaks = PEAKS[self.chip]
        return self.utilisation * peaks.get("bfloat16", peaks["float32"])


@dataclass(frozen=True, kw_only=True)
class PhaseLoad:
    """Work of one phase."""

    phase: Phase
    rows: int
    tokens: float
    flops: float
    """Floating-point operations of all passes, matrix products only."""
    slot_seconds: float = 0.0
    """Seconds that a GPU needs at least for a slot, because its host launches the kernels one by one."""


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Gradient traffic: one all-reduce per step, after the last slot."""

    count: int
    """Number of parameters."""
    last: int
    """Number of parameters in the embeddings, whose gradients are complete only when the backward pass ends."""
    overlapped: bool
    """Whether the gradients of all other parameters are sent during the backward pass."""
    bytes_each: int = GRADIENT_BYTES["float32"]
    """Bytes of a gradient when it is sent."""
    backward: float = 1 - 1 / BACKWARD
    """Operations of the backward pass as a share of a slot's operations."""

    def bytes_sent(self, world: int) -> float:
        """Return the bytes that a worker sends per step in a ring all-reduce (Patarasuk and Yuan 2009)."""
        return 2 * (world - 1) / world * self.bytes_each * self.count

    def seconds(self, world: int, machine: Machine) -> float:
        """Return the seconds of one all-reduce: the time on the GPU links or on the network, whichever is longer."""
        sent = self.bytes_sent(world)
        between = 8 * sent / (machine.network_gigabits * 1e9) if world > machine.gpus else 0.0
        within = sent / (machine.link_gigabytes * 1e9) if world > 1 and machine.link_gigabytes else 0.0
        return max(between, within)

    def wait(self, world: int, machine: Machine, slot_flops: float) -> float:
        """Return the seconds per step that GPUs wait for gradients.

        DistributedDataParallel sends most gradients during the backward pass of the last slot. It sends the gradients
        of the embeddings after this pass. `slot_flops` are the operations of one slot, in all passes.
        """
        whole = self.seconds(world, machine)
        backward = self.backward * slot_flops / machine.flops
        return max(whole - backward, whole * self.last / self.count) if self.overlapped else whole


def gradients_of(config: Pretrain) -> Gradients:
    """Return the gradient traffic of a run.

    Recorded steps send gradients after the last slot. Compiled code that recomputes layers completes all gradients only
    at the end of the backward pass, so it sends no gradients during the pass. Other layers are compiled one by one.
    """
    model, forward_passes = config.model, OBJECTIVES[type(config.objective)].forward_passes
    norm = 1 + model.bias  # rows of the LayerNorm: its weight and its bias
    rows = config.vocabulary.most_entries + model.position_rows + model.segments + norm
    tables = 1 if config.objective.shares_embeddings else 2  # the generator's and the discriminator's
    return Gradients(
        count=parameters(config),
        last=tables * rows * model.embedded_width,
        overlapped=config.placement.graphs != "on" and (_is_eager(config) or not config.placement.recompute),
        bytes_each=GRADIENT_BYTES[config.batch.reduce_precision],
        backward=1 - forward_passes / (BACKWARD - 1 + forward_passes),
    )


def _is_eager(config: Pretrain) -> bool:
    """Return whether the run's code cannot be compiled, or is not to be."""
    return eager_reason(config) is not None or config.placement.compile == "off"


def read_prices(path: Path = PRICES) -> list[Machine]:
    """Return the machines of a price table. For an invalid table, raises ConfigError with the row and the problem."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is missing: restore this file, which holds the prices of machines") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return [_machine_of(path, name, row) for name, row in table.items()]


def _machine_of(path: Path, name: str, row: Any) -> Machine:
    """Return a row of the price table as a machine. Raises ConfigError for an invalid row."""
    wanted = [field.name for field in fields(Machine) if field.name != "name"]
    if isinstance(row, dict) and row.get("gpus") == 1:
        wanted.remove("link_gigabytes")
    if not isinstance(row, dict):
        raise ConfigError(f"{path}: {name} ({row!r}) must be a table with the keys {', '.join(wanted)}")
    if sorted(row) != sorted(wanted):
        raise ConfigError(f"{path}: {name} must have the keys {', '.join(wanted)}, but has {listed(row)}")
    if row["chip"] not in PEAKS:
        raise ConfigError(f"{path}: {name}.chip ({row['chip']}) must be one of {', '.join(PEAKS)}")
    for key in wanted[1:]:
        whole = key in ("gpus", "cpus")
        if isinstance(row[key], bool) or not isinstance(row[key], int if whole else int | float) or not row[key] > 0:
            raise ConfigError(
                f"{path}: {name}.{key} ({row[key]!r}) must be a {'whole ' if whole else ''}number above 0"
            )
    if row["utilisation"] > 1:
        raise ConfigError(
            f"{path}: {name}.utilisation ({row['utilisation']}) must be at most 1: it is a share of the peak"
        )
    return Machine(name=name, **row)


def loads(config: Pretrain) -> Iterator[PhaseLoad]:
    """Yield the work of each phase. Rows are assumed to be as full as those of English text."""
    one_by_one = _is_eager(config) and config.placement.graphs != "on"
    launching = LAUNCH_SECONDS * slot_operators(config) if one_by_one else 0.0
    for phase in config.all_phases:
        rows = offset(phase.end - phase.first, phase.batch)
        sampling = phase.sampling
        length = tokens_per_sequence(sampling)
        tokens = rows * sampling.sequences * length
        masked = round(tokens * sampling.masking.share) if sampling.masks else 0
        counted = TokenCounts(tokens=round(tokens), squares=round(tokens * length), masked=masked)
        yield PhaseLoad(
            phase=phase,
            rows=rows,
            tokens=tokens,
            flops=tokens * flops_per_token(config.objective, config.model, config.vocabulary.most_entries, counted),
            slot_seconds=launching,
        )


def parameters(config: Pretrain) -> int:
    """Return the number of trained parameters, including all heads. Tied parameters count once."""
    with torch.device("meta"):
        module = build_objective(config.objective, config.sampling, config.model, config.vocabulary.most_entries)
        return sum(parameter.numel() for parameter in module.parameters())


def _slots_of_busiest_rank(slots: int, world: int) -> int:
    """Return the slots per step of the rank that has the most slots."""
    return math.ceil(slots / world)


def imbalance(slots: int, world: int) -> float:
    """Return the extra time of a step because slots are not dealt evenly, as a share of the time with even dealing.

    All ranks wait for the rank that has the most slots.
    """
    return _slots_of_busiest_rank(slots, world) * world / slots - 1


def _compute_seconds(load: PhaseLoad, world: int, flops: float) -> float:
    """Return the seconds that `world` GPUs compute for a phase, including the wait for the rank with the most slots.

    `flops` are the operations per second of one GPU. A slot takes at least the time that launching its kernels takes.
    """
    launching = load.rows / load.phase.batch.slot_rows * load.slot_seconds
    return max(load.flops / flops, launching) / world * (1 + imbalance(slots_of(load.phase), world))


def gradient_wait_seconds(load: PhaseLoad, world: int, machine: Machine, gradients: Gradients) -> float:
    """Return the seconds in a phase during which GPUs wait for gradients."""
    phase = load.phase
    slot_flops = load.flops / load.rows * phase.batch.slot_rows
    return (phase.end - phase.first) * gradients.wait(world, machine, slot_flops)


def _training_seconds(load: PhaseLoad, world: int, machine: Machine, gradients: Gradients) -> float:
    """Return the seconds that a phase takes if GPUs never wait for data."""
    return _compute_seconds(load, world, machine.flops) + gradient_wait_seconds(load, world, machine, gradients)


def stream_seconds(load: PhaseLoad, world: int) -> float:
    """Return the seconds that one stream needs to deliver a phase's blocks; the processing of text is not included."""
    return _blocks_of(load, world) / STREAM_BLOCKS


def run_seconds(work: list[PhaseLoad], world: int, machine: Machine, gradients: Gradients) -> float:
    """Return the seconds that a run takes if GPUs never wait for data."""
    return sum(_training_seconds(load, world, machine, gradients) for load in work)


def run_seconds_with_stream(work: list[PhaseLoad], world: int, machine: Machine, gradients: Gradients) -> float:
    """Return the seconds that a run takes with one stream of STREAM_BLOCKS blocks per second.

    A phase takes the time of training or of streaming, whichever is longer.
    """
    return sum(max(_training_seconds(load, world, machine, gradients), stream_seconds(load, world)) for load in work)


def _blocks_of(load: PhaseLoad, world: int) -> float:
    """Return the number of blocks of a phase that are dealt to `world` workers."""
    phase = load.phase
    return (phase.end - phase.first) * slots_of(phase) / slots_of_block(phase.batch, phase.sampling.row_length, world)


def slots_of(phase: Phase) -> int:
    """Return the number of slots per step at the end of a phase, after any warm-up of the batch."""
    return slots_at(phase.end - phase.first - 1, phase.batch)


def worlds_to_show(slots: int, asked: WorkerRange) -> list[int]:
    """Return the world sizes to show.

    Up to MOST_WORLDS slots, these are all sizes from 1 to `slots`. With more slots, they are the sizes that divide the
    slots evenly, and the sizes in the range `asked`.
    """
    every = range(1, slots + 1)
    even = [world for world in every if slots % world == 0]
    return list(every) if slots <= MOST_WORLDS else sorted({*even, *range(asked.least, asked.most + 1)})


def tokens_per_sequence(sampling: Sampling) -> float:
    """Return the assumed tokens per sequence.

    A row of sentences has the mean number of sentences, (1 + most) / 2, but no more tokens than other rows.
    """
    if isinstance(sampling.pairs, Sentences):
        return min(FILL * sampling.maximum_length, SENTENCE_TOKENS * (1 + sampling.pairs.most) / 2)
    return _fill(sampling) * sampling.maximum_length


def _fill(sampling: Sampling) -> float:
    """Return the assumed length of sequences as a share of maximum_length, for rows of other texts than sentences."""
    return TEXT_FILL.get(type(sampling.pairs), FILL)


def _fill_text(sampling: Sampling) -> str:
    """Return the assumed length of sequences as text."""
    if isinstance(sampling.pairs, GivenPairs):
        negatives = f" and {sampling.negatives} hard negatives" * (sampling.negatives > 0)
        return f"at most: rows are counted with two full texts{negatives}"
    if isinstance(sampling.pairs, Sentences):
        return f"rows of English Wikipedia's sentences have about {tokens_per_sequence(sampling):.0f} tokens"
    return f"English books and Wikipedia fill {_fill(sampling):.0%} of a sequence's length"


def plan_text(
    config: Pretrain, machines: list[Machine], here: Sequence[tuple[str, str]] = (), *, gpus_here: bool = False
) -> str:
    """Return the plan as text for a terminal.

    `here` are facts (name, text) about this machine and the text, and `gpus_here` tells whether this machine has GPUs.
    Machines for rent on which the run takes less than a minute are not listed: their times and costs would be zeros.
    """
    work, gradients, world = list(loads(config)), gradients_of(config), config.worker_range.most
    count = gradients.count
    rows, tokens, flops = (sum(getattr(load, name) for load in work) for name in ("rows", "tokens", "flops"))
    checkpoints = config.checkpoint.keep + config.checkpoint.keep_best + (decay_start(config) is not None)
    handlers, sampling = OBJECTIVES[type(config.objective)], config.sampling
    most_rows = max(load.phase.batch.rows_per_step for load in work)
    gigabytes = (checkpoints + 1) * count * CHECKPOINT_BYTES / 1e9
    advice = slot_advice(config)
    slow = [box for box in machines if run_seconds_with_stream(work, world, box, gradients) >= MINUTE]
    on_gpus = gpus_here or bool(slow)
    facts = [
        ("parameters", f"{count / 1e6:,.1f} M (vocabulary of {config.vocabulary.most_entries:,})"),
        ("steps", "; ".join(_phase_text(load.phase, config) for load in work)),
        (
            "tokens",
            f"about {_count_text(tokens)} in {rows:,} rows{' of two texts' * sampling.two_texts}; "
            f"{_fill_text(sampling)}",
        ),
        ("operations", f"{flops:.2e} floating-point operations in matrix products, {handlers.passes}"),
        *[
            ("vectors", memory(most_rows, config.model.width, sampling.negatives))
            for memory in (handlers.step_memory,)
            if memory is not None
        ],
        *[("teacher", "its operations and its memory are not counted")] * bool(config.objective.teacher_gives),
        *here,
        *[("launches", _launches_text(config))] * on_gpus,
        *[("gradients", _gradients_text(gradients, world, config.placement.graphs))] * (world > 1),
        (
            "storage",
            f"{gigabytes:,.1f} GB of checkpoints ({checkpoints} kept, one being written), "
            f"{count * EXPORT_BYTES / 1e9:,.2f} GB for the exported model",
        ),
    ]
    width = max(len(name) for name, _ in facts) + 2
    return "\n".join(
        [
            f"plan of {config.name} on {world} {'GPU ' * gpus_here}worker{'s' * (world > 1)}; nothing is trained",
            *(f"  {name:<{width}}{value}" for name, value in facts),
            "",
            *_rent_lines(work, tokens, world, slow, gradients),
            *_quick_lines(work, world, [machine for machine in machines if machine not in slow], gradients),
            "",
            *chain.from_iterable(dict.fromkeys(_dealing_lines(load.phase, config.worker_range) for load in work)),
            *[f"  {advice}"] * (advice is not None and on_gpus),
        ]
    )


def _rent_lines(
    work: list[PhaseLoad], tokens: float, world: int, machines: list[Machine], gradients: Gradients
) -> tuple[str, ...]:
    """Return the table of the machines for rent, and what it assumes; nothing without machines."""
    if not machines:
        return ()
    return (
        *_machine_lines(work, tokens, world, machines, gradients),
        "  Prices (on demand / spot), the assumed utilisation and the bandwidths are those of pipeline/prices.toml.",
        "  The Ray head and CPU nodes cost extra.",
        "  Time includes the wait for the worker with the most slots, and the wait for gradients. "
        "Column gradients shows the share of the wait for gradients.",
        f"  One core is assumed to feed {STREAM_TOKENS / 1e6:.1f} M tokens per second, as measured on English books.",
        "  * One stream may be too slow for these GPUs. The first value assumes that GPUs never wait for data.",
        f"    The second value assumes {STREAM_BLOCKS} blocks per second, as measured for one stream on two cores, "
        "with rows made in advance.",
    )


def _quick_lines(work: list[PhaseLoad], world: int, machines: list[Machine], gradients: Gradients) -> tuple[str, ...]:
    """Return a line on the machines for rent on which the run takes less than a minute; nothing without machines."""
    if not machines:
        return ()
    chips = listed(dict.fromkeys(machine.chip for machine in machines))
    most = max(
        math.ceil(world / machine.gpus)
        * machine.on_demand
        * run_seconds_with_stream(work, world, machine, gradients)
        / 3600
        for machine in machines
    )
    return (f"  rented GPUs ({chips}): less than a minute, at most {dollars(max(most, 0.01))} by pipeline/prices.toml",)


def _count_text(count: float) -> str:
    """Return a number of tokens in billions, or in millions or thousands if it is small."""
    size, word = next((pair for pair in ((1e9, "billion"), (1e6, "million")) if count >= pair[0]), (1e3, "thousand"))
    return f"{count / size:,.2f} {word}"


def _phase_text(phase: Phase, config: Pretrain) -> str:
    """Return a phase's steps, rows and length as text, and its share of masks if it differs between the phases."""
    return (
        f"{phase.end - phase.first:,} of {phase.batch.rows_per_step:,} rows at length {phase.sampling.maximum_length}"
        + share_of_masks(phase, config.all_phases)
    )


def _launches_text(config: Pretrain) -> str:
    """Return what launching the kernels of a slot takes, as text."""
    operators = slot_operators(config)
    if config.placement.graphs == "on":
        return f"one per slot, for about {operators:,} operators that are recorded in a CUDA graph"
    seconds = f"about {operators:,} operators per slot, which take {1000 * operators * LAUNCH_SECONDS:.0f} ms to launch"
    kind = "as on one H200" if _is_eager(config) else "in eager code on one H200; torch.compile launches fewer kernels"
    return f"{seconds} ({kind})"


def _gradients_text(gradients: Gradients, world: int, graphs: str) -> str:
    """Return the gradient traffic per step as text."""
    if world == 1:
        return "not sent: one worker"
    sent = f"{gradients.bytes_sent(world) / 1e6:,.0f} MB sent per step by each worker"
    if gradients.overlapped:
        return f"{sent} during the backward of its last slot, gradients of the embeddings after it"
    if graphs == "on":
        return f"{sent} after its last slot, which is recorded in a CUDA graph"
    return f"{sent} after its last slot, because compiled code that recomputes layers completes all gradients at once"


def _machine_lines(
    work: list[PhaseLoad], tokens: float, world: int, machines: list[Machine], gradients: Gradients
) -> list[str]:
    """Return one line per machine type: count, speed, hours and cost.

    If one stream might be too slow, hours and cost are ranges: from the time without waits for data to the time with
    one stream.
    """
    heads = ("machine", "GPU", "machines", "of peak", "gradients", "tokens/s", "cores to feed", "blocks/s")
    heads += ("per hour", "time", "on demand", "spot", "per billion tokens")
    rows, blocks = [], sum(_blocks_of(load, world) for load in work)
    for machine in machines:
        needed = math.ceil(world / machine.gpus)
        computed, streamed = (
            seconds_of(work, world, machine, gradients) / 3600 for seconds_of in (run_seconds, run_seconds_with_stream)
        )
        waited = sum(gradient_wait_seconds(load, world, machine, gradients) for load in work) / 3600
        hours = (computed, streamed) if streamed > computed else (computed,)
        speed = tokens / computed / 3600
        figures = (
            f"{needed} of {machine.cpus} CPUs",
            f"{machine.utilisation:.0%}",
            f"{waited / computed:.0%}",
            f"{speed:,.0f}",
            f"{math.ceil(speed / STREAM_TOKENS)}",
            f"{blocks / computed / 3600:,.0f}",
            f"{dollars(needed * machine.on_demand)} / {dollars(needed * machine.spot)}",
            " to ".join(estimate(3600 * hour) for hour in hours) + "*" * (len(hours) - 1),
            *(
                " to ".join(dollars(needed * hour * price) for hour in hours)
                for price in (machine.on_demand, machine.spot)
            ),
            " to ".join(dollars(needed * hour * machine.on_demand / tokens * 1e9) for hour in hours),
        )
        rows.append((f"  {machine.name}", machine.chip, *figures))
    return aligned(("  " + heads[0], *heads[1:]), rows)


def dollars(price: float) -> str:
    """Format an amount in USD, with cents below 10 USD."""
    return f"${price:,.0f}" if price >= 10 else f"${price:,.2f}"


def _dealing_lines(phase: Phase, asked: WorkerRange) -> tuple[str, ...]:
    """Return a table of how the slots of a step are dealt, with a line per number of workers."""
    slots = slots_of(phase)
    rows = []
    for world in worlds_to_show(slots, asked):
        most, least = _slots_of_busiest_rank(slots, world), slots // world
        rows.append(
            (f"  {world}", str(most) if most == least else f"{least} to {most}", f"{imbalance(slots, world):.0%}")
        )
    title = (
        f"  at length {phase.sampling.maximum_length} "
        f"a step has {slots} slot{'s' * (slots > 1)} of {phase.batch.slot_rows} rows"
    )
    if all(slots % world == 0 for world in worlds_to_show(slots, asked)):
        return (f"{title}, which {listed(worlds_to_show(slots, asked))} workers share evenly", "")
    return (title, *aligned(("  workers", "slots per rank", "longer than evenly dealt"), rows), "")
