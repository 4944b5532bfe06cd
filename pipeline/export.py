"""A trained encoder in the published format: a folder that transformers loads with from_pretrained."""

import importlib.util
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pyarrow import fs

from pipeline import storage
from pipeline.batch import Batch, collate
from pipeline.config.model import Model
from pipeline.errors import CheckpointError
from pipeline.model.weights import from_published
from pipeline.objectives.pretraining import BertPretraining
from pipeline.text.schema import EXAMPLE
from pipeline.train.checkpoint import TRAINING_ONLY, WEIGHTS, read_tensors

TOLERANCE = 1e-5


def export(checkpoint: str, target: str, model: Model) -> str:
    """Publish a checkpoint's model and tokenizer to `target` and say in a few words how it was checked.

    Raises CheckpointError when the logits that transformers computes from it differ from ours.
    """
    with tempfile.TemporaryDirectory(prefix="bertstream-export-") as temporary:
        for name in storage.read_json(storage.join(checkpoint, storage.MANIFEST))["files"]:
            if name not in TRAINING_ONLY:
                system, path = storage.filesystem(storage.join(checkpoint, name))
                fs.copy_files(path, f"{temporary}/{name}", source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
        checked = check(Path(temporary), model)
        storage.publish(Path(temporary), target, {"checkpoint": checkpoint})
    return checked


def check(folder: Path, model: Model) -> str:
    """Load an exported folder with transformers and compare logits, where it is installed."""
    if importlib.util.find_spec("transformers") is None:
        return "not checked against transformers, which is not installed"
    difference = largest_difference(folder, model)
    if not difference <= TOLERANCE:
        raise CheckpointError(f"export {folder}: logits differ from transformers' by {difference:.2g} of the largest, more than {TOLERANCE}")
    return f"checked: logits equal transformers' within {TOLERANCE} of the largest"


def largest_difference(folder: Path, model: Model) -> float:
    """Largest difference between transformers' logits and ours on two sequences of random ids, in float32, as a share of the largest logit (of 1 where that is smaller)."""
    from transformers import AutoModelForPreTraining
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    theirs = AutoModelForPreTraining.from_pretrained(folder).eval()
    ours = BertPretraining(model, theirs.config.vocab_size).eval()
    ours.load_state_dict(from_published(read_tensors(str(folder / WEIGHTS)), model))
    batch = probe(theirs.config.vocab_size, min(64, model.maximum_positions))
    with torch.inference_mode():
        output = theirs(
            input_ids=batch.ids_T.view(2, -1), token_type_ids=batch.segments_T.view(2, -1), attention_mask=torch.ones(2, batch.maximum_length, dtype=torch.long)
        )
        mlm = output.prediction_logits.reshape(-1, theirs.config.vocab_size)[batch.masked_positions_M]
        nsp = output.seq_relationship_logits
        ours_mlm, ours_nsp = ours.predict_masked(batch), ours.pair_logits(ours.encoder(batch), batch)
    differences = torch.stack([(mlm - ours_mlm).abs().max(), (nsp - ours_nsp).abs().max()])  # torch's max lets NaN win, Python's does not
    return (differences.max() / mlm.abs().max().clamp(min=1)).item()


def probe(vocabulary_size: int, length: int) -> Batch:
    """Two sequences of random ids, scored at every position."""
    ids = np.random.default_rng(0).integers(0, vocabulary_size, (2, length))
    rows = [
        {
            "ids": sequence,
            "first_length": length // 2,
            "masked_positions": range(length),
            "masked_labels": sequence,
            "not_next": False,
            "document_a": 0,
            "document_b": 0,
        }
        for sequence in ids.tolist()
    ]
    return collate(pa.Table.from_pylist(rows, schema=EXAMPLE))
