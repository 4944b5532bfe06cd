"""The checkpoint benchmark on a small model: its checkpoints are those of training."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.data import VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.train import checkpoint
from tests.benchmarks.checkpoint import measure


def test_what_is_measured_is_a_published_checkpoint(
    tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    published: list[str] = []
    publish = checkpoint.publish
    monkeypatch.setattr(
        checkpoint, "publish", lambda *arguments: published.append(publish(*arguments)) or published[-1]
    )
    costs = measure(replace(tiny_config, vocabulary=VocabularySettings(size=100)), str(tmp_path), 2)
    assert [name.rsplit("/", 1)[1] for name in published] == ["step-00000001", "step-00000002"]
    assert all(0 < cost.still <= cost.written and cost.parameters > 10_000 for cost in costs)
    assert list(tmp_path.iterdir()) == []
