from dataclasses import replace

import pytest

from pipeline.config.model import Model
from pipeline.config.model_parts import (
    BlockSparseAttention,
    DisentangledAttention,
    GlobalLocalAttention,
    LocalAttention,
    NoPositions,
    RotaryPositions,
)
from pipeline.config.objective import Masked
from pipeline.model.flops import NAMES, PEAKS, TokenCounts, chip_of, peak_flops, utilisation
from pipeline.objectives.table import flops_per_token


def bert(layers: int, width: int, heads: int) -> Model:
    return Model(layers=layers, width=width, heads=heads, feed_forward=4 * width)


def test_operations_by_hand() -> None:
    # Two layers of width 4, 11 entries; lengths 2 and 4, one position in six masked:
    # 6 * 12 * 2 * 16 = 2304;  12 * 2 * 4 * (4 + 16) / 6 = 320;  6 * (1 / 6) * (16 + 44) = 60.
    counted = TokenCounts(tokens=6, squares=20, masked=1)
    assert flops_per_token(Masked(), bert(2, 4, 2), 11, counted) == pytest.approx(2304 + 320 + 60)


def test_large_at_length_128_on_an_h200() -> None:
    # 6 * 12 * 24 * 1024^2 = 1,811,939,328;  12 * 24 * 1024 * 128 = 37,748,736;  6 * 0.15 * (1024^2 + 30522 * 1024) =
    # 29,072,794.
    flops = flops_per_token(
        Masked(), bert(24, 1024, 16), 30_522, TokenCounts(tokens=12_800, squares=128 * 12_800, masked=1_920)
    )
    assert flops == pytest.approx(1_811_939_328 + 37_748_736 + 29_072_794, rel=1e-9)
    # 237,000 tokens/s are 45% of 989.4 TFLOP/s.
    peak = peak_flops("NVIDIA H200", "bfloat16")
    assert peak is not None and utilisation(flops, 237_000, peak) == pytest.approx(0.45, abs=5e-4)


def test_a_wider_feed_forward_costs_its_products() -> None:
    narrow, wide = (Model(layers=1, width=4, heads=1, feed_forward=width) for width in (16, 32))
    counted = TokenCounts(tokens=4, squares=16, masked=0)
    assert (
        flops_per_token(Masked(), wide, 11, counted) - flops_per_token(Masked(), narrow, 11, counted) == 6 * 2 * 4 * 16
    )


def test_distances_cost_two_more_products() -> None:
    # Two layers of width 4: scores and values cost 320 as above, and the products of queries and of keys with twice as
    # many relative positions cost 2 x 320. The enhanced mask decoder applies a third layer: half of 2304 and of 960.
    plain = bert(2, 4, 2)
    parts = {"segments": 0, "positions": NoPositions(), "attention": DisentangledAttention()}
    model = replace(plain, family="deberta", **parts)
    counted = TokenCounts(tokens=6, squares=20, masked=1)
    assert flops_per_token(Masked(), model, 11, counted) == pytest.approx(2304 + 960 + 60)
    enhanced = flops_per_token(Masked(decoder="enhanced"), model, 11, counted)
    assert enhanced == pytest.approx(1.5 * (2304 + 960) + 60)


def test_a_window_with_global_tokens_costs_the_window() -> None:
    # Two layers of width 4: linear maps cost 2304 as above. Lengths 2 and 10: a token sees at most its window of 5, and
    # pretraining has no global tokens.
    parts = {"segments": 1, "attention": GlobalLocalAttention(window=4)}
    model = replace(bert(2, 4, 2), family="longformer", **parts)
    counted = TokenCounts(tokens=12, squares=104, masked=0)
    assert flops_per_token(Masked(), model, 11, counted) == pytest.approx(2304 + 12 * 2 * 4 * 5)


def test_gates_and_windows_by_hand() -> None:
    # Three layers of width 4 with feed-forward width 6, lengths 2 and 10: 3 * 6 * (4 * 16 + 4 * 12 + 4 * 6) = 2448.
    # Layers 0 and 2 see (4 + 100) / 12 keys per token, layer 1 at most its window of 5: 12 * 4 * (2 * 104 / 12 + 5).
    parts = {"inner": "geglu", "positions": RotaryPositions(), "attention": LocalAttention(window=4, global_every=2)}
    model = Model(layers=3, width=4, heads=2, feed_forward=6, **parts)
    counted = TokenCounts(tokens=12, squares=104, masked=0)
    assert flops_per_token(Masked(), model, 11, counted) == pytest.approx(2448 + 48 * (2 * 104 / 12 + 5))


