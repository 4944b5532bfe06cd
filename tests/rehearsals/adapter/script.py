"""Fine-tune the biases of an encoder alone, export the model, and use it."""

from pathlib import Path

import numpy as np
import torch

from pipeline.saved.tensors import read_tensors
from tests.conftest import WORDS
from tests.rehearsals.steps import exported, fine_tune, opened, pretrain, served

rows = [(f"{first} {second}", "early" if first < "m" else "late") for first in WORDS[:24] for second in WORDS[:6]]
for name, some in {"train": rows[::2], "dev": rows[1::2]}.items():
    Path(f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in some))

encoder = exported(pretrain(["--steps", "2"]).folder, "encoder")
rate = ["--optimizer.learning_rate", "1e-2", "--recipe.rows_per_step", "8", "--recipe.epochs", "4"]
files = ["--train", "train.tsv", "--dev", "dev.tsv", "--recipe.pooling", "mean"]
dev, model = fine_tune(["--checkpoint", encoder, *files, "adapter:biases", *rate])
assert list(dev) == ["accuracy", "macro_f1"]

folder = exported(model)
before, after = (read_tensors(f"{where}/model.safetensors") for where in (encoder, folder))
changed = {name for name in before.keys() & after.keys() if not torch.equal(before[name], after[name])}
assert changed and all(name.endswith("bias") for name in changed if ".layer." in name), changed
assert not any("embeddings" in name for name in changed)
texts = [text for text, _ in rows[:9]]
labels = [answer["label"] for answer in opened(folder).predict(texts)]
outputs = np.array(served(folder).answer("predict", texts))
assert [("early", "late")[number] for number in outputs.argmax(1)] == labels
