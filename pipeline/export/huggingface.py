"""Export a trained encoder in the published format: a folder that transformers loads with from_pretrained."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from pipeline import storage
from pipeline.batch import Batch
from pipeline.errors import CheckpointError
from pipeline.export.card import Lineage, Made, card, trained_length
from pipeline.export.hub import copy_file
from pipeline.export.markdown import CARD
from pipeline.export.probe import TOLERANCE, difference, padded, probes
from pipeline.export.sentence_files import sentence_files
from pipeline.export.trained import Trained, load_module, load_trained
from pipeline.local_files import scratch_folder
from pipeline.objectives.pretraining import BertPretraining
from pipeline.train.checkpoint import TRAINING_ONLY
from pipeline.train.run import settings_of

INSTALL = "pip install 'bertstream[export]'"
USE = """Fill blanks with `transformers`:

```python
from transformers import pipeline

fill = pipeline("fill-mask", model="FOLDER")
print(fill("A text with a [MASK] in it."))
```

Vectors of length 1, the mean of the last hidden states, with `sentence-transformers`:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")
print(model.encode(["A first text.", "A second one."]).shape)
```

Both, and fine-tuning on lists, with `bertstream`:

```python
from pipeline import api

model = api.load("PLACE")
print(model.fill("A text with a [MASK] in it."))
print(model.embed(["A first text.", "A second one."]).shape)
```"""
"""Usage of a folder of the published format; PLACE is the folder as pipeline.api names it."""
Logits = Callable[[Batch], tuple[Tensor, Tensor]]
"""Batch -> logits (M, V) of its masked tokens and (N, 2) of its pairs."""


def export(checkpoint: str, target: str, lineage: Lineage) -> str:
    """Publish a checkpoint's model, tokenizer and card to `target`, and return how it was checked.

    Raises CheckpointError if the checkpoint is damaged, or the exported model's logits differ from its own.
    """
    trained = load_trained(checkpoint)
    with scratch_folder("export") as temporary:
        made = write_published(trained, lineage, temporary)
        (temporary / CARD).write_text(card(trained, lineage, "huggingface", made))
        storage.publish(temporary, target, {"checkpoint": checkpoint})
    return made.checked


def write_published(trained: Trained, lineage: Lineage, folder: Path) -> Made:
    """Write the published format and sentence-transformers' files to an empty folder, and check them."""
    copy_model(trained.checkpoint, folder)
    for name, content in sentence_files(trained.model.width, trained_length(settings_of(lineage.recorded))).items():
        storage.write_bytes(str(folder / name), content.encode())
    return Made(checked=check(folder, trained), use=USE, tags=("sentence-transformers",))


def copy_model(checkpoint: str, folder: Path) -> None:
    """Copy a checkpoint's files of the published format to a local folder."""
    for name in storage.read_json(storage.join(checkpoint, storage.MANIFEST))["files"]:
        if name not in TRAINING_ONLY:
            copy_file(storage.join(checkpoint, name), f"{folder}/{name}")


def check(folder: Path, trained: Trained) -> str:
    """Load an exported folder, with transformers if installed, and compare its logits with the checkpoint's.

    Raises CheckpointError if they differ.
    """
    installed = importlib.util.find_spec("transformers") is not None
    theirs = published_logits(folder) if installed else _own_logits(load_module(str(folder), trained.model)[0])
    found = largest_difference(theirs, trained)
    if not found <= TOLERANCE:
        raise CheckpointError(
            f"export {folder}: {'transformers' if installed else 'our'} logits differ from the checkpoint's by "
            f"{found:.2g} of the largest, more than {TOLERANCE}"
        )
    return (
        f"checked: logits equal transformers' within {TOLERANCE} of the largest"
        if installed
        else f"not checked against transformers, which is not installed: {INSTALL}"
    )


def largest_difference(theirs: Logits, trained: Trained) -> float:
    """Return the largest difference from the checkpoint's logits in float32, relative to the largest logit (to 1 if
    that is smaller).
    """
    ours = _own_logits(trained.module)
    with torch.inference_mode():
        found = [
            difference(*pair)
            for batch in probes(trained.vocabulary_size, trained.model.maximum_positions)
            for pair in zip(theirs(batch), ours(batch), strict=True)
        ]
    return torch.tensor(found).max().item()


def _own_logits(module: BertPretraining) -> Logits:
    """Return a function that computes our model's logits."""
    return lambda batch: (module.predict_masked(batch), module.pair_logits(module.encoder(batch), batch))


def published_logits(folder: Path) -> Logits:
    """Return a function that computes transformers' logits of a folder's model."""
    from transformers import AutoModelForPreTraining
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForPreTraining.from_pretrained(folder).eval()

    def logits(batch: Batch) -> tuple[Tensor, Tensor]:
        inputs = padded(batch)
        output = model(**inputs)
        return output.prediction_logits[inputs["attention_mask"].bool()], output.seq_relationship_logits

    return logits
