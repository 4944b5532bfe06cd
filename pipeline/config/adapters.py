"""Settings for fine-tuning only some weights: adapters added to the encoder, and frozen parts of the encoder."""

from dataclasses import dataclass

from pipeline.config.checks import require, require_above_zero, require_at_least
from pipeline.config.model import Model


@dataclass(frozen=True, kw_only=True)
class NoAdapter:
    """All weights of the encoder are trained."""


@dataclass(frozen=True, kw_only=True)
class LowRank:
    """Freeze the encoder's embeddings and layers, and add a trained low-rank product of two matrices to some weight
    matrices (LoRA, Hu et al. 2021). After training, the products are merged into the weights.
    """

    rank: int = 8
    """Inner width of the product."""
    scale: float = 16.0
    """The product is multiplied by scale / rank, so that the same learning rate fits every rank (scale is the paper's
    alpha).
    """
    dropout: float = 0.0
    """Dropout on the product's input."""
    everywhere: bool = False
    """Adapt every linear layer of the encoder's layers; otherwise only query and value projections, as published."""

    def __post_init__(self) -> None:
        require_at_least("adapter.rank", self.rank, 1)
        require_above_zero("adapter.scale", self.scale)
        require(0 <= self.dropout < 1, f"adapter.dropout ({self.dropout}) must be at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """Train only the LayerNorms and new narrow two-layer networks, one after each attention block and each feed-forward
    block (Houlsby et al. 2019). These networks cannot be merged into the encoder's weights.
    """

    width: int = 64
    """Inner width of the network (published: 8, 64 or 256, by task)."""

    def __post_init__(self) -> None:
        require_at_least("adapter.width", self.width, 1)


Adapter = NoAdapter | LowRank | Bottleneck


@dataclass(frozen=True, kw_only=True)
class Freeze:
    """Parts of the encoder that are not trained. With frozen embeddings, the backward pass ends at the lowest trained
    layer.
    """

    embeddings: bool = False
    """Freeze the embeddings of words, positions (DeBERTa: also the relative ones) and segments, and their LayerNorm."""
    layers: int = 0
    """Number of frozen layers, counted from the lowest; their adapters are frozen too, and with all layers the
    LayerNorm after them. In ALBERT, whose layers share their weights, this must be 0 or the number of all layers.
    """

    def __post_init__(self) -> None:
        require_at_least("freeze.layers", self.layers, 0)


def require_freezable(layers: int, model: Model) -> None:
    """Raise ConfigError if only some layers would be frozen, but all layers share their weights."""
    require(
        layers in (0, model.layers) or not model.shares_layers,
        f"freeze.layers ({layers}) must be 0 or {model.layers} for model.family {model.family}: its {model.layers} "
        "layers share their weights",
    )
