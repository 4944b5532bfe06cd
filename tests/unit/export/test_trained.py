"""A checkpoint's model, loaded for export."""

import json
from pathlib import Path

import torch

from pipeline.export.trained import load_trained
from pipeline.saved.checkpoints import folder_of


def test_the_model_is_that_of_the_checkpoint(tiny_run: Path) -> None:
    folder = folder_of(str(tiny_run), 3)
    trained = load_trained(folder)
    assert (trained.model.layers, trained.model.width, trained.model.maximum_positions) == (2, 32, 32)
    assert (
        trained.vocabulary_size
        == json.loads(Path(folder, "config.json").read_text())["vocab_size"]
        == trained.module.words.shape[0]
    )
    assert not trained.module.training and not torch.equal(
        trained.module.words, load_trained(folder_of(str(tiny_run), 1)).module.words
    )
