"""Pretrain a RoBERTa with RMSNorm, export it, fine-tune it, and use both models."""

from pathlib import Path

import numpy as np
import torch

from pipeline.config.export import Export
from pipeline.errors import ConfigError
from pipeline.model.norm import RMSNorm
from pipeline.reporting import no_op
from pipeline.text.training import train_vocabulary
from pipeline.train.slot_memory import step_bytes
from pipeline.workflows.export import export
from tests.conftest import TINY, of_family, text_of
from tests.rehearsals.steps import exported, losses, opened, pretrain, served

vocabulary = train_vocabulary(map(text_of, range(30)), size=300, kind="byte-bpe", lowercase=False)
run = pretrain(["--steps", "40"], of_family("rms-roberta", TINY, vocabulary), vocabulary)
assert run.config.model.family == "rms-roberta" and step_bytes(run.config, run.config.all_phases[0], 4) > 0
first, last = losses(run, "train/mlm_loss")
assert last < first - 0.2, (first, last)
assert np.isfinite(run.logged[40]["heldout/mlm_loss"])

folder = exported(run.folder)
model, text = opened(folder), "Kar<mask> lond."
norms = [part for part in model.encoder.modules() if isinstance(part, torch.nn.LayerNorm)]
assert len(norms) == 5 and all(isinstance(part, RMSNorm) and part.bias is None for part in norms)
states = norms[0](torch.tensor([[3.0, -4.0] * 16]))
assert torch.allclose(states / norms[0].weight, torch.tensor([3.0, -4.0] * 16) / 12.5**0.5)  # the mean stays
guess = model.fill(text, top=1)[0][0]
assert served(folder).answer("fill", [text], top=1)[0][0][0]["token"] == vocabulary.ids[guess["token"]]
card = Path(f"{folder}/README.md").read_text()
assert "RMS-RoBERTa" in card and "cannot load this model" in card
try:
    export(Export(run=run.folder, kinds=("onnx",)), no_op)
    raise AssertionError("an ONNX graph of an architecture that transformers lacks")
except ConfigError as error:
    assert "transformers has, and it has no RMS-RoBERTa: choose huggingface" in str(error)

texts = [f"{word} {other}" for word in ("Kar", "lost") for other in ("mist", "kap", "lond", "sur")] * 4
tuned = model.fit(texts, [text.split()[0] for text in texts], epochs=10, rows_per_step=8, learning_rate=1e-2)
tuned.save("tuned")
answers = [row["label"] for row in opened("tuned").predict(texts)]
assert answers == [row["label"] for row in tuned.predict(texts)]
assert np.mean([answer in text for answer, text in zip(answers, texts)]) > 0.9
logits = served("tuned").answer("predict", texts[:4])
assert [tuned.tuned.about.task.labels[row.argmax()] for row in logits] == answers[:4]
