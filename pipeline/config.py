"""Every setting of the pipeline, as frozen dataclasses that refuse values which cannot work.

One dotted name serves a setting everywhere: command-line flag, MLflow parameter and error message.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from pipeline.errors import ConfigError


def require(condition: bool, message: str) -> None:
    """Raise ConfigError(message) unless `condition` holds."""
    if not condition:
        raise ConfigError(message)


def require_share(name: str, value: float) -> None:
    """Raise ConfigError unless `value` lies in [0, 1]."""
    require(0.0 <= value <= 1.0, f"{name} ({value}) must lie between 0 and 1")


def require_at_least(name: str, value: float, least: float) -> None:
    """Raise ConfigError unless `value` is `least` or more."""
    require(value >= least, f"{name} ({value}) must be at least {least}")


def require_above_zero(name: str, value: float) -> None:
    """Raise ConfigError unless `value` is above 0 (NaN is not)."""
    require(value > 0, f"{name} ({value}) must be above 0")


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How sources become document shards."""

    heldout_share: float = 0.01
    """Share of parents (whole books, articles) set aside for evaluation, chosen by a hash."""
    window_characters: int = 2_000_000
    """Text of one window (a Parquet row group): the unit of reading, shuffling and resuming."""
    windows_per_shard: int = 32
    """Windows of one Parquet shard, about."""
    piece_characters: int = 32_000
    """Longer documents are cut at paragraph bounds into pieces of at most about this length."""
    minimum_characters: int = 100
    """Shorter documents are dropped (reason: too short)."""
    minimum_letters: float = 0.5
    """Documents with a smaller share of letters among their characters, white space apart, are dropped (reason: not language)."""
    near_duplicates: float | None = 0.8
    """Documents are dropped when this share of their sequences of eight words stands in others (reason: near-duplicate), and held-out ones
    when a twentieth stands in training documents. None: only equal texts are dropped."""
    error_limit: float = 0.05
    """Share of broken files or records that is counted and skipped; above it preparation stops."""
    expansion_limit: int = 200
    """A compressed file is cut where more than this many times its size, and more than 64 MB, has come out; text gives 3 to 20 times."""

    def __post_init__(self) -> None:
        require_share("prepare.heldout_share", self.heldout_share)
        require(self.heldout_share < 1, f"prepare.heldout_share ({self.heldout_share}) leaves nothing to train on")
        require_at_least("prepare.window_characters", self.window_characters, 1_000)
        require_at_least("prepare.windows_per_shard", self.windows_per_shard, 1)
        require_at_least("prepare.piece_characters", self.piece_characters, 100)
        require_at_least("prepare.minimum_characters", self.minimum_characters, 1)
        require_share("prepare.minimum_letters", self.minimum_letters)
        require(
            self.near_duplicates is None or 0 < self.near_duplicates <= 1,
            f"prepare.near_duplicates ({self.near_duplicates}) must lie above 0 and be at most 1, or be None",
        )
        require_share("prepare.error_limit", self.error_limit)
        require_at_least("prepare.expansion_limit", self.expansion_limit, 2)
        require(
            self.minimum_characters <= self.piece_characters,
            f"prepare.minimum_characters ({self.minimum_characters}) must be at most prepare.piece_characters ({self.piece_characters})",
        )
        require(
            self.piece_characters * 2 <= self.window_characters,
            f"prepare.piece_characters ({self.piece_characters}) must be at most half of "
            f"prepare.window_characters ({self.window_characters}): a window needs several documents",
        )


