"""Kernels of attention that a run asks for."""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import _fa3 as built_in
from torch.nn.attention import (
    current_flash_attention_impl,
    register_flash_attention_impl,
    restore_flash_attention_impl,
)

from pipeline.config.placement import Placement
from pipeline.errors import ConfigError
from pipeline.presets.table import PRESETS
from pipeline.train.building import _activate_flash_attention_3, build_module


@pytest.fixture
def registered() -> Iterator[None]:
    """A registered implementation named FA3 without kernels, in place of torch's."""

    class Handle:
        def remove(self) -> None:
            pass

    register_flash_attention_impl("FA3", register_fn=Handle)
    yield
    restore_flash_attention_impl(_raise_warn=False)
    register_flash_attention_impl("FA3", register_fn=built_in.register_flash_attention_fa3)


def test_flash_attention_3_is_activated_where_it_is_registered(registered: None) -> None:
    _activate_flash_attention_3()
    assert current_flash_attention_impl() == "FA3"


@pytest.mark.skipif(importlib.util.find_spec("flash_attn_interface") is not None, reason="needs it absent")
def test_without_its_package_flash_attention_3_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(No module named 'flash_attn_interface'\): install flash_attn_interface"):
        _activate_flash_attention_3()
    assert current_flash_attention_impl() is None


def test_a_run_on_a_cpu_has_no_flash_attention_3() -> None:
    config = replace(PRESETS["bert-tiny"], placement=Placement(flash_attention="FA3"))
    with pytest.raises(ConfigError, match=r"flash_attention \(FA3\) needs a Hopper GPU, and this run has none"):
        build_module(config, 100, torch.device("cpu"), "bfloat16")
