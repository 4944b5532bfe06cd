"""Start a model of more positions from a published one: its position embeddings are copied again and again, and a model
with full attention may become one with a window (Beltagy et al. 2020, section 5).
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from pipeline.config.model import FAMILY_PARTS, Model
from pipeline.model.families.table import family_of
from pipeline.model.weights import shapes_of, take, vocabulary_size
from pipeline.saved.weights import VOCABULARY_ROWS

POSITIONS = "encoder.embeddings.positions.weight"
STACKED, GLOBAL = ".attention.qkv.", ".attention.global_{}."
"""Parts of the names of the stacked query, key and value, and of each projection of global tokens."""
PROJECTIONS = tuple(map(GLOBAL.format, ("query", "key", "value")))


def longer_model(chosen: Model, given: Model) -> Model:
    """Return the settings of a published model, with the family and the positions that `chosen` extends it to.

    The family changes only to one that continues the published one. Positions change only if both models have
    embeddings of them, and only to more; the default of model.maximum_positions is no choice.
    """
    if given.family in FAMILY_PARTS[chosen.family].continues:
        given = replace(given, family=chosen.family, attention=chosen.attention)
    wanted = chosen.maximum_positions
    is_set = wanted != Model.maximum_positions and chosen.position_rows > 0 and given.position_rows > 0
    return replace(given, maximum_positions=wanted) if is_set and wanted > given.maximum_positions else given


def description(given: Model, wanted: Model) -> str | None:
    """Return one line about what is copied to start the model `wanted` from the model `given`; None for nothing."""
    parts = []
    if wanted.maximum_positions > given.maximum_positions:
        parts.append(
            f"embeddings of {given.maximum_positions:,} positions copied again and again to "
            f"{wanted.maximum_positions:,}"
        )
    if wanted.family != given.family:
        family = family_of(wanted)
        parts.append(f"the {family_of(given).title} continues as {family.article} {family.title}")
    if _adds_global(given, wanted):
        parts.append("query, key and value copied to the projections of global tokens")
    return f"init: {'; '.join(parts)}" if parts else None


def longer_weights(
    tensors: dict[str, Tensor], like: Mapping[str, Tensor], given: Model, wanted: Model
) -> dict[str, Tensor]:
    """Return the weights of a published model `given` that fit a module of settings `wanted`, by our names.

    `like` is the module's state. If it has fewer word embeddings, the last ones of the model are left out. Raises
    CheckpointError as `take` does.
    """
    adds = _adds_global(given, wanted)
    shapes = {name: tensor for name, tensor in like.items() if not (adds and any(part in name for part in PROJECTIONS))}
    if POSITIONS in shapes:
        shapes[POSITIONS] = torch.empty(given.position_rows, given.embedded_width, device="meta")
    family = family_of(given)
    entries = {name: len(like[name]) for name in VOCABULARY_ROWS if name in like}
    rows = vocabulary_size(shapes_of(tensors), family)
    for name, count in entries.items():
        shapes[name] = torch.empty(max(rows, count), *like[name].shape[1:], device="meta")
    state = take(tensors, shapes, family).state
    state |= {name: state[name][:count] for name, count in entries.items() if name in state}
    if POSITIONS in state:
        state[POSITIONS] = repeated(state[POSITIONS], given.first_position, wanted.position_rows)
    return state | (_global_projections(state) if adds else {})


def repeated(table: Tensor, first: int, rows: int) -> Tensor:
    """Return position embeddings (rows, width) that repeat a table from row `first` on; earlier rows occur once."""
    own = table[first:]
    times = -(-(rows - first) // len(own))
    return torch.cat((table[:first], own.repeat(times, 1)))[:rows]


def _global_projections(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy of each layer's query, key and value under the names of the projections of global tokens."""
    return {
        name.replace(STACKED, part): rows.clone()
        for name, tensor in state.items()
        if STACKED in name
        for part, rows in zip(PROJECTIONS, tensor.chunk(3), strict=True)
    }


def _adds_global(given: Model, wanted: Model) -> bool:
    """Return whether only the model `wanted` has projections of global tokens."""
    return wanted.has_global_tokens and not given.has_global_tokens
