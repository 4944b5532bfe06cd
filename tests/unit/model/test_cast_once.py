"""Weights that are cast once: an encoder of each family gives the same states as with autocast's casts."""

from pathlib import Path

import torch
from torch import nn

from pipeline.batch import Batch
from pipeline.config.jobs import Pretrain
from pipeline.model.cast_once import CAST, cast_once
from pipeline.model.encoder import encoders_in


def test_states_are_the_same_bit_by_bit(training, family_config: Pretrain) -> None:
    batch: Batch = training.work(family_config, Path("unused"), {}).heldout[0]
    for dtype in CAST.values():
        *_, encoder = encoders_in(training.module(family_config).eval())
        with torch.inference_mode(), torch.autocast("cpu", dtype=dtype):
            wanted = encoder(batch)
            cast_once(encoder.layers, dtype)
            found = encoder(batch)
        linears = [module for module in encoder.layers.modules() if isinstance(module, nn.Linear)]
        assert linears and {part.dtype for linear in linears for part in linear.parameters()} == {dtype}
        assert torch.equal(found, wanted)
