"""Fine-tune a model that counts how often a word occurs in a text, export it, and use it."""

import json
import random
from pathlib import Path

import numpy as np

from pipeline.config.predict import Score
from pipeline.errors import DataError
from pipeline.workflows.score import score
from tests.conftest import WORDS
from tests.rehearsals.steps import exported, fine_tune, opened, pretrain, served

draw = random.Random(0)
texts = [[draw.choice(("kar", *WORDS[:5])) for _ in range(draw.randint(2, 9))] for _ in range(240)]
rows = [{"text": " ".join(words), "label": words.count("kar")} for words in texts]
for name, some in {
    "train": rows[:200],
    "dev": rows[200:],
    "wrong": [*rows[:100], {"text": "kar", "label": -1}],
}.items():
    Path(f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in some))

encoder = exported(pretrain(["--steps", "2"]).folder, "encoder")
rate = ["--optimizer.learning_rate", "2e-3", "--recipe.rows_per_step", "8", "--recipe.epochs", "8"]
asked = ["--checkpoint", encoder, "--kind", "count", *rate, "--recipe.pooling", "mean"]
dev, model = fine_tune([*asked, "--train", "train.jsonl", "--dev", "dev.jsonl"])
assert list(dev) == ["mean_absolute_error", "pearson"]
try:
    fine_tune([*asked, "--train", "wrong.jsonl"])
    raise AssertionError("a count below 0")
except DataError as error:
    assert "wrong has the label -1, but a count is a whole number from 0 on" in str(error)

folder, lines = exported(model), []
scores = score(Score(checkpoint=folder, input=str(Path("dev.jsonl").absolute())), lines.append)
assert abs(scores["mean_absolute_error"] - dev["mean_absolute_error"]) < 1e-3, (scores, dev)
assert any("baseline: the mean count" in line for line in lines), lines
held, mean = rows[200:], np.mean([row["label"] for row in rows[:200]])
assert scores["mean_absolute_error"] < 0.7 * np.mean([abs(row["label"] - mean) for row in held]), (scores, lines)
card = Path(f"{folder}/README.md").read_text()
assert "that predicts a count for a text" in card and "| dev mean_absolute_error |" in card

counts = [row["score"] for row in opened(folder).predict([row["text"] for row in held])]
assert np.mean([abs(count - row["label"]) for count, row in zip(counts, held)]) < scores["mean_absolute_error"] + 1e-3
again = served(folder).answer("predict", [row["text"] for row in held])
np.testing.assert_allclose(np.ravel(again), counts, atol=1e-4)
