"""Load the encoders whose vectors are scored: the model, an untrained copy of it, and a model to compare with."""

from dataclasses import replace

import torch

from pipeline.config.measurements import VectorScore
from pipeline.embed.loaded import Device, LoadedEncoder
from pipeline.embed.loaded import load as load_encoder
from pipeline.model.encoder import Encoder, initialize
from pipeline.train.hardware import required_device

MODEL, UNTRAINED, AGAINST = "model", "untrained", "against"
SEED = 0
"""Seed of the untrained encoder's weights."""


def load_encoders(config: VectorScore) -> dict[str, LoadedEncoder]:
    """Return the encoders UNTRAINED, MODEL and, if config.against is set, AGAINST. Their vectors have length 1.

    Raises CheckpointError for a location without an encoder.
    """
    device: Device = "cuda" if required_device(config.placement).type == "cuda" else "cpu"
    model = scaled(load_encoder(config.checkpoint, device))
    encoders = {UNTRAINED: untrained(model), MODEL: model}
    return encoders if config.against is None else encoders | {AGAINST: scaled(load_encoder(config.against, device))}


def scaled(model: LoadedEncoder) -> LoadedEncoder:
    """Return the model with a recipe that scales vectors to length 1, so that dot products are cosines."""
    return replace(model, recipe=replace(model.recipe, normalized=True))


def untrained(model: LoadedEncoder) -> LoadedEncoder:
    """Return a copy of the model whose encoder has random weights. Vocabulary and recipe stay the same."""
    encoder = Encoder(model.settings, model.encoder.embeddings.words.num_embeddings)
    initialize(encoder, model.settings.initializer_deviation, torch.Generator().manual_seed(SEED))
    return replace(model, encoder=encoder.to(model.device).eval(), pretrained=None, tuned=None)


def named(config: VectorScore) -> str:
    """Return a line that says which models the names in a table stand for."""
    against = "" if config.against is None else f"; {AGAINST}: {config.against}"
    return f"{MODEL}: {config.checkpoint}; {UNTRAINED}: the same encoder with random weights{against}"
