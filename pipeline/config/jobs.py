"""The whole configuration of pretraining."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from pipeline.command_line.options import flag_of
from pipeline.config.checks import either, require, require_at_least
from pipeline.config.data import Pairs, Preparation, Sampling, Sources, VocabularySettings
from pipeline.config.length import require_length
from pipeline.config.locations import Location
from pipeline.config.model import FAMILY_PARTS, Model, RotaryPositions, require_one_rate
from pipeline.config.needs import (
    EAGER,
    MASKED_HEAD,
    MASKED_TOKENS,
    RECORDABLE,
    REFUSALS,
    SEVERAL_ROWS,
    TEACHERS_VOCABULARY,
    TEACHERS_WORDS,
    Choice,
)
from pipeline.config.objective import Masked, Objective
from pipeline.config.phases import OnePhase, Phase, Phases, split
from pipeline.config.placement import Placement
from pipeline.config.training import (
    AdamW,
    Batch,
    Checkpoints,
    Evaluation,
    LinearDecay,
    Optimizer,
    Schedule,
    Tracking,
    WarmupStableDecay,
)
from pipeline.config.workers import WorkerRange, worker_range
from pipeline.errors import ConfigError

COUNTED_RATE = 0.1
"""Factor on the learning rate of word embeddings that start from co-occurrence counts. At the full rate (1e-3), the
initial values are lost after 500 steps; at a tenth of the rate, they are kept.
"""
COMMON = (
    *("corpus", "init", "steps", "tokens", "epochs", "workers", "name", "output", "seed"),
    *(
        "vocabulary.path",
        "sampling.maximum_length",
        "batch.rows_per_step",
        "optimizer.learning_rate",
        "placement.device",
    ),
)
"""Settings that --help shows first."""
FEWEST_EVALUATIONS, MOST_BETWEEN = 10, 1_000
"""Minimum evaluations per run and maximum steps between them, if evaluation.every is not set."""
LONGEST_NAME = 200
"""Maximum bytes of a run's name. File systems allow names of 255 bytes, and locks and temporary files next to the run's
folder have longer names than the run.
"""


@dataclass(frozen=True, kw_only=True)
class Pretrain(Sources):
    """Pretrain an encoder on raw text."""

    init: Location | None = None
    """Published model to start from, such as a run's export: its weights, vocabulary and sizes.

    A folder, an s3:// or gs:// URL, or hf://OWNER/NAME. Default: random weights.
    """
    word_embeddings: Literal["random", "cooccurrence"] = "random"
    """Initial word embeddings. random: random values, as published; cooccurrence: factorised co-occurrence counts of
    the corpus, which help a run on little text. At most 300 million characters are counted, which takes two minutes on
    one core at width 256. Runs with the same corpus, vocabulary and width share the result.
    """
    steps: int = 1_000
    """Total optimiser updates."""
    tokens: str | None = None
    """Tokens to train on, such as 250k, 100M or 2_000_000, in place of steps. The steps are counted once, when the run
    begins, from the lengths of the rows that it reads.
    """
    epochs: float | None = None
    """Times that the run reads its whole text, in place of steps, which are counted once, when the run begins."""
    workers: int | str = 1
    """Number of Ray Train workers, at most the number of slots in the smallest step. The global batches are the same
    for any number of workers.

    A range LEAST..MOST, such as 2..8, starts as many workers as fit. The number falls when nodes leave and rises when
    nodes join.
    """
    name: str | None = None
    """Name of the run; default: the preset and a digest of the settings. So the same command continues the same run."""
    output: Location = "output"
    """Folder or URL of prepared corpora, runs and the MLflow database."""
    seed: int = 0
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """Action when a gradient is not finite. stop: stop the run; skip: skip the update and count it."""
    prepare: Preparation = Preparation()
    vocabulary: VocabularySettings = VocabularySettings()
    sampling: Sampling = Sampling()
    model: Model = Model()
    batch: Batch = Batch()
    evaluation: Evaluation = Evaluation()
    checkpoint: Checkpoints = Checkpoints()
    tracking: Tracking = Tracking()
    placement: Placement = Placement()
    phases: Phases = OnePhase()
    objective: Objective = Masked()
    optimizer: Optimizer = AdamW()
    schedule: Schedule = LinearDecay()

    def __post_init__(self) -> None:
        require_at_least("steps", self.steps, 1)
        require_length(self.tokens, self.epochs)
        most = self.worker_range.most
        require(0 <= self.seed < 2**63, f"seed ({self.seed}) must be a whole number from 0 to 2^63 - 1")
        for phase in self.all_phases:
            _refuse_surplus_workers(most, phase)
        if not self.steps_from:  # else the steps are not known yet, and `with_steps` checks them
            _refuse_long_warmups(self)
        if self.init is None:  # with init, these checks follow when the model is known
            require_positions(self)
            require_rotated_positions(self)
            require_recordable(self)
        require_offered(self, model_is_known=self.init is None)
        if self.init is None:  # with init, the check follows when the model's family is known
            require_trained_parts(self)
        require(
            self.init is not None or not self.vocabulary.extend,
            f"vocabulary.extend ({self.vocabulary.extend}) needs init, the published model whose vocabulary is "
            "extended: a vocabulary trained on the corpus has the corpus' words already",
        )
        require(
            self.init is None or self.word_embeddings == "random",
            f"word_embeddings ({self.word_embeddings}) cannot be set together with init ({self.init}), which has "
            "word embeddings of its own: leave word_embeddings or init out",
        )
        require(
            self.name is None
            or (self.name != "" and all(c.isalnum() or c in "-_." for c in self.name) and self.name[0] != "."),
            f"name ({self.name!r}) may hold letters, digits, '-', '_' and '.' only and must not start with '.'",
        )
        size = len((self.name or "").encode())
        require(
            size <= LONGEST_NAME,
            f"name ({str(self.name)[:20]}…) has {size} bytes: a run's name may have at most {LONGEST_NAME}",
        )

    @property
    def worker_range(self) -> WorkerRange:
        return worker_range(self.workers)

    @property
    def steps_from(self) -> dict[str, Any]:
        """{name: value} of tokens or epochs, which stand in place of the steps; else {}."""
        lengths = {"tokens": self.tokens, "epochs": self.epochs}
        return {name: value for name, value in lengths.items() if value is not None}

    @property
    def evaluation_every(self) -> int:
        """Steps between evaluations."""
        return self.evaluation.every or max(1, min(MOST_BETWEEN, self.steps // FEWEST_EVALUATIONS))

    @property
    def all_phases(self) -> tuple[Phase, ...]:
        """Phases with a number of rows per slot each: for `auto`, that of a CPU."""
        return split(self.phases, self.steps, self.sampling, self.batch, self.worker_range.most)

    @property
    def phase_of_fewest_rows(self) -> Phase:
        """Phase with the fewest rows in a step; of several, the first."""
        return min(self.all_phases, key=lambda phase: phase.batch.fewest_rows)

    @property
    def slotted_phases(self) -> tuple[Phase, ...]:
        """The first phase, and the later phases that have rows per slot of their own."""
        first, *later = self.all_phases
        return (first, *(phase for phase in later if phase.names.own_slots))

    def phase_at(self, step: int) -> Phase:
        """Return the phase of a step (from 0). Steps after the end of the run belong to the last phase."""
        return next((phase for phase in self.all_phases if step < phase.end), self.all_phases[-1])


def _refuse_surplus_workers(workers: int, phase: Phase) -> None:
    """Raise ConfigError if a worker would have no slot in some step of the phase."""
    batch = phase.batch
    require(
        workers <= batch.fewest_slots,
        f"workers ({workers}) must be at most the slots of a step ({batch.fewest_slots} = {phase.fewest_rows_name} "
        f"{batch.fewest_rows} / "
        f"{phase.names.rows_per_slot} {batch.slot_rows}): use fewer workers or {_smaller_slots(workers, phase)}",
    )


def _smaller_slots(workers: int, phase: Phase) -> str:
    """Return a setting with which each worker gets a slot in every step."""
    if phase.batch.fewest_rows < workers:
        return f"more {phase.names.rows_per_step}"
    return f"{phase.names.slots_option(phase.batch.dividing_rows(phase.batch.slot_rows, workers))} (or auto)"


def require_positions(config: Pretrain) -> None:
    """Raise ConfigError if a phase has longer rows than the model has positions."""
    for phase in config.all_phases:
        require(
            phase.sampling.maximum_length <= config.model.maximum_positions,
            f"{phase.names.maximum_length} ({phase.sampling.maximum_length}) must be at most model.maximum_positions "
            f"({config.model.maximum_positions})",
        )


def require_rotated_positions(config: Pretrain) -> None:
    """Raise ConfigError if a phase changes rotary angles that the model does not have."""
    for phase in config.all_phases:
        require(
            phase.theta is None or isinstance(config.model.positions, RotaryPositions),
            f"{phase.names.theta} ({phase.theta}) needs model.positions:rotary-positions, but model.positions is "
            f"{type(config.model.positions).__name__}: leave {phase.names.theta} out",
        )


def require_offered(config: Pretrain, *, model_is_known: bool = True) -> None:
    """Raise ConfigError for a need of a choice that the run's other choices do not offer: the first one in REFUSALS.

    Needs of the model, and needs that it must offer, are left out unless `model_is_known`.
    """
    choices: dict[str, Choice] = {"objective": config.objective, "sampling.pairs": config.sampling.pairs}
    offers = {
        **{name: choice.offers for name, choice in choices.items()},
        "placement.compile": (EAGER,) * (config.placement.compile != "on"),
        "batch": (SEVERAL_ROWS,) * (config.phase_of_fewest_rows.batch.fewest_rows > 1),
        "vocabulary.extend": (TEACHERS_VOCABULARY,) * (not config.vocabulary.extend),
        "word_embeddings": (TEACHERS_WORDS,) * (config.word_embeddings == "random"),
    }
    if model_is_known:
        choices = {"model.attention": config.model.attention} | choices
        offers["model.family"] = FAMILY_PARTS[config.model.family].offers
    needs = [(need, name) for name, choice in choices.items() for need in choice.needs]
    needs += [(MASKED_HEAD, "evaluation.blimp")] * (config.evaluation.blimp is not None)
    needs += [(MASKED_TOKENS, "phases")] * (config.phases.masks is not None)
    for need, needing in sorted(needs, key=lambda pair: list(REFUSALS).index(pair[0])):
        by = REFUSALS[need].by
        for lacking in by if offers.keys() >= set(by) else ():
            if need not in offers[lacking]:
                raise ConfigError(_refusal(config, need, lacking, f"{needing} {_eager(choices.get(needing))}"))


def _refusal(config: Pretrain, need: str, lacking: str, eager: str) -> str:
    """Return the sentence that refuses a run in which the setting `lacking` does not offer a need."""
    refusal, pairs = REFUSALS[need], type(config.sampling.pairs)
    objective, family = flag_of(type(config.objective)), config.model.family
    kinds: dict[str, dict[str, Any]] = {
        "objective": {flag_of(kind): kind for kind in get_args(Objective)},
        "sampling.pairs": {flag_of(kind): kind for kind in get_args(Pairs)},
        "model.family": FAMILY_PARTS,
    }
    first, *_ = refusal.by
    names = [name for name, kind in kinds.get(first, {}).items() if need in kind.offers]
    unlabelled = [
        name for name, kind in kinds["sampling.pairs"].items() if kind.offers == pairs.offers and not kind.needs
    ]
    return refusal.sentence.format(
        config=config,
        objective=objective,
        pairs=pairs.__name__,
        family=family,
        lacking=f"objective {objective}" if lacking == "objective" else family,
        names=either(names),
        kinds=either(f"{first}:{name}" for name in names),
        eager=eager,
        unlabelled=either(f"sampling.pairs:{name}" for name in unlabelled),
    )


def eager_reason(config: Pretrain) -> str | None:
    """Return the reason why the run's code cannot be compiled; None if it can."""
    parts = {"objective": config.objective, "model.attention": config.model.attention}
    return next((f"{name} {_eager(part)}" for name, part in parts.items() if EAGER in part.needs), None)


