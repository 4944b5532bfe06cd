"""The model that makes vectors: the same files in every process, and the same model for queries."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.embed import Embed
from pipeline.config.placement import EmbedPlacement
from pipeline.embed.model import describe_on_cpu, load_described
from pipeline.errors import CheckpointError, ConfigError
from pipeline.model.int8 import Int8Linear
from pipeline.saved.checkpoints import folder_of


def test_processes_load_the_checkpoint_that_was_described_and_no_other(tiny_run: Path) -> None:
    config = Embed(checkpoint=str(tiny_run), input="i", output="o")
    described = describe_on_cpu(config)
    older = replace(described, checkpoint=folder_of(str(tiny_run), 2))
    assert load_described(described, config).model.location == described.checkpoint == folder_of(str(tiny_run), 3)
    message = rf"its digest is \w{{16}}, and was {described.digest}; run the job again"
    with pytest.raises(CheckpointError, match=message):
        load_described(older, config)


def test_vectors_in_int8_are_near_those_in_float32(tiny_run: Path) -> None:
    config = Embed(checkpoint=str(tiny_run), input="i", output="o", placement=EmbedPlacement(device="cpu"))
    described = describe_on_cpu(config)
    whole = load_described(described, config)
    eighth = load_described(described, replace(config, placement=EmbedPlacement(device="cpu", precision="int8")))
    assert (whole.precision, eighth.precision) == ("float32", "int8")
    assert any(isinstance(module, Int8Linear) for module in eighth.model.encoder.modules())
    texts = ["kar lost", "some more of it"]
    found, wanted = eighth.vectors(texts), whole.vectors(texts)
    assert not np.array_equal(found, wanted) and (found * wanted).sum(1).min() > 0.99
    np.testing.assert_allclose(eighth.vectors(texts[:1]), found[:1], atol=1e-3)  # alone as among others


def test_int8_on_a_gpu_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        Embed(checkpoint="c", input="i", output="o", placement=EmbedPlacement(device="cuda", precision="int8"))
    assert str(refused.value) == "placement.precision int8 needs a CPU, but placement.device is cuda: use bfloat16"
