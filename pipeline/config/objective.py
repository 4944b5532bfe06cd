"""Objective of pretraining: the loss that training minimises."""

from dataclasses import dataclass, replace

from pipeline.config.checks import require, require_above_zero
from pipeline.config.model import Model


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Predict masked tokens, and where rows are pairs also the pair's label (Devlin et al. 2019; Liu et al. 2019)."""


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """Tell which tokens a small generator replaced at masked positions (ELECTRA, Clark et al. 2020).

    The generator learns to predict masked tokens at the same time; the embeddings are shared.
    """

    weight: float = 50.0
    """Weight of the loss of replaced tokens, relative to the generator's (Clark et al. 2020, table 6)."""
    generator_share: float = 0.25
    """Width of the generator as a share of the model's; its heads and feed-forward width shrink alike."""

    def __post_init__(self) -> None:
        require_above_zero("objective.weight", self.weight)
        require(
            0 < self.generator_share <= 1,
            f"objective.generator_share ({self.generator_share}) must lie above 0 and be at most 1: a generator wider "
            "than the discriminator is too hard to tell from the text (Clark et al. 2020, figure 3)",
        )

    def generator_of(self, model: Model) -> Model:
        """Return the settings of a model's generator: as deep, with the same embeddings, narrower.

        Raises ConfigError where the share of the width is no multiple of the share of the heads.
        """
        share = self.generator_share
        width, heads = round(share * model.width), max(1, round(share * model.heads))
        require(
            width >= heads and width % heads == 0,
            f"objective.generator_share ({share}) gives a generator of width {width} with {heads} heads, and the width "
            f"must be a multiple of the heads: model.width is {model.width}, model.heads {model.heads}",
        )
        return replace(
            model,
            width=width,
            heads=heads,
            feed_forward=max(1, round(share * model.feed_forward)),
            embedding_width=None if model.embedded_width == width else model.embedded_width,
        )


Objective = Masked | Replaced
