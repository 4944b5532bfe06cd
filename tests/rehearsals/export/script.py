"""Export a run as a file of NumPy."""

from pathlib import Path

import numpy as np

from pipeline.config.export import Export
from pipeline.workflows.export import export
from tests.rehearsals.steps import opened, pretrain, settings

run, lines = pretrain(["--steps", "2"]), []
config = settings(Export, ["--run", run.folder, "--kinds", "numpy", "--folder", "exported"])
export(config, lines.append)
assert any(line.startswith("numpy: ") and line.endswith("equal") for line in lines), lines
with np.load("exported/numpy/encoder.npz") as weights:
    words = weights["embeddings.words.weight"]
assert np.array_equal(words, opened(run.folder).encoder.embeddings.words.weight.detach())
card = Path("exported/numpy/README.md").read_text()
assert "library_name: numpy" in card and "`encoder.npz` has the weights." in card
