"""The whole configuration of pretraining."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pipeline.command_line.options import flag_of
from pipeline.config.checks import require, require_at_least
from pipeline.config.data import NextSentence, Preparation, Sampling, SentenceOrder, Sources, VocabularySettings
from pipeline.config.length import require_length
from pipeline.config.locations import Location
from pipeline.config.model import FAMILY_PARTS, EncoderPooler, Model, RotaryPositions, require_one_rate
from pipeline.config.model_parts import BlockSparseAttention, FullAttention, LocalAttention
from pipeline.config.objective import Contrastive, Distilled, DistilledVectors, Masked, Objective, Replaced
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
EAGER: dict[type, str] = {
    Contrastive: "objective contrastive needs equal dropout in a pass with gradients and in one without",
    DistilledVectors: "objective distilled-vectors calls a teacher in each step, and the teacher cannot be compiled",
}
"""Objective -> reason why torch.compile is not used for it."""
EAGER_ATTENTION: dict[type, str] = {
    BlockSparseAttention: "model.attention block-sparse-attention groups sequences by their lengths",
}
"""Attention -> reason why torch.compile is not used for it."""
VECTOR_OBJECTIVES: dict[type, str] = {Contrastive: "contrastive", DistilledVectors: "distilled-vectors"}
"""Objective that trains text vectors and no masked-token head -> its name on the command line."""
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
            require_compilable_attention(self)
            require_recordable(self)
        _require_two_texts(self)
        _require_sentences(self)
        if name := VECTOR_OBJECTIVES.get(type(self.objective)):
            _refuse_for_vectors(self, name)
        if isinstance(self.objective, Contrastive):
            _refuse_single_rows(self)
        if self.init is None:  # with init, the check follows when the model's family is known
            require_trained_parts(self)
        require(
            self.init is not None or not self.vocabulary.extend,
            f"vocabulary.extend ({self.vocabulary.extend}) needs init, the published model whose vocabulary is "
            "extended: a vocabulary trained on the corpus has the corpus' words already",
        )
        require(
            not isinstance(self.objective, Distilled) or not self.vocabulary.extend,
            f"vocabulary.extend ({self.vocabulary.extend}) cannot be set together with objective distilled, because "
            "the run must have the teacher's vocabulary: leave it out",
        )
        require(
            not isinstance(self.objective, Distilled) or self.word_embeddings == "random",
            f"word_embeddings ({self.word_embeddings}) cannot be set together with objective distilled, whose student "
            "starts with the teacher's word embeddings: leave it out",
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
        f"workers ({workers}) must be at most the slots of a step ({batch.fewest_slots} = {_fewest_rows_name(phase)} "
        f"{batch.fewest_rows} / "
        f"{phase.names.rows_per_slot} {batch.slot_rows}): use fewer workers or {_smaller_slots(workers, phase)}",
    )


def _fewest_rows_name(phase: Phase) -> str:
    """Return the name of the setting with the rows of a phase's smallest step."""
    return "batch.warmup_rows" if phase.batch.warmup_rows else phase.names.rows_per_step


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


def _require_two_texts(config: Pretrain) -> None:
    """Raise ConfigError for objective contrastive without pairs of texts, and for pairs of texts without it."""
    contrastive, kind = isinstance(config.objective, Contrastive), type(config.sampling.pairs).__name__
    require(
        not contrastive or config.sampling.two_texts,
        f"objective (contrastive) needs pairs of texts, but sampling.pairs is {kind}: choose sampling.pairs:two-crops, "
        "sampling.pairs:adjacent-paragraphs, sampling.pairs:title-paragraph or sampling.pairs:given-pairs",
    )
    require(
        contrastive or not config.sampling.two_texts or isinstance(config.objective, DistilledVectors),
        f"sampling.pairs ({kind}) makes pairs of texts for objective contrastive, but objective is "
        f"{type(config.objective).__name__.lower()}: choose objective:contrastive, or other sampling.pairs",
    )