@dataclass(frozen=True, kw_only=True)
class VocabularySettings:
    """Which vocabulary to use: a given one, or one trained on the prepared corpus."""

    path: str | None = None
    """A vocab.txt, tokenizer.json, vocab.json with its merges.txt, or a folder with one; none: train one on the prepared corpus."""
    kind: Literal["wordpiece", "byte-bpe", "unigram"] = "wordpiece"
    """Of a trained one: WordPiece as BERT's, byte-level BPE as RoBERTa's, or unigram as ALBERT's and DeBERTa-v3's."""
    size: int = 30_522
    """Entries of a trained one, special and unused ones counted (Devlin et al. 2019: 30,522)."""
    lowercase: bool | None = None
    """Lower-case text. None: as the given tokenizer's config says (a bare vocab.txt says nothing and needs it); a trained WordPiece does, other kinds do not."""
    strip_accents: bool | None = None
    """Remove accents. None: as the given tokenizer's config says, else where text is lower-cased (BERT's rule)."""
    chinese_characters: bool = True
    """WordPiece: every Chinese character is a word of its own; the other kinds never split them."""
    unused: int = 0
    """Entries [unused0], [unused1], … of a trained one, kept free for words of a later task; their ids follow the five special tokens'."""
    training_characters: int | None = 100_000_000
    """Text that one is trained on at most: the first windows of the shuffled corpus, some 20 million English words, counted in seconds; none: all of it."""

    def __post_init__(self) -> None:
        require_at_least("vocabulary.size", self.size, 100)
        require_at_least("vocabulary.unused", self.unused, 0)
        least = 5 + (256 if self.kind == "byte-bpe" else 50)
        require(
            self.size - self.unused >= least,
            f"vocabulary.size ({self.size}) less vocabulary.unused ({self.unused}) must be at least {least}: the 5 special tokens and "
            f"{'the 256 bytes' if self.kind == 'byte-bpe' else '50 more'} need room",
        )
        require(
            self.kind == "wordpiece" or self.chinese_characters,
            f"vocabulary.chinese_characters (False) is for vocabulary.kind wordpiece: {self.kind} never splits Chinese characters, leave it out",
        )
        if self.training_characters is not None:
            require_at_least("vocabulary.training_characters", self.training_characters, 1_000)


@dataclass(frozen=True, kw_only=True)
class NextSentence:
    """Segment pairs for next-sentence prediction (Devlin et al. 2019, A.2; google-research/bert)."""

    short_probability: float = 0.1
    """Share of documents whose target length is drawn uniformly from 2 to the maximum."""

    def __post_init__(self) -> None:
        require_share("sampling.pairs.short_probability", self.short_probability)


@dataclass(frozen=True, kw_only=True)
class SentenceOrder:
    """Consecutive segments of one document, swapped by a fair coin, for sentence-order prediction (Lan et al. 2020, 3.1)."""

    short_probability: float = 0.1
    """Share of documents whose target length is drawn uniformly from 2 to the maximum."""

    def __post_init__(self) -> None:
        require_share("sampling.pairs.short_probability", self.short_probability)


@dataclass(frozen=True, kw_only=True)
class FullSentences:
    """Full sentences in order, as many as have room, without a pair task (Liu et al. 2019, 4.2)."""

    across_documents: bool = True
    """Go on into the next document after a [SEP] (FULL-SENTENCES); False: a sequence ends with its document (DOC-SENTENCES)."""


@dataclass(frozen=True, kw_only=True)
class SingleSegment:
    """Contiguous text of one document, cut at the target length, without a pair task."""

    short_probability: float = 0.1
    """Share of documents whose target length is drawn uniformly from 2 to the maximum."""

    def __post_init__(self) -> None:
        require_share("sampling.pairs.short_probability", self.short_probability)


@dataclass(frozen=True, kw_only=True)
class TokenMasking:
    """Masked positions are drawn token by token (Devlin et al. 2019, 3.1)."""

    share: float = 0.15
    """Share of a sequence's length that is masked: max(1, round(share * length)) positions."""
    mask_share: float = 0.8
    """Share of masked positions replaced by [MASK]."""
    random_share: float = 0.1
    """Share of masked positions replaced by a random ordinary entry; the rest stay."""

    def __post_init__(self) -> None:
        require_share("sampling.masking.share", self.share)
        require_share("sampling.masking.mask_share", self.mask_share)
        require_share("sampling.masking.random_share", self.random_share)
        require(
            self.mask_share + self.random_share <= 1 + 1e-9,
            f"sampling.masking.mask_share ({self.mask_share}) and sampling.masking.random_share ({self.random_share}) must add up to at most 1",
        )


@dataclass(frozen=True, kw_only=True)
class WholeWordMasking(TokenMasking):
    """Words are drawn, and all pieces of a drawn word are masked (google-research/bert, May 2019), up to the same count."""


