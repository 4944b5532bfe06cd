"""Write a model as ONNX graphs, and run them with onnxruntime.

fill_mask.onnx    outputs logits (batch, length, V)
embedding.onnx    outputs sentence_embedding (batch, width): mean of the last hidden states, [CLS] and [SEP] included

Both graphs have the inputs input_ids, attention_mask and, in families with segments, token_type_ids: int64 (batch,
length). The batch may have any size. The length may be at most the model's number of positions.

Shapes: N sequences, S tokens in the longest, T tokens in all, V vocabulary entries.
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
"""Version of ONNX's operators. This version has LayerNormalization, and all recent runtimes implement it."""
FILL_MASK, EMBEDDING = "fill_mask.onnx", "embedding.onnx"
NEEDED = ("transformers", "onnx", "onnxscript", "onnxruntime")
"""Packages that an ONNX export needs."""
WEIGHTS_INSIDE = 2**30
"""Maximum bytes of weights inside the graph's file; larger weights are stored in a separate file.

Reason: the graph's file (protobuf) can have at most 2^31 bytes, and the exporter may store tied weights twice.
"""


class FillMask(nn.Module):
    """A published masked language model that returns logits (N, S, V) only."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).logits


class EmbeddingGraph(nn.Module):
    """A published encoder that returns the mean (N, width) of the last hidden states of unpadded tokens."""

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
    """Raise ConfigError if one of NEEDED is not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"kind {kind} needs {', '.join(missing)}: {INSTALL}")


def write_graphs(published: Path, folder: Path, trained: Trained) -> None:
    """Write both graphs of the model in the folder `published` to `folder`."""
    from transformers import AutoModel, AutoModelForMaskedLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    with quiet():
        subfolder = next(model.folder for model in trained.module.models() if model.use == "masked")
        masked = AutoModelForMaskedLM.from_pretrained(published / subfolder).eval()
        encoder = AutoModel.from_pretrained(published).eval()
        write_graph(FillMask(masked), folder / FILL_MASK, "logits", trained.model)
        write_graph(EmbeddingGraph(encoder), folder / EMBEDDING, "sentence_embedding", trained.model)


def write_graph(module: Any, file: Path, output: str, model: Model) -> None:
    """Trace a module with the inputs of the model's family, and write its graph to a file."""
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


def session(file: Path, threads: int = 0) -> "InferenceSession":
    """Load a graph from disk for the CPU; `threads` 0: a thread per core."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = threads
    # With spinning, idle threads wait in a busy loop and take CPU time from the next session.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return InferenceSession(file, options, providers=["CPUExecutionProvider"])


def run(graph: "InferenceSession", batch: Batch, model: Model) -> Tensor:
    """Return a graph's float32 output for a batch: values of tokens (T, ...) without padding, or vectors (N, width)."""
    inputs = padded(batch, model)
    output = torch.from_numpy(graph.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})[0])
    return output[inputs["attention_mask"].bool()] if output.dim() == 3 else output


def check_graphs(folder: Path, trained: Trained) -> str:
    """Load both graphs from disk, compare their outputs with the checkpoint's, and return a description of the check.

    The batches have rows of unequal length. Raises CheckpointError if an output differs by more than TOLERANCE.
    """
    ours = {FILL_MASK: trained.module.predict_masked, EMBEDDING: lambda batch: embeddings(trained, batch)}
    for file, our_output in ours.items():
        graph = session(folder / file)
        with torch.inference_mode():
            differences = [
                difference(run(graph, batch, trained.model), our_output(batch))
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
    """Suppress the many log lines, warnings and prints of exporters while the context is open."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
