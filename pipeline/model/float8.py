"""Float8 matrix products in the encoder's layers, through torchao, on GPUs that support them."""

import importlib.util

import torch
from torch import nn

from pipeline.errors import ConfigError
from pipeline.model.gpu import ADA, gpu_of, supports_matmul


def refuse_float8(device: torch.device) -> None:
    """Raise ConfigError if the device does not support float8 or torchao is not installed."""
    gpu = gpu_of(device) if device.type == "cuda" else None
    if not (gpu and supports_matmul(gpu, "float8")):
        name = f"{gpu.name}{' on ROCm' * gpu.hip}" if gpu else "a CPU"
        raise ConfigError(
            f"placement.precision (float8) needs an NVIDIA GPU of compute capability {'.'.join(map(str, ADA))} (Ada, "
            f"Hopper) or later, but this is {name}: use bfloat16"
        )
    if importlib.util.find_spec("torchao") is None:
        raise ConfigError(
            "placement.precision (float8) needs torchao: pip install 'bertstream[float8]', or use bfloat16"
        )


def to_float8(layers: nn.Module, *, emulated: bool = False) -> None:
    """Make the linear layers in `layers` multiply in float8, with dynamic tensorwise scaling (torchao).

    Parameters stay the same objects with the same dtype and names. Heads and embeddings must not be in `layers`: the
    product with the vocabulary loses the most accuracy in 8 bits. `emulated` is for tests on any device: values are
    rounded to 8 bits, but multiplied in the tensors' own dtype.
    """
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    # Padding is needed because the product for a weight's gradient sums over tokens, and the number of tokens is
    # often not a multiple of 16.
    convert_to_float8_training(layers, config=Float8LinearConfig(pad_inner_dim=True, emulate=emulated))
