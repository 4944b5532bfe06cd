"""Build the module that a pretraining run trains, with its teacher, on a device."""

import torch
from torch import Tensor

from pipeline.config.jobs import Pretrain
from pipeline.errors import ConfigError
from pipeline.model.encoder import encoders_in
from pipeline.model.float8 import to_float8
from pipeline.objectives.pretraining import Teacher
from pipeline.objectives.table import Pretraining, build_objective

HOPPER = 9
"""Major compute capability of Hopper GPUs."""


def build_module(
    config: Pretrain,
    vocabulary_size: int,
    device: torch.device,
    precision: str,
    teacher: Teacher | None = None,
) -> Pretraining:
    """Return the module of a run with random weights, drawn from its seed, and with its teacher.

    `precision` is the number format of matrix products, as `chosen_precision` returns it. Raises ConfigError if it is
    float32 and residual sums should be in bfloat16, or if the kernels of placement.flash_attention are missing.
    """
    if config.placement.flash_attention == "FA3":
        _require_flash_attention_3(config, device, precision)
        _activate_flash_attention_3()
    if config.placement.residual == "bfloat16" and precision == "float32":
        raise ConfigError(
            "placement.residual bfloat16 needs hardware that multiplies in bfloat16, and this device computes in "
            "float32: leave placement.residual out, or set placement.precision to bfloat16"
        )
    torch.manual_seed(config.seed)
    module = build_objective(config.objective, config.sampling, config.model, vocabulary_size).to(device)
    if config.objective.teacher_gives:
        assert teacher is not None
        module.learn_from(teacher.load(device))
    for encoder in encoders_in(module):
        if precision == "float8":
            to_float8(encoder.layers)
        encoder.recompute = config.placement.recompute
        encoder.recompute_products = config.placement.recompute_products
        encoder.narrow_residual = config.placement.residual == "bfloat16"
    return module


@torch.no_grad()
def set_word_embeddings(module: Pretraining, words: Tensor) -> None:
    """Set a model's word embeddings to `words` (V, width); where a row of `words` is zero, keep the model's row."""
    table = module.words
    words = words.to(table)
    table.copy_(torch.where(words.any(1, keepdim=True), words, table))


def _require_flash_attention_3(config: Pretrain, device: torch.device, precision: str) -> None:
    """Raise ConfigError if the run's attention cannot use the kernels of flash attention 3."""
    problem = None
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] != HOPPER:
        problem = "a Hopper GPU, and this run has none"
    elif config.model.attention_dropout > 0:
        problem = f"attention without dropout, but model.attention_dropout is {config.model.attention_dropout}"
    elif precision not in ("bfloat16", "float16", "float8"):
        problem = f"products in bfloat16 or float16, but this run computes in {precision}"
    if problem:
        raise ConfigError(f"placement.flash_attention (FA3) needs {problem}: leave placement.flash_attention out")


def _activate_flash_attention_3() -> None:
    """Let torch's attention over flat batches call the kernels of flash attention 3, in this process."""
    # Imported here because the import also loads torch's compiler.
    from torch.nn.attention import activate_flash_attention_impl

    try:
        activate_flash_attention_impl("FA3")
    except (ImportError, RuntimeError, ValueError) as error:  # not installed, without kernels, unknown to this torch
        raise ConfigError(
            f"placement.flash_attention (FA3) cannot be used ({error}): install flash_attn_interface on the workers, "
            "or leave placement.flash_attention out"
        ) from error
