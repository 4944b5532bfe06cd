"""Settings of the encoder."""

from dataclasses import dataclass

from pipeline.config.checks import require, require_above_zero, require_at_least, require_share


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
