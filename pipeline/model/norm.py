"""The norm of all parts of a model, and a LayerNorm that keeps the number format of the residual sums."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.config.model import Model


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


def make_norm(settings: Model, width: int, *, keeps_format: bool = False) -> nn.LayerNorm:
    """Return a norm over the last `width` numbers, with the settings' epsilon, and a bias if they have biases.

    With `keeps_format`, its output has the number format of its input. Otherwise it is float32 under autocast.
    """
    kind = LayerNorm if keeps_format else nn.LayerNorm
    return kind(width, eps=settings.layer_norm_epsilon, bias=settings.bias)
