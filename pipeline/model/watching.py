"""Watch which batches an encoder reads."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from torch import nn

from pipeline.batch import Batch


@contextmanager
def each_batch(encoder: nn.Module, after: Callable[[Batch], None]) -> Generator[None]:
    """Call `after` with each batch that the encoder has read within the block."""
    hook = encoder.register_forward_hook(lambda _, inputs, __: after(inputs[0]))
    try:
        yield
    finally:
        hook.remove()
