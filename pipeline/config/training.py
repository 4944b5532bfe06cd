"""Settings of training: batches, optimiser, schedule, evaluation, checkpoints and tracking."""

from dataclasses import dataclass, replace
from typing import Literal

from pipeline.config.checks import require, require_above_zero, require_at_least, require_share
from pipeline.config.locations import Location

USUAL_ROWS = 32
"""Rows of a slot for batch.rows_per_slot auto on a CPU, and everywhere while the rows per step warm up."""
LEAST_ROWS = 8
"""Rows of a slot, at least, for batch.rows_per_slot auto, unless a step has fewer. Smaller slots are very slow."""


def largest_divisor(most: int, *numbers: int) -> int:
    """Return the largest number, at most `most`, that divides all the numbers."""
    return max(divisor for divisor in range(1, most + 1) if all(number % divisor == 0 for number in numbers))


def require_divisible(name: str, rows: int, slot_rows: int) -> None:
    """Raise ConfigError, which names the setting with the `rows`, if slots that are `auto` would be very small."""
    group = name.partition(".")[0]
    require(
        slot_rows >= min(LEAST_ROWS, rows),
        f"{name} ({rows}) divides steps into slots of {slot_rows} ({group}.rows_per_slot auto): use a multiple of "
        f"{USUAL_ROWS}, or set {group}.rows_per_slot",
    )


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows per step and slot. For any number of workers, a step is a whole number of slots."""

    rows_per_step: int = 256
    """Rows per optimiser update, over all workers."""
    rows_per_slot: int | Literal["auto"] = "auto"
    """Rows per slot. A slot is the unit that is dealt to workers, and is computed in one forward and backward pass.
    auto, on a GPU: about 32,768 tokens, as far as memory allows and as a slot is left to each of the most --workers; on
    a CPU, and while the rows per step warm up: at most 32 rows. A run keeps what it started with.
    """
    warmup_steps: int = 0
    """Steps over which the rows per step grow evenly, in whole slots, from warmup_rows to rows_per_step. The learning
    rate of each step is not changed.
    """
    warmup_rows: int | None = None
    """Rows of the first step if warmup_steps is above 0."""
    reduce_precision: Literal["float32", "bfloat16"] = "float32"
    """Number format in which workers add up their gradients. bfloat16 sends half of the bytes, and the losses then
    depend on the number of workers up to its rounding.
    """

    def __post_init__(self) -> None:
        require_at_least("batch.rows_per_step", self.rows_per_step, 1)
        if self.rows_per_slot != "auto":
            require_at_least("batch.rows_per_slot", self.rows_per_slot, 1)
        require(
            self.rows_per_slot == "auto" or self.rows_per_step % self.rows_per_slot == 0,
            f"batch.rows_per_step ({self.rows_per_step}) must be a multiple of batch.rows_per_slot "
            f"({self.rows_per_slot})",
        )
        require_at_least("batch.warmup_steps", self.warmup_steps, 0)
        require(
            (self.warmup_rows is None) == (self.warmup_steps == 0),
            f"batch.warmup_steps ({self.warmup_steps}) and batch.warmup_rows ({self.warmup_rows}) go together: set "
            "both or neither",
        )
        require(
            self.warmup_rows is None
            or (
                0 < self.warmup_rows <= self.rows_per_step
                and (self.rows_per_slot == "auto" or self.warmup_rows % self.rows_per_slot == 0)
            ),
            f"batch.warmup_rows ({self.warmup_rows}) must be a multiple of batch.rows_per_slot ({self.slot_rows}) "
            f"and at most batch.rows_per_step ({self.rows_per_step})",
        )
        name = "rows_per_step" if self.warmup_rows is None else "warmup_rows"
        if self.rows_per_slot == "auto":
            require_divisible(f"batch.{name}", self.fewest_rows, self.slot_rows)

    @property
    def fewest_rows(self) -> int:
        """Rows of the first step."""
        return self.warmup_rows or self.rows_per_step

    @property
    def slot_rows(self) -> int:
        """Rows of a slot, with `auto` as on a CPU."""
        return self.dividing_rows(USUAL_ROWS) if self.rows_per_slot == "auto" else self.rows_per_slot

    @property
    def slots_per_step(self) -> int:
        """Slots of every step after the warm-up."""
        return self.rows_per_step // self.slot_rows

    @property
    def fewest_slots(self) -> int:
        """Slots of the first step."""
        return self.fewest_rows // self.slot_rows

    def dividing_rows(self, most: int, workers: int = 1) -> int:
        """Return the largest number of rows, at most `most`, that divides the rows of all steps into slots.

        Each of the `workers` gets a slot in every step, if there are as many rows.
        """
        most = max(1, min(most, self.fewest_rows // workers))
        return largest_divisor(most, self.rows_per_step, self.fewest_rows)

    def with_slots(self, most: int, workers: int) -> "Batch":
        """Return the settings with a number in place of rows_per_slot auto: `dividing_rows` of the arguments."""
        return replace(self, rows_per_slot=self.dividing_rows(most, workers)) if self.rows_per_slot == "auto" else self


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Adam with decoupled weight decay and bias correction (BERT's own optimiser had no bias correction)."""

    learning_rate: float = 1e-4
    """Peak learning rate."""
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    """Not applied to biases and LayerNorm parameters."""
    clip_norm: float = 1.0
    """Maximum norm of a step's gradient; a gradient with a larger norm is scaled down to this norm."""
    layer_decay: float = 1.0
    """A layer's learning rate divided by the learning rate of the next higher layer, as in the fine-tuning of Clark et
    al. 2020. Pooler and heads have the full rate, the top layer has layer_decay times the full rate, and the embeddings
    have layer_decay^(layers + 1) times the full rate.
    """
    word_embeddings_rate: float | None = None
    """Factor on the learning rate of the word embeddings, above 0 and at most 1.

    Default: 1. In pretraining with word_embeddings cooccurrence, the default is 0.1, because at the full rate the
    initial values are lost within a few hundred steps.
    """

    def __post_init__(self) -> None:
        require(0 < self.learning_rate < 1, f"optimizer.learning_rate ({self.learning_rate}) must lie between 0 and 1")
        require(0 <= self.beta1 < 1, f"optimizer.beta1 ({self.beta1}) must be at least 0 and below 1")
        require(0 <= self.beta2 < 1, f"optimizer.beta2 ({self.beta2}) must be at least 0 and below 1")
        require_above_zero("optimizer.epsilon", self.epsilon)
        require_at_least("optimizer.weight_decay", self.weight_decay, 0)
        require_above_zero("optimizer.clip_norm", self.clip_norm)
        require(0 < self.layer_decay <= 1, f"optimizer.layer_decay ({self.layer_decay}) must be above 0 and at most 1")
        share = self.word_embeddings_rate
        require(
            share is None or 0 < share <= 1, f"optimizer.word_embeddings_rate ({share}) must be above 0 and at most 1"
        )


