"""Keep the weights of linear layers in the number format of autocast, which would cast them again for each batch."""

import torch
from torch import nn

CAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""Precision -> number format to which autocast casts the weights of linear layers."""


def cast_once(layers: nn.Module, dtype: torch.dtype) -> None:
    """Cast the linear layers in `layers`. Under autocast to `dtype`, their outputs stay the same, bit by bit.

    Afterwards the layers are for inference only. Heads and embeddings must not be in `layers`, because tied weights are
    also used in float32.
    """
    for module in layers.modules():
        if isinstance(module, nn.Linear):
            module.to(dtype)