def test_blocks_by_hand() -> None:
    # One layer of width 4, feed-forward width 16: 6 * 12 * 16 = 1152. Blocks of 2 tokens and one random block:
    # attention is full up to 14 tokens. Of 10 blocks, two see 20 tokens, two see 5 blocks, and six see 6 blocks:
    # (2 * 20 + 2 * 10 + 6 * 12) / 10 = 13.2 keys per token.
    attention = BlockSparseAttention(block_size=2, random_blocks=1)
    model = Model(layers=1, width=4, heads=2, feed_forward=16, attention=attention)
    long = TokenCounts(tokens=20, squares=400, masked=0)
    assert flops_per_token(Masked(), model, 11, long) == pytest.approx(1152 + 48 * 13.2)
    short = TokenCounts(tokens=14, squares=196, masked=0)
    assert flops_per_token(Masked(), model, 11, short) == pytest.approx(1152 + 48 * 14)


CHIPS = [
    ("NVIDIA H200", "bfloat16", 989.4e12),
    ("NVIDIA H100 80GB HBM3", "float8", 1978.9e12),
    ("NVIDIA H100 PCIe", "bfloat16", 756e12),
    ("NVIDIA A100-SXM4-80GB", "bfloat16", 312e12),
    ("NVIDIA A100 80GB PCIe", "float8", None),
    ("NVIDIA A10", "bfloat16", 125e12),
    ("NVIDIA A10G", "bfloat16", 70e12),
    ("NVIDIA A100-SXM4-40GB", "tf32", 156e12),
    ("Tesla T4", "tf32", None),
    ("NVIDIA A40", "bfloat16", 149.7e12),
    ("NVIDIA L4", "bfloat16", 121e12),
    ("NVIDIA L40S", "bfloat16", 362e12),
    ("NVIDIA L40", "bfloat16", 181.05e12),
    ("NVIDIA H20", "bfloat16", 148e12),
    ("NVIDIA GH200 480GB", "bfloat16", 989.5e12),
    ("NVIDIA B200", "bfloat16", 2.25e15),
    ("NVIDIA GB200", "bfloat16", 2.5e15),
    ("NVIDIA GeForce RTX 3090", "bfloat16", 71e12),
    ("NVIDIA GeForce RTX 4090", "bfloat16", 165.2e12),
    ("NVIDIA GeForce RTX 5090", "bfloat16", 209.5e12),
    ("NVIDIA RTX A6000", "bfloat16", 154.8e12),
    ("NVIDIA RTX 6000 Ada Generation", "bfloat16", 364.2e12),
    ("AMD Instinct MI300X", "bfloat16", 1307.4e12),
    ("Tesla V100-PCIE-16GB", "float32", 14e12),
    ("Tesla V100S-PCIE-32GB", "float32", 16.4e12),
    ("Tesla V100-SXM2-32GB", "bfloat16", None),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bfloat16", None),
    ("NVIDIA H100 80GB HBM3 MIG 2g.20gb", "bfloat16", None),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", "bfloat16", None),
    ("NVIDIA GeForce RTX 3090 Ti", "bfloat16", None),
    ("Quadro RTX 6000", "bfloat16", None),
    ("Tesla T4", "float32", 8.1e12),
    ("Tesla T4", "bfloat16", None),
    ("Tesla T4", "float16", 65e12),
    ("NVIDIA A100-SXM4-80GB", "float16", 312e12),
    ("Tesla V100-SXM2-16GB", "float32", 15.7e12),
    ("AMD EPYC", "float32", None),
]


def test_a_chip_is_known_by_its_name_and_format() -> None:
    found = [(name, precision, peak_flops(name, precision)) for name, precision, _ in CHIPS]
    assert found == [(name, precision, pytest.approx(peak)) for name, precision, peak in CHIPS]


def test_every_name_has_its_row_and_every_row_a_name() -> None:
    assert {row for _, row in NAMES} == set(PEAKS)
    assert [chip_of(row) for row in PEAKS] == list(PEAKS)


def test_a_format_of_half_the_bits_is_not_slower() -> None:
    for peaks in PEAKS.values():
        found = [peaks[precision] for precision in ("float32", "tf32", "bfloat16", "float8") if precision in peaks]
        assert found == sorted(found)
        assert peaks.get("float8", 0) in (0, pytest.approx(2 * peaks.get("bfloat16", 0), rel=0.02))