@dataclass(frozen=True, kw_only=True)
class TaskAdamW(AdamW):
    __doc__ = AdamW.__doc__

    learning_rate: float | None = None  # ty: ignore[incompatible-attribute-override]
    """Peak learning rate; default: 3e-4 for widths up to 256, 1e-4 up to 512, 5e-5 above."""
    layer_decay: float | None = None  # ty: ignore[incompatible-attribute-override]
    """Ratio of a layer's learning rate to that of the next higher layer. Pooler and heads have the full rate, the top
    layer has layer_decay times the full rate, and the embeddings have layer_decay^(layers + 1) times it. Default:
    0.8 for ELECTRA (Clark et al. 2020), 1 for other families.
    """

    def __post_init__(self) -> None:
        usual = {"learning_rate": AdamW.learning_rate, "layer_decay": AdamW.layer_decay}
        # AdamW is built only to run its checks, which None would not pass.
        AdamW(**vars(self) | {name: value for name, value in usual.items() if getattr(self, name) is None})


@dataclass(frozen=True, kw_only=True)
class Lamb(AdamW):
    """LAMB, for large batches: Adam with bias correction, in which each matrix's update is scaled in proportion to the
    norm of the matrix (You et al. 2020, algorithm 2).
    """

    learning_rate: float = 6.25e-4
    """Peak learning rate. The default is the untuned rate of You et al. 2020 at 512 rows per step, 5 / (2^3 * 10^3).
    The authors change the rate in proportion to the square root of the rows per step.
    """


@dataclass(frozen=True, kw_only=True)
class StableAdamW(AdamW):
    """AdamW whose rate is lower for tensors whose gradients grow suddenly (Wortsman et al. 2023, algorithm 2)."""


