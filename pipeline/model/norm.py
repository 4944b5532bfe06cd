"""LayerNorm that keeps the number format of the residual sums."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LayerNorm(nn.LayerNorm):
    """LayerNorm with an output in the number format of its input. torch's own gives float32 under autocast.

    For an input in bfloat16, mean and variance are still computed in float32, and so are the weights that are trained.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dtype == self.weight.dtype:
            return super().forward(input)
        bias = None if self.bias is None else self.bias.to(input.dtype)
        with torch.autocast(input.device.type, enabled=False):
            return F.layer_norm(input, self.normalized_shape, self.weight.to(input.dtype), bias, self.eps)
