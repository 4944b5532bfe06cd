"""Quantise the ONNX graphs to 8-bit weights for CPUs, and compare accuracy and latency with float32."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional as F

from pipeline.batch import MaskedBatch
from pipeline.config.model import Model
from pipeline.errors import CheckpointError
from pipeline.export.onnx_graphs import EMBEDDING, FILL_MASK, quiet, run, session
from pipeline.export.probe import padded, probe
from pipeline.export.trained import Trained
from pipeline.files.local_files import scratch_folder

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

WORST = 0.5
"""Maximum root-mean-square difference between int8 and float32 outputs; with a larger difference, the graph is broken.

The difference is relative to the standard deviation of the float32 outputs. Unrelated outputs differ by 1.4, and the
outputs of correct graphs differ by a few hundredths.
"""
WARM_UP = 5
"""Sequences that are run before timing."""
PERCENTILES = (50, 99)
"""Percentiles of the latency to report."""


@dataclass(frozen=True, kw_only=True)
class MeasuredGraph:
    """Measurements of one fill-mask graph on the exporting machine."""

    megabytes: float
    """Size of the files of both graphs, fill-mask and embedding."""
    loss: float
    """Mean cross-entropy at the masked positions, in nats."""
    accuracy: float
    """Share of masked positions where the most likely entry is the original token."""
    milliseconds: tuple[float, ...]
    """Latency of the logits of one sequence, at each of PERCENTILES."""


def quantize_graphs(float32: Path, folder: Path) -> None:
    """Read both float32 graphs from a folder, and write them with 8-bit weights and dynamically quantised activations.

    Only 7 of the 8 bits are used: processors without VNNI add products in 16 bits, and 8-bit weights would overflow.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    for name in (FILL_MASK, EMBEDDING):
        with quiet(), scratch_folder("export") as temporary:
            # The weights of the output layer are the embeddings, transposed in the graph. Without preprocessing, which
            # stores the transposed weights, quantize_dynamic would skip this layer. The layer takes half of a small
            # model's time.
            quant_pre_process(float32 / name, f"{temporary}/{name}", skip_symbolic_shape=True)
            quantize_dynamic(
                f"{temporary}/{name}", folder / name, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True
            )


def check_int8(float32: Path, folder: Path, trained: Trained) -> str:
    """Load the quantised graphs from disk, compare their outputs with float32's, and return the result in words.

    Raises CheckpointError if a difference is above WORST.
    """
    model = trained.model
    batch = probe(model, trained.vocabulary_size, [min(length, model.maximum_positions) for length in (19, 7, 64)])
    differences = {
        name: deviation(run(session(folder / name), batch, model), run(session(float32 / name), batch, model))
        for name in (FILL_MASK, EMBEDDING)
    }
    for name, share in differences.items():
        if not share <= WORST:
            raise CheckpointError(
                f"export {folder / name}: int8's outputs differ from float32's by {share:.2g} of their standard "
                f"deviation, more than {WORST}: this model cannot be quantised to 8 bits"
            )
    return (
        f"checked: int8's logits differ from float32's by {differences[FILL_MASK]:.2g} of their standard deviation, "
        f"embeddings by {differences[EMBEDDING]:.2g}"
    )


def deviation(theirs: torch.Tensor, ours: torch.Tensor) -> float:
    """Return the root-mean-square difference relative to the standard deviation of `ours`; NaN if any value is NaN."""
    return ((theirs - ours).square().mean().sqrt() / ours.std()).item()


def compare(
    float32: Path, int8: Path, rows: Sequence[MaskedBatch], model: Model
) -> tuple[MeasuredGraph, MeasuredGraph]:
    """Measure the fill-mask graphs of the folders `float32` and `int8`; return float32's measurements, then int8's.

    `rows` are batches of one sequence each. The graphs alternate, so that other load on the machine affects both.
    """
    graphs = [session(folder / FILL_MASK) for folder in (float32, int8)]
    for graph in graphs:
        for batch in rows[:WARM_UP]:
            run(graph, batch, model)
    scored = [[_score(graph, batch, model) for graph in graphs] for batch in rows]
    masked = sum(batch.masked for batch in rows)
    measured = []
    for folder, (loss, right, seconds) in zip((float32, int8), np.array(scored).transpose(1, 2, 0), strict=True):
        size = sum(file.stat().st_size for file in folder.glob("*.onnx*")) / 1e6
        times = tuple(np.percentile(1000 * seconds, PERCENTILES).tolist())
        measured.append(
            MeasuredGraph(megabytes=size, loss=loss.sum() / masked, accuracy=right.sum() / masked, milliseconds=times)
        )
    return measured[0], measured[1]


def _score(graph: "InferenceSession", batch: MaskedBatch, model: Model) -> tuple[float, int, float]:
    """Return the sum of cross-entropies in nats, the number of right first guesses, and the seconds of the graph.

    `batch` has one sequence. The sum and the number are over the masked positions of this sequence.
    """
    inputs = {name: tensor.numpy() for name, tensor in padded(batch, model).items()}
    begun = time.perf_counter()
    (logits,) = graph.run(None, inputs)
    seconds = time.perf_counter() - begun
    logits_M, labels_M = torch.from_numpy(logits[0])[batch.masked_positions_M], batch.masked_labels_M
    return (
        F.cross_entropy(logits_M, labels_M, reduction="sum").item(),
        int((logits_M.argmax(-1) == labels_M).sum()),
        seconds,
    )
