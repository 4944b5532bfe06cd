"""Products of the encoder's layers in 8-bit floating point, through torchao, on GPUs that have them."""

import importlib.util

import torch
from torch import nn

from pipeline.errors import ConfigError
from pipeline.model.gpu import ADA, gpu_of, supports_matmul


def refuse_float8(device: torch.device) -> None:
    """Raise ConfigError where the device has no 8-bit products or torchao is not installed."""
    gpu = gpu_of(device) if device.type == "cuda" else None
    if not (gpu and supports_matmul(gpu, "float8")):
        name = f"{gpu.name}{' on ROCm' * gpu.hip}" if gpu else "a CPU"
        raise ConfigError(
            f"placement.precision (float8) needs an NVIDIA GPU of compute capability {'.'.join(map(str, ADA))} (Ada, Hopper) or later, this is {name}: use bfloat16"
        )
    if importlib.util.find_spec("torchao") is None:
        raise ConfigError(
            "placement.precision (float8) needs torchao: pip install 'bertstream[float8]', or use bfloat16"
        )


def to_float8(layers: nn.Module, *, emulated: bool = False) -> None:
    """Have the linear layers in `layers` multiply in float8 from now on, each tensor scaled by its largest value as it is (torchao's "tensorwise").

    Parameters stay the same objects, in their own type and under their names. Heads and embeddings are left out: the vocabulary's
    product is where 8 bits cost most. `emulated` rounds to 8 bits and multiplies in the tensors' own type, on any device, for tests.
    """
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    # The number of tokens, a dimension of the weights' gradients, is no multiple of 16: it is filled up.
    convert_to_float8_training(layers, config=Float8LinearConfig(pad_inner_dim=True, emulate=emulated))
