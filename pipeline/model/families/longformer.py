"""Longformer (Beltagy et al. 2020), as transformers publishes it: RoBERTa's tensors, and projections for global tokens.

Its masked-token head and its heads of tasks are those of RoBERTa.
"""

from dataclasses import replace
from typing import Any

from pipeline.config.model import Model
from pipeline.config.model_parts import GlobalLocalAttention
from pipeline.errors import CheckpointError
from pipeline.model.families.bert import buffers, encoder_names
from pipeline.model.families.roberta import ROBERTA
from pipeline.model.family import Family

PREFIX = "longformer."
PROJECTIONS = {f"attention.global_{part}": f"attention.self.{part}_global" for part in ("query", "key", "value")}
WINDOW = "attention_window"


def _to_config(settings: Model) -> dict[str, Any]:
    """Return the window of each layer."""
    assert isinstance(settings.attention, GlobalLocalAttention)
    return {WINDOW: [settings.attention.window] * settings.layers}


def _from_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the attention. Raises CheckpointError if the window is no even number or differs between layers."""
    stated, layers = config.get(WINDOW, GlobalLocalAttention.window), config["num_hidden_layers"]
    windows = stated if isinstance(stated, list) else [stated] * layers
    if len(windows) != layers or any(window != windows[0] for window in windows):
        raise CheckpointError(
            f"config.json: {WINDOW} is {stated!r}, but must be one number, or the same number for each of the "
            f"{layers} layers (num_hidden_layers)"
        )
    window = windows[0] if windows else GlobalLocalAttention.window
    if not isinstance(window, int) or isinstance(window, bool) or window < 2 or window % 2:
        raise CheckpointError(f"config.json: {WINDOW} is {window!r}, but must be an even number of at least 2")
    return {"attention": GlobalLocalAttention(window=window)}


LONGFORMER: Family = replace(
    ROBERTA,
    name="longformer",
    title="Longformer",
    names=ROBERTA.names
    | encoder_names(PREFIX)
    | {"choice_layer": f"{PREFIX}pooler.dense"}
    | {f"encoder.layers.#.{ours}": f"{PREFIX}encoder.layer.#.{theirs}" for ours, theirs in PROJECTIONS.items()},
    encoder=PREFIX,
    tied={
        "lm_head.decoder.weight": f"{PREFIX}embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    other_heads=(f"{PREFIX}pooler.", *ROBERTA.other_heads),
    buffers=buffers(PREFIX),
    fixed=ROBERTA.fixed | {"model_type": "longformer"},
    parts_to_config=_to_config,
    parts_from_config=_from_config,
    separator_field="sep_token_id",
    has_graphs=False,
    class_prefix="Longformer",
    architectures={use: name.replace("Roberta", "Longformer") for use, name in ROBERTA.architectures.items()},
)
