"""Objective of pretraining: the loss that training minimises."""

from dataclasses import dataclass, replace

from pipeline.config.checks import require, require_above_zero
from pipeline.config.model import Model


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Predict masked tokens; if rows are sentence pairs, also predict the pair's label (Devlin et al. 2019; Liu et al.
    2019).
    """


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """Predict for each token whether a small generator replaced it (ELECTRA, Clark et al. 2020).

    The generator replaces the tokens at masked positions. It is trained at the same time to predict masked tokens, and
    both models share the embeddings.
    """

    weight: float = 50.0
    """Weight of the loss on replaced tokens; the generator's loss has weight 1 (Clark et al. 2020, table 6)."""
    generator_share: float = 0.25
    """Width of the generator as a share of the model's width; its heads and feed-forward width have the same share."""

    def __post_init__(self) -> None:
        require_above_zero("objective.weight", self.weight)
        require(
            0 < self.generator_share <= 1,
            f"objective.generator_share ({self.generator_share}) must be above 0 and at most 1: with a generator wider "
            "than the discriminator, replaced tokens are too hard to detect (Clark et al. 2020, figure 3)",
        )

    def generator_of(self, model: Model) -> Model:
        """Return the settings of a model's generator: narrower than the model, with the same depth and the same
        embeddings.

        Raises ConfigError if the generator's width is not a multiple of its heads.
        """
        share = self.generator_share
        width, heads = round(share * model.width), max(1, round(share * model.heads))
        require(
            width >= heads and width % heads == 0,
            f"objective.generator_share ({share}) gives a generator of width {width} with {heads} heads, but the width "
            f"must be a multiple of the heads: model.width is {model.width}, model.heads {model.heads}; "
            "choose another share",
        )
        return replace(
            model,
            width=width,
            heads=heads,
            feed_forward=max(1, round(share * model.feed_forward)),
            embedding_width=None if model.embedded_width == width else model.embedded_width,
        )


Objective = Masked | Replaced
