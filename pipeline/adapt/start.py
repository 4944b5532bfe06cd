"""The encoder before it is adapted: its location, and the facts that determine the settings of its training."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require
from pipeline.config.model import Model
from pipeline.embed.loaded import load as load_encoder
from pipeline.embed.model import digest_of
from pipeline.errors import CheckpointError
from pipeline.saved.prompts import usual_prompts
from pipeline.text.vocabulary import Vocabulary

HEAD = "masked_token_head"
"""Module that predicts masked words."""


@dataclass(frozen=True, kw_only=True)
class AdaptStart:
    """The encoder before it is adapted."""

    location: str
    """Location of its files; for a run, its newest checkpoint."""
    digest: str
    """Beginning of the SHA-256 of its config, weights and vocabulary."""
    model: Model
    vocabulary: Vocabulary
    pooling: Literal["mean", "cls"]
    """Pooling of the contrastive training; mean if `own_pooling` is neither mean nor cls."""
    own_pooling: str
    """Pooling of its vectors."""
    prompts: tuple[str | None, str | None]
    """Its prompts for queries and for documents; None for a prompt that it does not have."""
    reads: int
    """Maximum tokens of a text that it reads for a vector."""
    fills_blanks: bool
    """Whether it has a head for masked words. False for ELECTRA: only its generator has one, and is not adapted."""


def read_start(init: str) -> AdaptStart:
    """Load the encoder at a location and describe it.

    Raises ConfigError or CheckpointError if there is none, if its vocabulary does not fit, or if it lower-cases texts
    for a cased vocabulary, which training does not.
    """
    try:
        loaded = load_encoder(init, "cpu")
    except CheckpointError as error:
        raise CheckpointError(f"init {error}") from error
    require(
        not loaded.recipe.lowercase or loaded.vocabulary.lowercase,
        f"init ({init}) has do_lower_case true before a cased vocabulary, which training does not support: set "
        "do_lower_case to false in its sentence_bert_config.json, or choose another encoder",
    )
    return AdaptStart(
        location=loaded.location,
        digest=digest_of(loaded),
        model=loaded.settings,
        vocabulary=loaded.vocabulary,
        pooling="cls" if loaded.recipe.pooling == "cls" else "mean",
        own_pooling=loaded.recipe.pooling,
        prompts=usual_prompts(loaded.recipe.prompts),
        reads=loaded.embedding_length,
        fills_blanks=loaded.pretrained is not None and HEAD not in loaded.lacks and loaded.settings.family != "electra",
    )
