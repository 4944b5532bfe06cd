"""A budget of the kernels that torch.compile generates for one step on a CPU."""

import pytest
import torch
import torch._inductor.config
from torch._inductor import metrics

from pipeline.bench.cases import VOCABULARY_SIZE, Case, make_batch
from pipeline.objectives.masked import MaskedTokens
from pipeline.train.compiling import compiled

KERNELS = 217
"""Generated kernels when the budget was last set; calls of matrix products are not among them."""
TOLERANCE = 1.02


@pytest.mark.long
def test_a_compiled_step_of_tiny_keeps_its_budget() -> None:
    case = Case(size="tiny", rows=4, length=128, lengths="full", attention_dropout=False)
    batch, module = make_batch(case, seed=0), MaskedTokens(case.model, VOCABULARY_SIZE)
    metrics.reset()
    with torch._inductor.config.patch(force_disable_caches=True), compiled(module):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = sum(total for total, _ in module(batch).values())
        assert isinstance(loss, torch.Tensor)
        loss.backward()
    found = metrics.generated_kernel_count
    print(f"tiny, compiled on a CPU, forward and backward: {found} generated kernels")
    assert 0 < found <= TOLERANCE * KERNELS