@dataclass(frozen=True, kw_only=True)
class SpanMasking(TokenMasking):
    """Spans of whole words are masked, and each span is replaced as one (Joshi et al. 2020, 3.1), up to the same count."""

    stop_probability: float = 0.2
    """Of the geometric distribution of a span's words: the larger, the shorter the spans."""
    longest: int = 10
    """Words of a span at most; longer ones are drawn again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.stop_probability <= 1,
            f"sampling.masking.stop_probability ({self.stop_probability}) must be above 0 and at most 1",
        )
        require_at_least("sampling.masking.longest", self.longest, 1)


@dataclass(frozen=True, kw_only=True)
class NgramMasking(TokenMasking):
    """Runs of n whole words are masked, n with a probability in proportion to 1/n (Lan et al. 2020, 4.2), up to the same count."""

    longest: int = 3
    """Words of a run at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("sampling.masking.longest", self.longest, 1)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How documents become examples."""

    maximum_length: int = 128
    """Longest sequence in tokens, [CLS] and [SEP] included."""
    pairs: NextSentence | SentenceOrder | FullSentences | SingleSegment = NextSentence()
    masking: TokenMasking | WholeWordMasking | SpanMasking | NgramMasking = TokenMasking()

    def __post_init__(self) -> None:
        require_at_least("sampling.maximum_length", self.maximum_length, 8)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A BERT encoder (Devlin et al. 2019): post-LayerNorm, erf GELU, learned positions, tanh pooler."""

    layers: int = 2
    width: int = 128
    heads: int = 2
    feed_forward: int = 512
    """Inner width of the feed-forward block."""
    maximum_positions: int = 512
    segments: int = 2
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    """Dropout of attention weights; above 0 takes the padded attention path on every device."""
    layer_norm_epsilon: float = 1e-12
    initializer_deviation: float = 0.02
    """Standard deviation of the truncated normal that weights start from."""

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "feed_forward", "maximum_positions", "segments"):
            require_at_least(f"model.{name}", getattr(self, name), 1)
        require_at_least("model.segments", self.segments, 2)
        require(
            self.width % self.heads == 0,
            f"model.width ({self.width}) must be a multiple of model.heads ({self.heads})",
        )
        require_share("model.hidden_dropout", self.hidden_dropout)
        require_share("model.attention_dropout", self.attention_dropout)
        require_above_zero("model.layer_norm_epsilon", self.layer_norm_epsilon)
        require_above_zero("model.initializer_deviation", self.initializer_deviation)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """How rows are dealt: a step is a whole number of slots, whatever the number of workers."""

    rows_per_step: int = 256
    """Rows of one optimiser update, over all workers."""
    rows_per_slot: int = 32
    """Rows of one slot, the unit dealt to workers and the largest number in memory at once."""

    def __post_init__(self) -> None:
        require_at_least("batch.rows_per_slot", self.rows_per_slot, 1)
        require_at_least("batch.rows_per_step", self.rows_per_step, 1)
        require(
            self.rows_per_step % self.rows_per_slot == 0,
            f"batch.rows_per_step ({self.rows_per_step}) must be a multiple of batch.rows_per_slot ({self.rows_per_slot})",
        )

    @property
    def slots_per_step(self) -> int:
        return self.rows_per_step // self.rows_per_slot


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
    """Gradients of the whole step are scaled to this norm at most."""

    def __post_init__(self) -> None:
        require(0 < self.learning_rate < 1, f"optimizer.learning_rate ({self.learning_rate}) must lie between 0 and 1")
        require(0 <= self.beta1 < 1, f"optimizer.beta1 ({self.beta1}) must be at least 0 and below 1")
        require(0 <= self.beta2 < 1, f"optimizer.beta2 ({self.beta2}) must be at least 0 and below 1")
        require_above_zero("optimizer.epsilon", self.epsilon)
        require_at_least("optimizer.weight_decay", self.weight_decay, 0)
        require_above_zero("optimizer.clip_norm", self.clip_norm)


@dataclass(frozen=True, kw_only=True)
class LinearDecay:
    """Linear warm-up, then linear decay to zero at the last step (Devlin et al. 2019, A.2)."""

    warmup_share: float = 0.01
    """Share of the steps that warms up (published: 10,000 of 1,000,000)."""

    def __post_init__(self) -> None:
        require_share("schedule.warmup_share", self.warmup_share)


