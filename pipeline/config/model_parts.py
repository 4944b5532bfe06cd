"""Settings of an encoder's parts that differ in kind between architectures: positions, attention and pooler."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_above_zero, require_at_least
from pipeline.config.needs import EAGER, RECORDABLE, Choice

Inner = Literal["plain", "geglu"]
Block = Literal["post-norm", "pre-norm"]


@dataclass(frozen=True, kw_only=True)
class LearnedPositions:
    """A learned embedding of each position, added to the word embedding (Devlin et al. 2019)."""

    first: int = 0
    """Row of the position embeddings for the first position of a sequence. In RoBERTa, this row is the id of the
    padding entry plus 1, and earlier rows are unused.
    """

    def __post_init__(self) -> None:
        require_at_least("model.positions.first", self.first, 0)


@dataclass(frozen=True, kw_only=True)
class RotaryPositions:
    """Rotations of queries and keys by angles that grow with the position (Su et al. 2021). They have no weights."""

    theta: float = 10_000.0
    """Base of the angles: pair i of a head of width D turns by theta^(-2 i / D) per token."""
    local_theta: float | None = None
    """Base of the angles in layers with local attention. Default: model.positions.theta."""

    def __post_init__(self) -> None:
        require_above_zero("model.positions.theta", self.theta)
        if self.local_theta is not None:
            require_above_zero("model.positions.local_theta", self.local_theta)


@dataclass(frozen=True, kw_only=True)
class NoPositions:
    """No positions in the model's input: if they do not enter its attention either, it reads a text as an unordered set
    of tokens.
    """


@dataclass(frozen=True, kw_only=True)
class FullAttention(Choice):
    """Each token attends to all tokens of its sequence."""

    offers = (RECORDABLE,)


def _require_window(window: int) -> None:
    """Raise ConfigError if the width of a window is not an even number above 0."""
    require_at_least("model.attention.window", window, 2)
    require(
        window % 2 == 0,
        f"model.attention.window ({window}) must be even: half of it is on each side of a token",
    )


@dataclass(frozen=True, kw_only=True)
class LocalAttention(Choice):
    """In most layers, each token attends only to near tokens; every few layers, it attends to all (Warner et al. 2024).

    Time and memory of a local layer grow in proportion to the length of a sequence.
    """

    window: int = 128
    """Width of the window: a token attends to itself and to window / 2 tokens on each side."""
    global_every: int = 3
    """Layers 0, global_every, 2 * global_every and so on attend to all tokens."""
    offers = (RECORDABLE,)

    def __post_init__(self) -> None:
        _require_window(self.window)
        require_at_least("model.attention.global_every", self.global_every, 1)

    @property
    def reach(self) -> int:
        """Tokens on each side that a token attends to in a local layer."""
        return self.window // 2


@dataclass(frozen=True, kw_only=True)
class GlobalLocalAttention(Choice):
    """Each token attends to near tokens and to a few global tokens of its sequence; global tokens attend to all tokens
    of their sequence, with projections of their own (Longformer, Beltagy et al. 2020).

    Global tokens depend on the use: the first token in text classifiers, the question in question answering, none
    elsewhere. Time and memory grow in proportion to the length of a sequence.
    """

    window: int = 512
    """Width of the window: a token attends to itself and to window / 2 tokens on each side."""

    def __post_init__(self) -> None:
        _require_window(self.window)

    @property
    def reach(self) -> int:
        """Tokens on each side that a token attends to."""
        return self.window // 2


@dataclass(frozen=True, kw_only=True)
class DisentangledAttention(Choice):
    """Full attention whose scores also depend on the distance of two tokens: content to position and position to
    content, with projections of their own for positions (DeBERTa, He et al. 2021).

    It uses no flash kernel.
    """

    maximum_distance: int | None = None
    """Longer distances share one embedding. Default: model.maximum_positions."""

    def __post_init__(self) -> None:
        if self.maximum_distance is not None:
            require_at_least("model.attention.maximum_distance", self.maximum_distance, 1)


@dataclass(frozen=True, kw_only=True)
class BucketedAttention(Choice):
    """Disentangled attention with logarithmic buckets of distances: positions have a LayerNorm, and use the projections
    of the words (DeBERTa v2 and v3, He et al. 2021, 2023).

    It uses no flash kernel.
    """

    buckets: int = 256
    """Relative positions in each direction: half of them for a distance each, the others for longer distances."""
    maximum_distance: int | None = None
    """Longer distances share one embedding. Default: model.maximum_positions."""

    def __post_init__(self) -> None:
        require_at_least("model.attention.buckets", self.buckets, 4)
        if self.maximum_distance is not None:
            self.require_distance("model.attention.maximum_distance", self.maximum_distance)

    def require_distance(self, name: str, value: int) -> None:
        """Raise ConfigError if the setting `name` leaves no distances for the logarithmic buckets."""
        require(
            value > self.buckets // 2 + 1,
            f"{name} ({value}) must be above model.attention.buckets ({self.buckets}) / 2 + 1: lower the buckets",
        )


@dataclass(frozen=True, kw_only=True)
class BlockSparseAttention(Choice):
    """Attention between blocks of tokens (BigBird, Zaheer et al. 2020). A block attends to itself, both neighbours, the
    first and the last block, and some random blocks; the first and the last block attend to all tokens.

    Sequences of up to (5 + 2 * random_blocks) * block_size tokens have full attention, as published. Time and memory
    grow in proportion to the length of a longer sequence.
    """

    block_size: int = 64
    """Tokens per block. The last block of a sequence may have fewer."""
    random_blocks: int = 3
    """Random blocks that a block attends to. They differ between heads and layers, and never change."""
    needs = (EAGER,)
    eager = "groups sequences by their lengths"

    def __post_init__(self) -> None:
        require_at_least("model.attention.block_size", self.block_size, 1)
        require_at_least("model.attention.random_blocks", self.random_blocks, 0)

    @property
    def longest_full(self) -> int:
        """Tokens of the longest sequence with full attention."""
        return (5 + 2 * self.random_blocks) * self.block_size

    def require_whole_blocks(self, maximum_positions: int) -> None:
        """Raise ConfigError if a sequence, filled up to whole blocks, could be longer than `maximum_positions`."""
        require(
            maximum_positions <= self.longest_full or maximum_positions % self.block_size == 0,
            f"model.maximum_positions ({maximum_positions}) must be a multiple of model.attention.block_size "
            f"({self.block_size}), because sequences of more than {self.longest_full} tokens have whole blocks",
        )


@dataclass(frozen=True, kw_only=True)
class EncoderPooler:
    """A tanh layer on the first token, pretrained with the label of sentence pairs and used by sequence classifiers
    (Devlin et al. 2019).
    """


@dataclass(frozen=True, kw_only=True)
class ClassifierLayer:
    """No pretrained pooler: each sequence classifier has its own layer on the first token (Liu et al. 2019, Clark et
    al. 2020).
    """

    activation: Literal["tanh", "gelu", "gelu_new", "relu"] = "tanh"
    drops_input: bool = True
    """Whether dropout also applies to the layer's input; it always applies to the layer's output."""
    normalises: bool = False
    """Whether a LayerNorm follows the activation."""
    on_all: bool = False
    """Whether heads of all tasks have the layer: on the mean of states, and on each token of tags and answers, too."""


Positions = LearnedPositions | RotaryPositions | NoPositions
Attention = (
    FullAttention
    | LocalAttention
    | GlobalLocalAttention
    | DisentangledAttention
    | BucketedAttention
    | BlockSparseAttention
)
AnyFamilyAttention = FullAttention | LocalAttention | BlockSparseAttention
"""Attention without weights beyond those of BERT, which ablations may give to a BERT."""
ReplacedHead = Literal["token", "with-first-token"]
"""Input of a head for replaced tokens: each token's state, or its sum with the first token's state."""
