"""BERT with exchanged parts: an architecture of ours, for ablations. transformers has none like it and refuses the
model_type.
"""

import dataclasses
from dataclasses import replace
from typing import Any, get_args

from pipeline.config.flat import flatten, unflatten
from pipeline.config.model import Model
from pipeline.config.model_parts import Attention, Block, Inner, Positions
from pipeline.errors import CheckpointError, ConfigError
from pipeline.model.families.bert import BERT
from pipeline.model.family import Family


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Parts:
    """Settings of the parts that may be exchanged."""

    inner: Inner
    block: Block
    bias: bool
    positions: Positions
    attention: Attention


def _to_config(settings: Model) -> dict[str, Any]:
    """Return the field `parts`: dotted name -> value of the settings of all exchangeable parts."""
    parts = {part.name: getattr(settings, part.name) for part in dataclasses.fields(_Parts)}
    return {"parts": flatten(_Parts(**parts))}


def _from_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of all exchangeable parts. Raises CheckpointError if the field `parts` is not as written."""
    parts: Any = config.get("parts")
    try:
        read = unflatten(_Parts, parts)
        known = read.inner in get_args(Inner) and read.block in get_args(Block) and isinstance(read.bias, bool)
        if flatten(read) != parts or not known:
            raise ValueError(parts)
    except (ConfigError, ValueError, TypeError, KeyError, AttributeError, StopIteration) as error:
        raise CheckpointError(
            f"config.json: parts is {parts!r}, but must be the parts of a model as bertstream writes them"
        ) from error
    return vars(read)


OWN: Family = replace(
    BERT,
    title="modified BERT",
    names=BERT.names | {"encoder.final_norm": "bert.encoder.final_norm"},
    fixed=BERT.fixed | {"model_type": "bertstream"},
    parts_to_config=_to_config,
    parts_from_config=_from_config,
    in_transformers=False,
    class_prefix="Bertstream",
    architectures={use: f"Bertstream{name.removeprefix('Bert')}" for use, name in BERT.architectures.items()},
)
