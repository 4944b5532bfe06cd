"""Compute the cross-entropy over the vocabulary, its gradients, and samples, without holding all logits in memory.

Shapes: M masked positions, V vocabulary entries, H width.
"""

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pipeline.model.sampling import entries_at

MULTIPLE = 64
"""The vocabulary is padded to a multiple of this number, for fast kernels. The logits of padding are -inf, and callers
never see the padding.
"""
LOGIT_BYTES = 31 << 20
"""Bytes of logits held at a time on a CPU: from 32 MiB on, glibc maps fresh pages for every allocation."""
GPU_LOGIT_BYTES = 1 << 28
"""Bytes of logits held at a time on an accelerator, where few large products are faster than many small ones."""
ROWS_AT_ONCE = 32
"""Rows whose softmax is computed at a time on a CPU, so that it stays in the cache."""


def pad_vocabulary(words: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Pad output weights (V, H) and bias (V,) to a multiple of 64 entries; the logits of padding are -inf."""
    missing = -words.shape[0] % MULTIPLE
    return torch.nn.functional.pad(words, (0, 0, 0, missing)), torch.nn.functional.pad(
        bias, (0, missing), value=-torch.inf
    )


def rows_at_once(rows: int, words: Tensor) -> tuple[int, int]:
    """Return how many of `rows` rows of logits to hold at a time, and how many of these to normalise at a time.

    `words` are the output weights, padded and in the number format of the logits.
    """
    on_cpu = words.device.type == "cpu"
    most = max(1, (LOGIT_BYTES if on_cpu else GPU_LOGIT_BYTES) // (len(words) * words.dtype.itemsize))
    held = -(-rows // -(-rows // most)) if rows else 1  # parts of equal size
    return held, ROWS_AT_ONCE if on_cpu else held


# This is a custom operator so that compiled and eager mode run the same code. The forward pass also computes the
# gradients, while the logits are in memory. The backward pass only has to scale them, because the loss is a sum.
@torch.library.custom_op("pipeline::vocabulary_loss", mutates_args=())
def vocabulary_loss(
    hidden_M: Tensor,
    words: Tensor,
    bias: Tensor,
    labels_M: Tensor,
    dtype: torch.dtype,
    drawn_M: Tensor,
    some_ignored: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the summed cross-entropy, its three gradients, and sampled entries.

    The loss is a float32 scalar; the labels (M,) are int64. The gradients are for hidden states (M, H), words (V, H)
    and bias (V,). The samples are int64, one for each number in `drawn_M` (M,). There are none if `drawn_M` is empty.
    Matrix products use `dtype`, and the softmax uses float32. The gradients of words and bias are summed in the dtypes
    of words and bias. With `some_ignored`, a position with a negative label counts nowhere.
    """
    V = words.shape[0]
    words_V, bias_V = pad_vocabulary(words.to(dtype), bias.to(dtype))
    hidden_M = hidden_M.to(dtype)
    held, normalised = rows_at_once(len(hidden_M), words_V)
    logits_memory, losses, by_hidden = hidden_M.new_empty(held, len(words_V)), [], []
    samples, seen = [labels_M.new_empty(0)], 0
    by_words = by_bias = None
    for part_M, part_labels in zip(hidden_M.split(held), labels_M.split(held), strict=True):
        logits = torch.addmm(bias_V, part_M, words_V.T, out=logits_memory[: len(part_M)])
        for rows, labels in zip(logits.split(normalised), part_labels.split(normalised), strict=True):
            row_losses, sampled = _to_gradients(rows, labels, drawn_M[seen : seen + len(rows)], some_ignored)
            seen += len(rows)
            losses.append(row_losses)
            samples.append(sampled)
        by_hidden.append(logits @ words_V)
        by_words = _plus(by_words, (logits.T @ part_M)[:V], words.dtype)
        by_bias = _plus(by_bias, (logits.new_ones(1, len(logits)) @ logits)[0, :V], bias.dtype)
    assert by_words is not None and by_bias is not None  # `split` yields a part without rows if there are no rows
    return torch.stack(losses).sum(), torch.cat(by_hidden).float(), by_words, by_bias, torch.cat(samples)


def _plus(total: Tensor | None, part: Tensor, dtype: torch.dtype) -> Tensor:
    """Add to a sum in number format `dtype`; None is a sum of nothing."""
    return part.to(dtype) if total is None else total.add_(part)


def _to_gradients(logits: Tensor, labels: Tensor, drawn_M: Tensor, some_ignored: bool) -> tuple[Tensor, Tensor]:
    """Overwrite the logits with the gradients of their summed cross-entropy; return this sum and the samples."""
    if not len(drawn_M) and (kernel := _kernel(logits.device, logits.dtype, logits.shape[1])) is not None:
        return kernel(logits, labels), labels.new_empty(0)
    ignored = labels < 0 if some_ignored else None
    wide, labels = logits.float(), (labels if ignored is None else labels.clamp(min=0))[:, None]
    largest, wanted = wide.amax(1), wide.gather(1, labels)[:, 0]
    shares = wide.softmax(1)
    # The softmax of the largest logit is 1 / (sum of exponentials), so the sum needs no second pass.
    losses = largest - shares.amax(1).log() - wanted
    sampled = entries_at(shares, drawn_M) if len(drawn_M) else labels.new_empty(0)
    logits.copy_(shares.scatter_add_(1, labels, shares.new_full((1, 1), -1.0).expand_as(labels)))
    if ignored is not None:
        losses = losses.masked_fill(ignored, 0.0)
        logits.masked_fill_(ignored[:, None], 0.0)
    return losses.sum(), sampled


@functools.cache
def _kernel(device: torch.device, dtype: torch.dtype, columns: int) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return what computes losses and gradients in one kernel; None on a CPU, and where Triton cannot compile it."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return None
    logits = torch.zeros(1, columns, dtype=dtype, device=device)
    labels = torch.zeros(1, dtype=torch.int64, device=device)
    try:
        from pipeline.model.vocabulary_kernel import to_gradients  # Triton comes with torch's builds for GPUs

        to_gradients(logits, labels)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of Triton, of the C compiler, or of the missing headers of Python
        reason = str(error).partition("\n")[0] or type(error).__name__
        warnings.warn(f"the loss takes several kernels, because Triton cannot compile one: {reason}", stacklevel=2)
        return None
    return to_gradients


@vocabulary_loss.register_fake
def _(
    hidden_M: Tensor,
    words: Tensor,
    bias: Tensor,
    labels_M: Tensor,
    dtype: torch.dtype,
    drawn_M: Tensor,
    some_ignored: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (
        words.new_empty(()),
        hidden_M.new_empty(hidden_M.shape, dtype=torch.float32),
        torch.empty_like(words),
        torch.empty_like(bias),
        labels_M.new_empty(drawn_M.shape),
    )


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output[1:4])


def _backward(ctx: Any, by_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    return *(by_loss * saved for saved in ctx.saved_tensors), None, None, None, None


vocabulary_loss.register_autograd(_backward, setup_context=_keep)