@dataclass(frozen=True, kw_only=True)
class Muon(AdamW):
    """Muon for the matrices of the layers, AdamW for all other parameters (Jordan et al. 2024). Both have one rate,
    because Muon's updates are scaled to the size of AdamW's (Liu et al. 2025).
    """

    momentum: float = 0.95
    """Momentum of Muon, with Nesterov's correction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.momentum < 1, f"optimizer.momentum ({self.momentum}) must be at least 0 and below 1")


Optimizer = AdamW | Lamb | StableAdamW | Muon


@dataclass(frozen=True, kw_only=True)
class LinearDecay:
    """Linear warm-up, then linear decay to zero at the last step (Devlin et al. 2019, A.2)."""

    warmup_share: float = 0.01
    """Share of the steps that are warm-up (published: 10,000 of 1,000,000)."""

    def __post_init__(self) -> None:
        require_share("schedule.warmup_share", self.warmup_share)


@dataclass(frozen=True, kw_only=True)
class ConstantRate:
    """Linear warm-up, then a constant rate. A run of one phase can be continued with more --steps."""

    warmup_steps: int = 100

    def __post_init__(self) -> None:
        require_at_least("schedule.warmup_steps", self.warmup_steps, 0)


@dataclass(frozen=True, kw_only=True)
class CosineDecay:
    """Linear warm-up, then half a cosine down to zero at the last step (Loshchilov & Hutter 2017, without restarts)."""

    warmup_share: float = 0.01
    """Share of the steps that are warm-up."""

    def __post_init__(self) -> None:
        require_share("schedule.warmup_share", self.warmup_share)


@dataclass(frozen=True, kw_only=True)
class PolynomialDecay:
    """Linear warm-up, then a rate in proportion to (share of the steps that remain) ^ power. The power is 1 in
    google-research/bert, and 0.5 in NVIDIA's examples of BERT with LAMB.
    """

    warmup_share: float = 0.01
    """Share of the steps that are warm-up."""
    power: float = 0.5
    """Exponent of the decay: 1 is linear; below 1, the rate stays high for longer."""

    def __post_init__(self) -> None:
        require_share("schedule.warmup_share", self.warmup_share)
        require_above_zero("schedule.power", self.power)


@dataclass(frozen=True, kw_only=True)
class WarmupStableDecay:
    """Linear warm-up, a constant rate, and a linear decay to zero in the last steps (Hu et al. 2024,
    section 4; the decay is linear as in Hägele et al. 2024).

    A run of one phase can be continued with more --steps; if the decay has begun, the run goes back to the step at
    which the decay starts.
    """

    warmup_steps: int = 100
    decay_share: float = 0.1
    """Share of the steps that are decay."""

    def __post_init__(self) -> None:
        require_at_least("schedule.warmup_steps", self.warmup_steps, 0)
        require_share("schedule.decay_share", self.decay_share)

    def stable_until(self, steps: int) -> int:
        """Return the step (from 0) at which the decay of a run of `steps` steps begins."""
        return steps - round(self.decay_share * steps)


Schedule = LinearDecay | ConstantRate | CosineDecay | PolynomialDecay | WarmupStableDecay
EVALUATED_WINDOWS = 64
"""Maximum number of held-out windows that an evaluation reads; all their text is encoded at every start of a run."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Evaluation of the held-out loss, with fixed pairs and masks."""

    every: int | None = None
    """Steps between evaluations; the last step is always followed by an evaluation. Default: a tenth of the steps, at
    most 1,000.
    """
    rows: int = 2_048
    """Maximum number of held-out rows per evaluation.

    Estimated: an evaluation costs as much as training on a third of these rows, because it has no backward pass.
    """
    blimp: Location | None = None
    """Folder of BLiMP's files: each evaluation also measures the accuracy on 13,400 pairs of a good and a bad sentence,
    a fifth of all pairs. If the folder does not exist, the files are downloaded into it (20 MB). Other .jsonl files of
    such pairs work too, as BabyLM's blimp_filtered and supplement_filtered.

    For bert-tiny with 8,192 vocabulary entries, this takes 55 s on one core, as long as training on two million tokens.
    So set evaluation.every in short runs.
    """

    def __post_init__(self) -> None:
        require(self.every is None or self.every >= 1, f"evaluation.every ({self.every}) must be at least 1")
        require_at_least("evaluation.rows", self.rows, 1)


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Checkpoints: when training state is saved, and which checkpoints are kept."""

    every: int = 500
    """Steps between checkpoints. A checkpoint is also written after the last step, and after about ten minutes of steps
    without one.
    """
    keep: int = 3
    """Number of newest checkpoints to keep; if these are `every` steps apart, also the newest one after them."""
    keep_best: bool = False
    """Also keep the checkpoint with the lowest held-out loss. Only checkpoints at steps with an evaluation
    (evaluation.every) are compared.
    """
    patience_seconds: int = 300
    """Seconds for which a failed write of a checkpoint is retried while training continues. If the write still fails,
    the run stops.
    """

    def __post_init__(self) -> None:
        require_at_least("checkpoint.every", self.every, 1)
        require_at_least("checkpoint.keep", self.keep, 1)
        require_at_least("checkpoint.patience_seconds", self.patience_seconds, 0)


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Destination of metrics."""

    uri: str | None = None
    """MLflow tracking URI; default: MLFLOW_TRACKING_URI, else SQLite at OUTPUT/mlflow.db."""
    experiment: str = "pretrain"
    every: int = 10
    """Number of steps after which metrics are logged and a progress line is printed."""

    def __post_init__(self) -> None:
        require_at_least("tracking.every", self.every, 1)
