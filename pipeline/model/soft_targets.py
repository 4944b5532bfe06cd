"""Compute the loss on a teacher's probabilities of all vocabulary entries, without holding all logits in memory.

Shapes: T tokens, V vocabulary entries, H width of the student's embeddings, G width of the teacher's embeddings.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline.model.vocabulary_loss import pad_vocabulary, rows_at_once


class Output(NamedTuple):
    """Tensors from which a model's logits are computed."""

    hidden_T: Tensor
    """States from `MaskedTokenHead.transform`, (T, embedded width)."""
    words: Tensor
    """Word embeddings, (V, embedded width)."""
    bias: Tensor
    """Bias of each vocabulary entry, (V,)."""

    def to(self, dtype: torch.dtype) -> "Output":
        """Return the tensors in a number format. Words and bias are padded to a size that has fast kernels."""
        words, bias = pad_vocabulary(self.words.to(dtype), self.bias.to(dtype))
        return Output(self.hidden_T.to(dtype), words, bias)


def soft_target_loss(student: Output, teacher: Output, temperature: float) -> Tensor:
    """Return temperature^2 x KL(teacher || student), summed over the tokens, as a float32 scalar.

    Both models' logits are divided by the temperature (Hinton et al. 2015, section 2). Matrix products use autocast's
    format, the softmax uses float32. Only the student gets gradients.
    """
    device = student.hidden_T.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else student.words.dtype
    if not torch.is_grad_enabled():
        losses = [loss for _, loss, _ in _parts(student.to(dtype), teacher.to(dtype), temperature, len(student.words))]
        return torch.stack(losses).sum()
    return _loss_and_gradients(*student, *(tensor.detach() for tensor in teacher), temperature, dtype)[0]


def _parts(
    student: Output, teacher: Output, temperature: float, entries: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Split the tokens into parts; yield the student's states, the summed loss and the logits' gradients of each part.

    The gradients are for the student's logits; the next part overwrites them. `entries` is the number of vocabulary
    entries without padding.
    """
    held, normalised = rows_at_once(len(student.hidden_T), student.words)
    memory = [student.words.new_empty(held, len(student.words)) for _ in range(2)]
    for states, taught in zip(student.hidden_T.split(held), teacher.hidden_T.split(held), strict=True):
        logits = torch.addmm(student.bias, states, student.words.T, out=memory[0][: len(states)])
        wanted = torch.addmm(teacher.bias, taught, teacher.words.T, out=memory[1][: len(states)])
        losses = [
            _to_gradients(own[:, :entries], theirs[:, :entries], temperature)
            for own, theirs in zip(logits.split(normalised), wanted.split(normalised), strict=True)
        ]
        logits[:, entries:] = 0
        yield states, torch.stack(losses).sum(), logits


def _to_gradients(logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """Overwrite the student's logits with the gradients of the summed loss, and return this loss."""
    own = (logits.float() / temperature).log_softmax(1)
    theirs = (wanted.float() / temperature).log_softmax(1)
    shares = theirs.exp()
    loss = temperature**2 * (shares * (theirs - own)).sum()
    logits.copy_(temperature * (own.exp() - shares))
    return loss


# This is a custom operator for the reasons given in pipeline.model.vocabulary_loss.
@torch.library.custom_op("pipeline::soft_target_loss", mutates_args=())
def _loss_and_gradients(
    hidden_T: Tensor,
    words: Tensor,
    bias: Tensor,
    taught_T: Tensor,
    taught_words: Tensor,
    taught_bias: Tensor,
    temperature: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the summed loss, float32, and its gradients for the student's states (T, H), words (V, H) and bias (V,).

    The teacher's states, words and bias are `taught_T` (T, G), `taught_words` (V, G) and `taught_bias` (V,).
    """
    student = Output(hidden_T, words, bias).to(dtype)
    teacher = Output(taught_T, taught_words, taught_bias).to(dtype)
    V = len(words)
    losses, by_hidden = [], []
    by_words, by_bias = torch.zeros_like(words), torch.zeros_like(bias)
    for states, loss, gradients in _parts(student, teacher, temperature, V):
        losses.append(loss)
        by_hidden.append(gradients @ student.words)
        by_words += (gradients.T @ states)[:V]
        by_bias += (gradients.new_ones(1, len(gradients)) @ gradients)[0, :V]
    return torch.stack(losses).sum(), torch.cat(by_hidden).to(hidden_T.dtype), by_words, by_bias


@_loss_and_gradients.register_fake
def _(
    hidden_T: Tensor,
    words: Tensor,
    bias: Tensor,
    taught_T: Tensor,
    taught_words: Tensor,
    taught_bias: Tensor,
    temperature: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    loss = words.new_empty((), dtype=torch.float32)
    return loss, torch.empty_like(hidden_T), torch.empty_like(words), torch.empty_like(bias)


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output[1:])


def _backward(ctx: Any, by_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    return *(by_loss * saved for saved in ctx.saved_tensors), None, None, None, None, None


_loss_and_gradients.register_autograd(_backward, setup_context=_keep)
