"""Fine-tune on a known task by its name, export the model, and use it."""

from pathlib import Path

from pipeline.config.predict import Score
from pipeline.workflows.score import score
from tests.conftest import WORDS
from tests.rehearsals.steps import exported, fine_tune, opened, pretrain, served

rows = [(f"{first} {second}", "sun" if first < "m" else "rain") for first in WORDS[:20] for second in WORDS[:6]]
Path("data/weather").mkdir(parents=True)
for name, some in {"train": rows[::2], "dev": rows[1::2]}.items():
    lines = ["number\treport\tseen", *(f"{at}\t{text}\t{seen}" for at, (text, seen) in enumerate(some))]
    Path(f"data/weather/{name}.tsv").write_text("\n".join(lines) + "\n")

encoder = exported(pretrain(["--steps", "2"]).folder, "encoder")
rate = ["--optimizer.learning_rate", "5e-3", "--recipe.rows_per_step", "8", "--recipe.epochs", "20"]
dev, model = fine_tune(
    ["--checkpoint", encoder, "--task", "weather", "--data", "data", "--recipe.pooling", "mean", *rate]
)
assert dev["accuracy"] > 0.8, dev
folder = exported(model)
scores = score(Score(checkpoint=folder, task="weather", data=str(Path("data").absolute())), lambda line: None)
assert scores["accuracy"] == dev["accuracy"]
texts = [text for text, _ in rows[1::2]]
labels = [answer["label"] for answer in opened(folder).predict(texts)]
again = served(folder).answer("predict", texts)
assert [("rain", "sun")[row.argmax()] for row in again] == labels
