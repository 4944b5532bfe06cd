"""Build the module that a pretraining run trains, with its teacher, on a device."""

import torch

from pipeline.config.jobs import Pretrain
from pipeline.errors import ConfigError
from pipeline.model.encoder import encoders_in
from pipeline.model.float8 import to_float8
from pipeline.objectives.distilled import DistilledTokens
from pipeline.objectives.distilled_vectors import VectorStudent, VectorTeacher
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.train.initial import Initial
from pipeline.train.teacher import load_teacher


def build_module(
    config: Pretrain,
    vocabulary_size: int,
    device: torch.device,
    precision: str,
    teacher: Initial | None = None,
    vector_teacher: VectorTeacher | None = None,
) -> Pretraining:
    """Return the module of a run with random weights, drawn from its seed, and with its teacher.

    `precision` is the number format of matrix products, as `chosen_precision` returns it. Raises ConfigError if it is
    float32 and residual sums should be in bfloat16, or if the kernels of placement.flash_attention are missing.
    """
    if config.placement.flash_attention == "FA3":
        _activate_flash_attention_3(device)
    if config.placement.residual == "bfloat16" and precision == "float32":
        raise ConfigError(
            "placement.residual bfloat16 needs hardware that multiplies in bfloat16, and this device computes in "
            "float32: leave placement.residual out, or set placement.precision to bfloat16"
        )
    torch.manual_seed(config.seed)
    module = build_objective(config.objective, config.sampling, config.model, vocabulary_size).to(device)
    if isinstance(module, DistilledTokens):
        assert teacher is not None
        module.learn_from(load_teacher(teacher, device))
    if isinstance(module, VectorStudent):
        assert vector_teacher is not None
        module.learn_from(vector_teacher.load(device))
    for encoder in encoders_in(module):
        if precision == "float8":
            to_float8(encoder.layers)
        encoder.recompute = config.placement.recompute
        encoder.recompute_products = config.placement.recompute_products
        encoder.narrow_residual = config.placement.residual == "bfloat16"
    return module


def _activate_flash_attention_3(device: torch.device) -> None:
    """Let torch's attention over flat batches call the kernels of flash attention 3, in this process."""
    # Imported here because the import also loads torch's compiler.
    from torch.nn.attention import activate_flash_attention_impl

    if device.type != "cuda":
        raise ConfigError("placement.flash_attention (FA3) needs a GPU, and this run has none: leave it out")
    try:
        activate_flash_attention_impl("FA3")
    except (ImportError, RuntimeError, ValueError) as error:  # not installed, without kernels, unknown to this torch
        raise ConfigError(
            f"placement.flash_attention (FA3) cannot be used ({error}): install flash_attn_interface on the workers, "
            "or leave placement.flash_attention out"
        ) from error
