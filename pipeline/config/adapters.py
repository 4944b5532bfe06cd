"""Settings of fine-tuning a few weights only: what is added to the encoder, and what of it stays as it is."""

from dataclasses import dataclass

from pipeline.config.checks import require, require_above_zero, require_at_least


@dataclass(frozen=True, kw_only=True)
class NoAdapter:
    """All weights of the encoder are trained."""


@dataclass(frozen=True, kw_only=True)
class LowRank:
    """Train a product of two thin matrices beside frozen ones, merged into them at the end (LoRA, Hu et al. 2021)."""

    rank: int = 8
    """Inner width of the product."""
    scale: float = 16.0
    """The product counts scale / rank times (alpha): another rank then needs no other learning rate."""
    dropout: float = 0.0
    """Dropout of what the product reads."""
    everywhere: bool = False
    """Beside every linear layer of the encoder's layers; else beside the projections to queries and values alone, as
    published.
    """

    def __post_init__(self) -> None:
        require_at_least("adapter.rank", self.rank, 1)
        require_above_zero("adapter.scale", self.scale)
        require(0 <= self.dropout < 1, f"adapter.dropout ({self.dropout}) must be at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """Train a narrow two-layer network after each attention and each feed-forward, and the LayerNorms (Houlsby et al.
    2019); it cannot be merged.
    """

    width: int = 64
    """Inner width of the network (published: 8, 64 or 256, by task)."""

    def __post_init__(self) -> None:
        require_at_least("adapter.width", self.width, 1)


Adapter = NoAdapter | LowRank | Bottleneck


@dataclass(frozen=True, kw_only=True)
class Freeze:
    """Parts of the encoder, counted from below, that are not trained; where the embeddings are among them, nothing is
    computed backwards through these.
    """

    embeddings: bool = False
    """Words, positions, segments and their LayerNorm."""
    layers: int = 0
    """Number of the lowest layers that are frozen, with their adapters."""

    def __post_init__(self) -> None:
        require_at_least("freeze.layers", self.layers, 0)
