"""Run a served model's encoder with onnxruntime instead of torch; its head stays in torch.

The graph is written when the model is loaded, from transformers' encoder of the same files, and its states must equal
those of our encoder.
"""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from pipeline.config.model_parts import BlockSparseAttention
from pipeline.embed.loaded import LoadedEncoder
from pipeline.errors import CheckpointError, ConfigError
from pipeline.export.onnx_graphs import quiet, require_onnx, run, session, write_graph
from pipeline.export.probe import TOLERANCE, difference, probes
from pipeline.files.local_files import scratch_folder
from pipeline.model.families.table import family_of
from pipeline.saved.model import open_saved

GRAPH = "encoder.onnx"


class LastStates(nn.Module):
    """A published encoder that returns the last hidden states (N, S, width) only."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return self.model(**inputs, **segments).last_hidden_state


def require_onnx_encoder(loaded: LoadedEncoder) -> None:
    """Raise ConfigError if packages are missing, or if no graph can be written for the model's family."""
    require_onnx("onnx")
    family = family_of(loaded.settings)
    sparse = isinstance(loaded.settings.attention, BlockSparseAttention)
    if sparse or not (family.in_transformers and family.has_graphs):
        raise ConfigError(
            f"onnx (True) is not for {family.title}, for which transformers has no graph of texts of any length: leave "
            "onnx out"
        )


def use_onnx(loaded: LoadedEncoder) -> None:
    """Make the encoder of a model on the CPU compute with onnxruntime, in float32.

    Raises ConfigError as `require_onnx_encoder` does, and CheckpointError if the graph computes other states.
    """
    require_onnx_encoder(loaded)
    encoder, settings = loaded.encoder, loaded.settings
    with scratch_folder("onnx") as scratch:
        graph = session(_written(loaded, Path(scratch)), torch.get_num_threads())
    with torch.inference_mode():
        for batch in probes(settings, loaded.vocabulary.size):
            largest = difference(run(graph, batch, settings), encoder(batch))
            if not largest <= TOLERANCE:
                raise CheckpointError(
                    f"checkpoint {loaded.location}: onnxruntime's states differ from ours by {largest:.2g} of the "
                    f"largest, more than {TOLERANCE}: leave onnx out"
                )
    encoder.forward = partial(run, graph, model=settings)


def _written(loaded: LoadedEncoder, scratch: Path) -> Path:
    """Write the encoder's graph, and return its file."""
    from transformers import AutoModel
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    with quiet(), open_saved(loaded.location, verify=False).fetched() as local:
        encoder = AutoModel.from_pretrained(local.folder).eval()
        write_graph(LastStates(encoder), scratch / GRAPH, "last_hidden_state", loaded.settings)
    return scratch / GRAPH
