"""Train text vectors with a loss of squared distances, export the encoder, and use it."""

import json
from pathlib import Path

import numpy as np
import torch

from pipeline.config.predict import Score
from pipeline.config.similarity import Similarity
from pipeline.objectives.matching import COMPUTED
from pipeline.workflows.score import score
from tests.rehearsals.steps import exported, fine_tune, opened, pretrain, served

# |text - match|^2 is 9 + 16, and |text - negative|^2 is 4 + 16; the second row has no negative text.
texts = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [2.0, 4.0]], [[0.0, 0.0], [9.0, 0.0], [0.0, 0.0]]])
keys, chosen = torch.tensor([[1, 1, 2, 3], [2, 4, 5, 0]]), Similarity(loss="squared-distance", margin=1.5)
assert COMPUTED["squared-distance"](texts, keys, chosen) == 25 - 20 + 1.5

words = {"kar": "lost", "mist": "surp", "nest": "tam", "lond": "sul"}
rows = [
    {"anchor": f"{word} {more}", "positive": f"{match} {more}", "negative": f"{other} {more}"}
    for more in ("kap", "mil", "nend", "tast", "lop", "sum", "kam", "mip")
    for word, match in words.items()
    for other in (set(words.values()) - {match}, set(words) - {word})
    for other in sorted(other)[:1]
]
Path("triplets.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
encoder = exported(pretrain(["--steps", "2"]).folder, "encoder")
rate = ["--optimizer.learning_rate", "1e-3", "--recipe.rows_per_step", "8", "--recipe.epochs", "8"]
asked = ["--kind", "similarity", "--similarity.loss", "squared-distance", "--similarity.margin", "1"]
scores, model = fine_tune(["--checkpoint", encoder, "--train", "triplets.jsonl", *asked, *rate])
assert scores["triplet_accuracy"] > 0.8, scores
before = score(Score(checkpoint=encoder, triplets="triplets.jsonl"), print)["accuracy"]

folder = exported(model)
after = score(Score(checkpoint=folder, triplets="triplets.jsonl"), print)["accuracy"]
assert after > max(0.85, before + 0.1), (before, after)
card = Path(f"{folder}/README.md").read_text()
assert "| similarity.loss | squared-distance |" in card and "| similarity.margin | 1.0 |" in card
vectors = opened(folder).embed(["kar kap", "lost kap"])
np.testing.assert_allclose(vectors, served(folder).answer("embed", ["kar kap", "lost kap"]), atol=1e-6)
