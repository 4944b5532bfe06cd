"""Encoder that is adapted, as it is before: its location, and what decides the settings of its training."""

from dataclasses import dataclass
from typing import Literal

from pipeline import api
from pipeline.config.model import Model
from pipeline.embed.model import digest_of
from pipeline.errors import CheckpointError
from pipeline.text.vocabulary import Vocabulary

HEAD = "masked_token_head"
"""Module that predicts masked words."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Encoder that is adapted."""

    location: str
    """Location of its files; for a run, its newest checkpoint."""
    digest: str
    """Beginning of the SHA-256 of its config, weights and vocabulary."""
    model: Model
    vocabulary: Vocabulary
    pooling: Literal["mean", "cls"]
    """Pooling of its vectors; mean for an encoder with another one, which training does not have."""
    fills_blanks: bool
    """Whether it has a head for masked words. ELECTRA's is that of its generator, which is not adapted."""


def read_start(init: str) -> Start:
    """Load the encoder at a location and describe it.

    Raises ConfigError or CheckpointError if there is none, or if its vocabulary does not fit.
    """
    try:
        loaded = api.load(init, "cpu")
    except CheckpointError as error:
        raise CheckpointError(f"init {error}") from error
    return Start(
        location=loaded.location,
        digest=digest_of(loaded),
        model=loaded.settings,
        vocabulary=loaded.vocabulary,
        pooling="cls" if loaded.recipe.pooling == "cls" else "mean",
        fills_blanks=loaded.pretrained is not None and HEAD not in loaded.lacks and loaded.settings.family != "electra",
    )