@dataclass(frozen=True, kw_only=True)
class ConstantRate:
    """Linear warm-up, then a constant rate: the schedule under which --steps may grow."""

    warmup_steps: int = 100

    def __post_init__(self) -> None:
        require_at_least("schedule.warmup_steps", self.warmup_steps, 0)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Held-out loss with fixed pairs and masks."""

    every: int = 1_000
    """Steps between evaluations; one always follows the last step."""
    rows: int = 2_048
    """Held-out rows evaluated at most."""

    def __post_init__(self) -> None:
        require_at_least("evaluation.every", self.every, 1)
        require_at_least("evaluation.rows", self.rows, 1)


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """When training state is published, and how much of it is kept."""

    every: int = 500
    """Steps between checkpoints; one always follows the last step."""
    keep: int = 3
    """Newest checkpoints kept."""

    def __post_init__(self) -> None:
        require_at_least("checkpoint.every", self.every, 1)
        require_at_least("checkpoint.keep", self.keep, 1)


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Where metrics go."""

    uri: str | None = None
    """MLflow tracking URI; none: MLFLOW_TRACKING_URI, else SQLite at OUTPUT/mlflow.db."""
    experiment: str = "pretrain"
    every: int = 10
    """Steps between logged metrics and progress lines."""

    def __post_init__(self) -> None:
        require_at_least("tracking.every", self.every, 1)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where and how the work runs; none of it changes what is trained, but for rounding."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Autocast format; auto: bfloat16 where the hardware computes in it."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile; auto: where there is a C++ compiler and the run is long enough to pay."""
    threads: int | None = None
    """CPU threads of each worker; none: the node's cores divided by its workers."""
    table_chunks: int = 1_000_000
    """Distinct words whose WordPiece ids each data process keeps, some 200 bytes each; beyond that its table starts anew."""
    restarts: int = 8
    """Worker failures after which the run gives up."""
    address: str | None = None
    """Ray cluster to join; none: RAY_ADDRESS, else a head on this machine, else Ray starts in this process."""

    def __post_init__(self) -> None:
        require(self.threads is None or self.threads >= 1, f"placement.threads ({self.threads}) must be at least 1")
        require_at_least("placement.table_chunks", self.table_chunks, 1)
        require_at_least("placement.restarts", self.restarts, 0)


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Pretrain an encoder on raw text."""

    corpus: tuple[str, ...] = ()
    """A file, folder, glob or URL, with what must be said of it after it, as in PATH::format=NAME::column=NAME::language=CODE::weight=NUMBER; may be
    repeated. Or one folder that jobs/prepare.py has prepared. None: the built-in corpus."""
    steps: int = 1_000
    """Optimiser updates in all."""
    workers: int = 1
    """Ray Train workers; every number from 1 to the slots of a step sees the same global batches."""
    name: str | None = None
    """Name of the run; none: the preset's name and a digest of the settings, so the same command continues the same run."""
    output: str = "output"
    """Folder or URL of prepared corpora, runs and the MLflow database."""
    seed: int = 0
    prepare: Preparation = Preparation()
    vocabulary: VocabularySettings = VocabularySettings()
    sampling: Sampling = Sampling()
    model: Model = Model()
    batch: Batch = Batch()
    optimizer: AdamW = AdamW()
    evaluation: Evaluation = Evaluation()
    checkpoint: Checkpoints = Checkpoints()
    tracking: Tracking = Tracking()
    placement: Placement = Placement()
    schedule: LinearDecay | ConstantRate = LinearDecay()

    def __post_init__(self) -> None:
        require_at_least("steps", self.steps, 1)
        require_at_least("workers", self.workers, 1)
        require(0 <= self.seed < 2**63, f"seed ({self.seed}) must be a whole number from 0 to 2^63 - 1")
        require(
            self.workers <= self.batch.slots_per_step,
            f"workers ({self.workers}) must be at most the slots of a step ({self.batch.slots_per_step} = "
            f"batch.rows_per_step {self.batch.rows_per_step} / batch.rows_per_slot {self.batch.rows_per_slot}): "
            "use fewer workers or smaller slots",
        )
        require(
            self.sampling.maximum_length <= self.model.maximum_positions,
            f"sampling.maximum_length ({self.sampling.maximum_length}) must be at most model.maximum_positions ({self.model.maximum_positions})",
        )
        require(
            self.name is None or (self.name != "" and all(c.isalnum() or c in "-_." for c in self.name) and self.name[0] != "."),
            f"name ({self.name!r}) may hold letters, digits, '-', '_' and '.' only and must not start with '.'",
        )


def flatten(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted name -> value of every setting; a choice between kinds also gives its kind's name, as `schedule: LinearDecay`."""
    flat: dict[str, Any] = {}
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if dataclasses.is_dataclass(value):
            if f.type is not type(value):
                flat[prefix + f.name] = type(value).__name__
            flat |= flatten(value, f"{prefix}{f.name}.")
        else:
            flat[prefix + f.name] = list(value) if isinstance(value, tuple) else value
    return flat


def unflatten(kind: type, flat: dict[str, Any], prefix: str = "") -> Any:
    """The settings of a kind from what `flatten` made of them; names beside them are passed over."""
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        key = prefix + name
        kinds = [option for option in (hint, *get_args(hint)) if dataclasses.is_dataclass(option)]
        if kinds:
            chosen = next(option for option in kinds if len(kinds) == 1 or option.__name__ == flat[key])
            values[name] = unflatten(chosen, flat, f"{key}.")
        else:
            values[name] = tuple(flat[key]) if isinstance(flat[key], list) else flat[key]
    return kind(**values)
