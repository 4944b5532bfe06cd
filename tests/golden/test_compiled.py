"""Compiled code trains as eager code does, dropout included, where both draw the same random numbers."""

import shutil
from dataclasses import replace

import pytest
import torch

from pipeline.batch import collate
from pipeline.config.jobs import Pretrain


def gradients(
    training, config: Pretrain, objective: torch.nn.Module, module: torch.nn.Module
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Return the losses of three batches of different sizes, and the gradients of their sum."""
    losses = []
    for number, block in enumerate(training.blocks(config)[:3]):
        torch.manual_seed(number)
        loss = sum(total / count for total, count in objective(collate(block)).values())
        loss.backward()
        losses.append(loss.item())
    found = {name: parameter.grad for name, parameter in module.named_parameters()}
    module.zero_grad()
    return losses, found


@pytest.mark.long  # tests/unit/train/test_compiling.py and tests/unit/objectives/test_masked.py compile in `make test`
@pytest.mark.timeout(400)  # the compiler takes most of a minute on two idle cores
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler")
def test_compiled_equals_eager(training, family_config: Pretrain) -> None:
    config = replace(family_config, model=replace(family_config.model, layers=1))
    module = training.module(config)
    wanted, wanted_gradients = gradients(training, config, module, module)
    with torch._inductor.config.patch(fallback_random=True):
        found, found_gradients = gradients(training, config, torch.compile(module, dynamic=True), module)
    assert found == pytest.approx(wanted, rel=1e-5)
    torch.testing.assert_close(found_gradients, wanted_gradients, atol=1e-5, rtol=1e-4)
