"""Int8 matrix products in the encoder's layers, on CPUs. Weights have a scale per output; inputs have a scale and a
middle per token.

Shapes: T tokens, I inputs, O outputs.
"""

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError

LARGEST = 127
"""Largest int8 number that is used; -128 is not, so that the range is symmetric."""
INT8_SCHEME = "int8, asymmetric inputs"
"""Scheme of rounding; vectors of another scheme do not belong into the same folder."""
SMALLEST_SCALE = 1e-12
"""Smallest scale. It avoids a division by zero for a row of zeros."""


def refuse_int8(device: torch.device) -> None:
    """Raise ConfigError if the device is not a CPU."""
    if device.type != "cpu":
        raise ConfigError(
            f"placement.precision (int8) needs a CPU, but this process sees a GPU ({device.type}): use bfloat16, or "
            "placement.device cpu"
        )


class Int8Linear(nn.Module):
    """A linear layer that multiplies in int8 and adds up in int32. It has no gradient.

    Each token's scale and middle depend on this token alone, so a text's vector does not depend on the other texts of
    its batch. The weights are rounded once (Dettmers et al. 2022, "LLM.int8()", section 2.1: vector-wise quantization).
    """

    weight_IO: Tensor
    scale_O: Tensor
    sum_O: Tensor
    """Sum of each output's rounded weights, which is multiplied by the middle of a token's inputs."""
    bias_O: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight_OI = linear.weight.detach()
        scale_O1 = (weight_OI.abs().amax(1, keepdim=True) / LARGEST).clamp_(min=SMALLEST_SCALE)
        rounded_OI = (weight_OI / scale_O1).round_()
        self.register_buffer("weight_IO", rounded_OI.to(torch.int8).t().contiguous())
        self.register_buffer("scale_O", scale_O1.squeeze(1))
        self.register_buffer("sum_O", (rounded_OI * scale_O1).sum(1))
        self.register_buffer("bias_O", self.sum_O.new_zeros(()) if linear.bias is None else linear.bias.detach())

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the outputs (..., O) of inputs (..., I), float32."""
        inputs_TI, scale_T1, middle_T1 = rounded(hidden.flatten(0, -2))
        outputs_TO = torch._int_mm(inputs_TI, self.weight_IO) * scale_T1
        outputs_TO = torch.addcmul(self.bias_O, outputs_TO, self.scale_O).addcmul_(middle_T1, self.sum_O)
        return outputs_TO.unflatten(0, hidden.shape[:-1])


def rounded(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows (R, C) as int8 (R, C), and the scale and the middle of each row, float32 (R, 1).

    A row is about int8 times scale, plus middle. The middle is that of its range, because activations are often all
    above a small negative number.
    """
    least, most = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)  # many times as fast as torch.aminmax
    middles, scales = (least + most) / 2, ((most - least) / (2 * LARGEST)).clamp_(min=SMALLEST_SCALE)
    return (rows - middles).mul_(scales.reciprocal()).round_().to(torch.int8), scales, middles


def to_int8(layers: nn.Module) -> None:
    """Replace the linear layers in `layers` by Int8Linear. Heads and embeddings must not be in `layers`."""
    for module in list(layers.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
