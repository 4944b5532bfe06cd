"""The model as ONNX graphs, and onnxruntime's way to their outputs.

fill_mask.onnx input_ids, attention_mask, token_type_ids -> logits (batch, length, V) embedding.onnx the same inputs ->
sentence_embedding (batch, width): the mean of the last hidden states, [CLS] and [SEP] among them

Inputs are int64 (batch, length); both sizes are free, length up to the positions learned.
"""

import importlib.util
import io
import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.errors import CheckpointError, ConfigError
from pipeline.export.huggingface import INSTALL
from pipeline.export.inference import embeddings
from pipeline.export.probe import TOLERANCE, difference, padded, probe, probes
from pipeline.export.trained import Trained

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

OPSET = 18
"""The newest opset that supports LayerNormalization and that all recent runtimes implement."""
FILL_MASK, EMBEDDING = "fill_mask.onnx", "embedding.onnx"
NEEDED = ("transformers", "onnx", "onnxscript", "onnxruntime")
WEIGHTS_INSIDE = 2**30
"""Bytes of weights above which they are stored next to the graph: a protobuf message ends at 2^31, and the exporter may
store tied weights twice.
"""


class FillMask(nn.Module):
    """A published masked language model -> logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).logits


class Embedding(nn.Module):
    """A published encoder -> the mean of its last hidden states over the attention mask."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        hidden_NS = self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        kept_NS = attention_mask[:, :, None].to(hidden_NS.dtype)
        return (hidden_NS * kept_NS).sum(1) / kept_NS.sum(1)


def require_onnx(kind: str) -> None:
    """Raise ConfigError with the names of missing packages."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"kind {kind} needs {', '.join(missing)}: {INSTALL}")


def write_graphs(published: Path, folder: Path, trained: Trained) -> None:
    """Write both graphs of a published folder's model to another folder."""
    from transformers import AutoModel, AutoModelForMaskedLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    with quiet():
        subfolder = next(model.folder for model in trained.module.models() if model.use == "masked")
        masked = AutoModelForMaskedLM.from_pretrained(published / subfolder).eval()
        encoder = AutoModel.from_pretrained(published).eval()
        _write_graph(FillMask(masked), folder / FILL_MASK, "logits", trained.model)
        _write_graph(Embedding(encoder), folder / EMBEDDING, "sentence_embedding", trained.model)


def _write_graph(module: Any, file: Path, output: str, model: Model) -> None:
    """Trace a module with its family's inputs and write its graph."""
    length = min(8, model.maximum_positions)
    inputs = padded(probe(model, module.model.config.vocab_size, (length, length)), model)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=model.maximum_positions)}
    torch.onnx.export(
        module.eval(),
        tuple(inputs.values()),
        file,
        input_names=list(inputs),
        output_names=[output],
        dynamic_shapes=(sizes,) * len(inputs),
        opset_version=OPSET,
        dynamo=True,
        external_data=sum(weight.nbytes for weight in module.parameters()) > WEIGHTS_INSIDE,
        verbose=False,
    )


def session(file: Path) -> "InferenceSession":
    """Load a graph from disk for the CPU."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", "0"
    )  # threads that wait in a loop take the cores from the next session
    return InferenceSession(file, options, providers=["CPUExecutionProvider"])


def run(graph: "InferenceSession", batch: Batch, model: Model) -> Tensor:
    """Return a graph's output for a batch: (M, V) logits of all its tokens, or (N, width) embeddings."""
    inputs = padded(batch, model)
    output = torch.from_numpy(graph.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})[0])
    return output[inputs["attention_mask"].bool()] if output.dim() == 3 else output


def check_graphs(folder: Path, trained: Trained) -> str:
    """Load both graphs from disk and compare their outputs with the checkpoint's on ragged batches.

    Raises CheckpointError if they differ.
    """
    ours = {FILL_MASK: trained.module.predict_masked, EMBEDDING: lambda batch: embeddings(trained, batch)}
    for file, answer in ours.items():
        graph = session(folder / file)
        with torch.inference_mode():
            differences = [
                difference(run(graph, batch, trained.model), answer(batch))
                for batch in probes(trained.model, trained.vocabulary_size)
            ]
        largest = torch.tensor(differences).max().item()
        if not largest <= TOLERANCE:
            raise CheckpointError(
                f"export {folder / file}: outputs differ from the checkpoint's by {largest:.2g} of the largest, more "
                f"than {TOLERANCE}"
            )
    return (
        f"checked: onnxruntime's logits and embeddings equal ours on ragged batches within {TOLERANCE} of the largest"
    )


@contextmanager
def quiet() -> Generator[None]:
    """Suppress the exporters' developer messages."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
