"""Compute model FLOPs utilisation of a training step (Chowdhery et al. 2022, appendix B). Padding does not count."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config.model import Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.errors import ConfigError

BACKWARD = 3
"""Cost of a training step, in units of one forward pass. The backward pass costs 2 units. Recomputed activations do not
count.
"""

TERA = 1e12
PEAKS: dict[str, dict[str, float]] = {
    # NVIDIA H100 Tensor Core GPU datasheet (2023). Here and below, figures "with sparsity" are halved.
    "H100 SXM": {"float32": 67 * TERA, "tf32": 494.7 * TERA, "bfloat16": 989.4 * TERA, "float8": 1978.9 * TERA},
    "H100 PCIe": {"float32": 51 * TERA, "tf32": 378 * TERA, "bfloat16": 756 * TERA, "float8": 1513 * TERA},
    "H100 NVL": {"float32": 60 * TERA, "tf32": 417.7 * TERA, "bfloat16": 835.5 * TERA, "float8": 1670.5 * TERA},
    # NVIDIA H200 Tensor Core GPU datasheet (2024).
    "H200 SXM": {"float32": 67 * TERA, "tf32": 494.7 * TERA, "bfloat16": 989.4 * TERA, "float8": 1978.9 * TERA},
    "H200 NVL": {"float32": 60 * TERA, "tf32": 417.7 * TERA, "bfloat16": 835.5 * TERA, "float8": 1670.5 * TERA},
    # NVIDIA GH200 Grace Hopper Superchip datasheet (2023).
    "GH200": {"float32": 67 * TERA, "tf32": 494.7 * TERA, "bfloat16": 989.5 * TERA, "float8": 1979 * TERA},
    # NVIDIA H20 product brief (2024), dense figures.
    "H20": {"float32": 44 * TERA, "tf32": 74 * TERA, "bfloat16": 148 * TERA, "float8": 296 * TERA},
    # NVIDIA Blackwell datasheet (2025), one GPU of HGX B200 and of GB200 NVL72.
    "B200": {"float32": 75 * TERA, "tf32": 1100 * TERA, "bfloat16": 2250 * TERA, "float8": 4500 * TERA},
    "GB200": {"float32": 80 * TERA, "tf32": 1250 * TERA, "bfloat16": 2500 * TERA, "float8": 5000 * TERA},
    # NVIDIA A100 Tensor Core GPU datasheet (2021): the SXM and PCIe boards have the same peaks.
    "A100": {"float32": 19.5 * TERA, "tf32": 156 * TERA, "bfloat16": 312 * TERA},
    # NVIDIA A10 and A30 datasheets (2021); NVIDIA A40 datasheet (2020); NVIDIA A10G datasheet, published by AWS (2022).
    "A10": {"float32": 31.2 * TERA, "tf32": 62.5 * TERA, "bfloat16": 125 * TERA},
    "A10G": {"float32": 31.5 * TERA, "tf32": 35 * TERA, "bfloat16": 70 * TERA},
    "A30": {"float32": 10.3 * TERA, "tf32": 82 * TERA, "bfloat16": 165 * TERA},
    "A40": {"float32": 37.4 * TERA, "tf32": 74.8 * TERA, "bfloat16": 149.7 * TERA},
    # NVIDIA L4 and L40S datasheets (2023), NVIDIA L40 datasheet (2022).
    "L4": {"float32": 30.3 * TERA, "tf32": 60 * TERA, "bfloat16": 121 * TERA, "float8": 242.5 * TERA},
    "L40": {"float32": 90.5 * TERA, "tf32": 90.5 * TERA, "bfloat16": 181.05 * TERA, "float8": 362 * TERA},
    "L40S": {"float32": 91.6 * TERA, "tf32": 183 * TERA, "bfloat16": 362 * TERA, "float8": 733 * TERA},
    # NVIDIA RTX Blackwell (2025), Ada (2022) and Ampere GA102 (2020) architecture whitepapers: figures with float32
    # accumulation.
    "RTX 5090": {"float32": 104.8 * TERA, "tf32": 104.8 * TERA, "bfloat16": 209.5 * TERA, "float8": 419 * TERA},
    "RTX 4090": {"float32": 82.6 * TERA, "tf32": 82.6 * TERA, "bfloat16": 165.2 * TERA, "float8": 330.3 * TERA},
    "RTX 3090": {"float32": 35.6 * TERA, "tf32": 35.6 * TERA, "bfloat16": 71 * TERA},
    "RTX A6000": {"float32": 38.7 * TERA, "tf32": 77.4 * TERA, "bfloat16": 154.8 * TERA},
    # NVIDIA RTX 6000 Ada Generation datasheet (2022): 1457 TFLOPS in float8 with sparsity. Dense float8 has half of
    # this peak, dense bfloat16 a quarter.
    "RTX 6000 Ada": {"float32": 91.1 * TERA, "tf32": 182.1 * TERA, "bfloat16": 364.2 * TERA, "float8": 728.5 * TERA},
    # NVIDIA T4 datasheet (2019): no bfloat16.
    "T4": {"float32": 8.1 * TERA, "float16": 65 * TERA},
    # NVIDIA V100 datasheet (2020): no bfloat16.
    "V100 SXM2": {"float32": 15.7 * TERA, "float16": 125 * TERA},
    "V100 PCIe": {"float32": 14 * TERA, "float16": 112 * TERA},
    "V100S": {"float32": 16.4 * TERA, "float16": 130 * TERA},
    # AMD Instinct MI300X datasheet (2023).
    "MI300X": {"float32": 163.4 * TERA, "bfloat16": 1307.4 * TERA, "float8": 2614.9 * TERA},
}
"""Dense peak in operations per second, by number format. float16 has the peak of bfloat16 where it is not listed."""
GIGABYTES = {
    **{"H100 SXM": 80, "H100 PCIe": 80, "H100 NVL": 94, "H200 SXM": 141, "H200 NVL": 141, "GH200": 96, "H20": 96},
    **{"B200": 180, "GB200": 186, "A100": 80, "A10": 24, "A10G": 24, "A30": 24, "A40": 48, "L4": 24, "L40": 48},
    **{"L40S": 48, "RTX 5090": 32, "RTX 4090": 24, "RTX 3090": 24, "RTX A6000": 48, "RTX 6000 Ada": 48, "T4": 16},
    **{"V100 SXM2": 32, "V100 PCIe": 32, "V100S": 32, "MI300X": 192},
}
"""Memory of the chips in PEAKS by the same data sheets: the largest where a chip is sold with several sizes, and the
smaller GH200.
"""
NAMES = (
    ("H100 PCIe", "H100 PCIe"),
    ("H100 NVL", "H100 NVL"),
    ("H100 80GB HBM3", "H100 SXM"),
    ("H200 NVL", "H200 NVL"),
    ("H200", "H200 SXM"),
    ("GH200", "GH200"),
    ("H20", "H20"),
    ("GB200", "GB200"),
    ("B200", "B200"),
    ("A100", "A100"),
    ("A30", "A30"),
    ("A40", "A40"),
    ("A10", "A10"),
    ("A10G", "A10G"),
    ("L40S", "L40S"),
    ("L40", "L40"),
    ("L4", "L4"),
    ("RTX 5090", "RTX 5090"),
    ("RTX 4090", "RTX 4090"),
    ("RTX 3090", "RTX 3090"),
    ("RTX A6000", "RTX A6000"),
    ("RTX 6000 Ada", "RTX 6000 Ada"),
    ("T4", "T4"),
    ("V100 SXM2", "V100 SXM2"),
    ("V100 PCIE", "V100 PCIe"),
    ("V100S PCIE", "V100S"),
    ("MI300X", "MI300X"),
)
"""Pairs of (consecutive words in the device name that the driver reports, key of PEAKS)."""
SMALLER = {"MIG", "Laptop", "Ti", "D"}
"""Words in the names of devices that are not in PEAKS: slices of a GPU (MIG), and variants of the chips in PEAKS."""


@dataclass(frozen=True, kw_only=True)
class TokenCounts:
    """Counts over all processed sequences, without padding. Here s is the length of one sequence in tokens."""

    tokens: int
    """Sum of s."""
    squares: int
    """Sum of s * s."""
    masked: int
    """Number of positions at which the vocabulary head was computed."""


def encoder_flops(model: Model, counted: TokenCounts) -> float:
    """Return the floating-point operations of an encoder's forward and backward pass per real token.

    Only matrix products count. With L layers of width H and feed-forward width 4 H, the linear maps of the layers need
    6 * 12 * L * H^2 operations; 8 of these 12 are for the feed-forward, and geglu's gates add 4. Attention scores and
    values need 12 * L * H * (sum of s^2) / (sum of s); in local layers, a token attends to at most its window, and in
    block-sparse layers to its blocks. A
    projection of embeddings of width E adds 6 * E * H. If L layers share their weights, they still count L times.
    Disentangled attention adds two products with 2 s relative positions per token, which are twice the scores and
    values; the projections of relative positions, once per slot, do not count.
    """
    L, H = model.layers, model.width
    layer = 4 * H * H + H * model.inner_rows + H * model.feed_forward
    projection = model.embedded_width * H if model.projects else 0
    keys = sum(keys_per_token(model, number, counted) for number in range(L))
    products = 3 if model.has_distances else 1  # content by content, content by position, position by content
    return BACKWARD * (2 * L * layer + 2 * projection + 4 * products * H * keys)


def keys_per_token(model: Model, layer: int, counted: TokenCounts) -> float:
    """Return the keys per token of a layer.

    For local layers this is an upper bound, the window or the mean length that a token sees, whichever is less: tokens
    near the ends of a sequence see fewer. For block-sparse layers, all sequences are taken to have that mean length.
    """
    mean, reach = counted.squares / counted.tokens, model.reach(layer)
    if isinstance(model.attention, BlockSparseAttention) and mean > model.attention.longest_full:
        return _sparse_keys(model.attention, mean)
    return mean if reach is None else min(mean, 2 * reach + 1)


def _sparse_keys(attention: BlockSparseAttention, length: float) -> float:
    """Return the mean keys per token of a sequence that is long enough for blocks.

    The first and the last block see all tokens. The others see two global blocks, three of the window and the random
    ones, and the second and the last but one a block less, because it is global and in the window.
    """
    size = attention.block_size
    middle = (length - 2 * size) * (5 + attention.random_blocks) * size - 2 * size * size
    return (2 * size * length + middle) / length


def masked_head_flops(model: Model, vocabulary_size: int, counted: TokenCounts) -> float:
    """Return the floating-point operations of the masked-token head per real token, forward and backward.

    Only matrix products count: 6 * (masked share of positions) * (H * E + V * E), with width H, embeddings of width E
    and V vocabulary entries.
    """
    H, E = model.width, model.embedded_width
    return BACKWARD * 2 * counted.masked / counted.tokens * (H * E + vocabulary_size * E)


def replaced_head_flops(model: Model) -> float:
    """Return the floating-point operations of the replaced-token head per real token, forward and backward.

    The head is computed at all positions. Only matrix products count.
    """
    return BACKWARD * 2 * (model.width**2 + model.width)


def peak_flops(device_name: str, precision: str) -> float | None:
    """Return a device's dense peak in operations per second; `device_name` is the name that the driver reports.

    Return None for a slice of a GPU, and if the chip or the number format is not in PEAKS.
    """
    chip = chip_of(device_name)
    if chip is None:
        return None
    return PEAKS[chip].get(precision, PEAKS[chip].get("bfloat16") if precision == "float16" else None)


def chip_of(device_name: str) -> str | None:
    """Return the key of PEAKS for a device name of the driver, or for itself; None for slices and other chips."""
    if device_name in PEAKS:
        return device_name
    words = device_name.replace("-", " ").split()
    if SMALLER & set(words):
        return None
    return next((row for name, row in NAMES if _contains(words, name.replace("-", " ").split())), None)


def known_chip(name: str) -> str:
    """Return the key of PEAKS that a user names: the key itself, its beginning, or the name that the driver reports.

    Raises ConfigError, which names the known chips, for another name.
    """
    same = [chip for chip in PEAKS if chip.lower() == name.lower()]
    begun = [chip for chip in PEAKS if chip.lower().startswith(f"{name.lower()} ")]
    chip = next(iter([*same, *begun]), None) or chip_of(name)
    if chip is None:
        raise ConfigError(f"gpu ({name}) must be one of {', '.join(PEAKS)}")
    return chip


def _contains(words: Sequence[str], name: Sequence[str]) -> bool:
    """Return whether `words` contain the words of `name` in sequence. Only equal words match: not "A100" and "A10"."""
    return any(words[start : start + len(name)] == name for start in range(len(words)))


def utilisation(flops: float, tokens_per_second: float, peak: float) -> float:
    """Return model FLOPs utilisation, from 0 to 1.

    `flops` are operations per token; `tokens_per_second` and `peak` (operations per second) are those of one device.
    """
    return flops * tokens_per_second / peak