def _eager(part: Choice | None) -> str:
    """Return a part's name on the command line and its reason for eager code."""
    return f"{flag_of(type(part))} {part.eager}" if part else ""


def require_recordable(config: Pretrain) -> None:
    """Raise ConfigError if placement.graphs is on, but the forward and backward of a slot cannot be recorded."""
    problem = recording_problem(config)
    require(
        config.placement.graphs != "on" or problem is None,
        f"placement.graphs (on) needs {problem}: set placement.graphs auto or off, or change this",
    )


def recording_problem(config: Pretrain) -> str | None:
    """Return what CUDA graphs need and the run does not have; None if they can be recorded on a GPU."""
    objective, attention = (flag_of(type(part)) for part in (config.objective, config.model.attention))
    placement = config.placement
    if RECORDABLE not in config.objective.offers:
        recordable = either(flag_of(kind) for kind in get_args(Objective) if RECORDABLE in kind.offers)
        return f"objective {recordable}, but objective is {objective}"
    if RECORDABLE not in config.model.attention.offers:
        return f"full or local attention, but model.attention is {attention}"
    if placement.precision in ("float16", "float8"):
        return f"another number format, but placement.precision is {placement.precision}"
    return "layers that are not recomputed, but placement.recompute is set" if placement.recompute else None


