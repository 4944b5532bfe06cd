"""A Triton kernel that overwrites rows of logits with the gradients of their cross-entropy.

Torch's operators read and write the logits in several passes, some of them in float32. This kernel reads a row once, or
twice if the vocabulary is larger than BLOCK, and writes it once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 32_768
"""Logits that a program holds at a time, at most."""


def to_gradients(logits: Tensor, labels: Tensor) -> Tensor:
    """Overwrite the logits (M, V) with the gradients of their summed cross-entropy; return this sum, a float32 scalar.

    The labels (M,) are int64. A row with a negative label adds nothing to the sum, and its gradients are 0. The softmax
    uses float32. Each row needs a finite logit among its first BLOCK.
    """
    rows, columns = logits.shape
    losses = torch.zeros(rows, dtype=torch.float32, device=logits.device)
    if rows:
        block = min(BLOCK, triton.next_power_of_2(columns))
        most = 16 if torch.version.hip else 32  # warps of AMD's GPUs have 64 threads, and a program has at most 1,024
        warps = min(most, max(4, block // 1_024))
        with torch.cuda.device_of(logits):  # Triton launches on the current device
            _row_to_gradients[(rows,)](logits, labels, losses, logits.stride(0), columns, block, num_warps=warps)
    return losses.sum()


@triton.jit
def _row_to_gradients(logits, labels, losses, stride, V: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    label = tl.load(labels + row)
    inside = tl.arange(0, BLOCK)

    # The label's logit comes from what was loaded for the sums: loaded by itself, it might be overwritten already.
    largest, total, wanted = -float("inf"), 0.0, 0.0
    for first in tl.static_range(0, V, BLOCK):
        entries = first + inside
        values = tl.load(logits + entries, mask=entries < V, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(values, axis=0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(values - larger), axis=0)
        wanted += tl.sum(tl.where(entries == label, values, 0.0), axis=0)
        largest = larger

    tl.store(losses + row, tl.where(label < 0, 0.0, largest + tl.log(total) - wanted))
    for first in tl.static_range(0, V, BLOCK):
        entries = first + inside
        if V > BLOCK:
            values = tl.load(logits + entries, mask=entries < V, other=-float("inf")).to(tl.float32)
        gradients = tl.exp(values - largest) / total - tl.where(entries == label, 1.0, 0.0)
        gradients = tl.where(label < 0, 0.0, gradients)
        tl.store(logits + entries, gradients.to(logits.dtype.element_ty), mask=entries < V)