def _require_sentences(config: Pretrain) -> None:
    """Raise ConfigError for objective distilled-vectors without sentences, and for sentences without it."""
    vectors, kind = isinstance(config.objective, DistilledVectors), type(config.sampling.pairs).__name__
    require(
        not vectors or config.sampling.with_text,
        f"objective (distilled-vectors) needs single texts, but sampling.pairs is {kind}: choose "
        "sampling.pairs:sentences",
    )
    require(
        vectors or not config.sampling.with_text,
        f"sampling.pairs ({kind}) makes single texts for objective distilled-vectors, but objective is "
        f"{type(config.objective).__name__.lower()}: choose objective:distilled-vectors, or other sampling.pairs",
    )


def require_compilable_attention(config: Pretrain) -> None:
    """Raise ConfigError if placement.compile is on, but the model's attention cannot be compiled."""
    reason = EAGER_ATTENTION.get(type(config.model.attention))
    require(
        reason is None or config.placement.compile != "on",
        f"placement.compile (on) cannot be used, because {reason}: set placement.compile to auto or off",
    )


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
    if not isinstance(config.objective, Masked):
        return f"objective masked, but objective is {objective}"
    if not isinstance(config.model.attention, FullAttention | LocalAttention):
        return f"full or local attention, but model.attention is {attention}"
    if placement.precision in ("float16", "float8"):
        return f"another number format, but placement.precision is {placement.precision}"
    return "layers that are not recomputed, but placement.recompute is set" if placement.recompute else None


def _refuse_for_vectors(config: Pretrain, name: str) -> None:
    """Raise ConfigError for settings that objectives of VECTOR_OBJECTIVES do not support; `name`: the objective's."""
    require(
        config.evaluation.blimp is None,
        f"evaluation.blimp ({config.evaluation.blimp}) needs a masked-token head, which objective {name} does not "
        "train: leave it out",
    )
    require(
        config.placement.compile != "on",
        f"placement.compile (on) cannot be used, because {EAGER[type(config.objective)]}: set "
        "placement.compile to auto or off",
    )
    masks = config.phases.masks
    remedy = "choose phases:one-phase" if masks and masks.startswith("phases ") else "leave it out"
    require(masks is None, f"{masks} has no effect with objective {name}, which masks no tokens: {remedy}")


def _refuse_single_rows(config: Pretrain) -> None:
    """Raise ConfigError if a step of objective contrastive has a single row."""
    for phase in config.all_phases:
        require(
            phase.batch.fewest_rows > 1,
            f"{_fewest_rows_name(phase)} ({phase.batch.fewest_rows}) must be at least 2 with objective contrastive: "
            "the texts of a row are compared with those of other rows of the step",
        )


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
    """Raise ConfigError if the family does not support the objective or optimizer.layer_decay.

    Also raise ConfigError if rows are labelled sentence pairs, but the model has no head that learns from the labels.
    """
    require_one_rate(config.optimizer.layer_decay, config.model)
    replaced, family = isinstance(config.objective, Replaced), config.model.family
    require(
        not replaced or config.model.replaced_head is not None,
        f"objective (replaced) needs model.family electra or deberta-v2, which have a generator, but model.family is "
        f"{family}: choose a preset electra-* or deberta-v3-*",
    )
    enhanced = isinstance(config.objective, Masked) and config.objective.decoder == "enhanced"
    require(
        not enhanced or FAMILY_PARTS[family].enhanced_decoder,
        f"objective.decoder (enhanced) needs model.family deberta or deberta-v2, but model.family is {family}: leave "
        "objective.decoder out",
    )
    if isinstance(config.objective, Replaced):
        config.objective.generator_of(config.model)  # raises ConfigError if the width does not divide into heads
    if isinstance(config.sampling.pairs, NextSentence | SentenceOrder):
        kind = type(config.sampling.pairs).__name__
        without = "objective replaced" if replaced else family
        without = "objective distilled" if isinstance(config.objective, Distilled) else without
        require(
            isinstance(config.objective, Masked) and isinstance(config.model.pooler, EncoderPooler),
            f"sampling.pairs ({kind}) makes pairs for a head that {without} does not have: choose "
            "sampling.pairs:full-sentences or sampling.pairs:single-segment",
        )


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
