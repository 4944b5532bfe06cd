"""The model that makes vectors: the same files in every process, and the same model for queries."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.embed import Embed
from pipeline.embed.model import describe_on_cpu, load_described
from pipeline.errors import CheckpointError
from pipeline.train.checkpoint import folder_of


def test_processes_load_the_checkpoint_that_was_described_and_no_other(tiny_run: Path) -> None:
    config = Embed(checkpoint=str(tiny_run), input="i", output="o")
    described = describe_on_cpu(config)
    older = replace(described, checkpoint=folder_of(str(tiny_run), 2))
    assert load_described(described, config).model.location == described.checkpoint == folder_of(str(tiny_run), 3)
    message = rf"its digest is \w{{16}}, and was {described.digest}; run the job again"
    with pytest.raises(CheckpointError, match=message):
        load_described(older, config)