def _refuse_long_warmups(config: Pretrain) -> None:
    """Raise ConfigError if the batch would never reach its full size, or if the learning rate would reach no peak."""
    first, *others = config.all_phases
    require(
        first.batch.warmup_steps <= first.end,
        f"batch.warmup_steps ({first.batch.warmup_steps}) must be at most the "
        f"steps{' of the first phase' if others else ''} ({first.end})",
    )
    if isinstance(config.schedule, WarmupStableDecay):
        stable = config.schedule.stable_until(config.steps)
        require(
            config.schedule.warmup_steps <= stable,
            f"schedule.warmup_steps ({config.schedule.warmup_steps}) must be at most {stable}, the step at which the "
            f"decay begins with steps ({config.steps}) and schedule.decay_share ({config.schedule.decay_share})",
        )


def require_trained_parts(config: Pretrain) -> None:
    """Raise ConfigError if the model does not support optimizer.layer_decay, or sizes of the objective."""
    require_one_rate(config.optimizer.layer_decay, config.model)
    config.objective.require_fitting(config.model)


def with_slot_rows(config: Pretrain, rows: Sequence[int]) -> Pretrain:
    """Return the settings with these rows per slot, one for each of `slotted_phases`."""
    return replace(
        config, batch=replace(config.batch, rows_per_slot=rows[0]), phases=config.phases.with_slots(rows[1:])
    )


def with_usual_slots(config: Pretrain) -> Pretrain:
    """Return the settings with numbers in place of `auto` rows per slot: those of a CPU, and of earlier versions."""
    return with_slot_rows(config, [phase.batch.slot_rows for phase in config.slotted_phases])


def with_words_rate(config: Pretrain) -> Pretrain:
    """Return the settings. If word embeddings start from counts, set an unset word_embeddings_rate to COUNTED_RATE."""
    if config.word_embeddings == "random" or config.optimizer.word_embeddings_rate is not None:
        return config
    return replace(config, optimizer=replace(config.optimizer, word_embeddings_rate=COUNTED_RATE))
