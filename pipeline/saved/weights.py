"""Read the weights of a pretrained model, verify what it must have, and give them to a module."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pipeline.config.model import Model
from pipeline.errors import CheckpointError, listed
from pipeline.model.families.table import family_of
from pipeline.model.family import OF_OWN_HEADS, Family
from pipeline.model.weights import (
    Taken,
    pretrained_parts,
    published_names,
    require_sizes,
    shapes_of,
    take,
    to_published,
    vocabulary_size,
    words_name,
)
from pipeline.saved.model import SavedModel
from pipeline.saved.tensors import errors_with_location
from pipeline.text.vocabulary import Vocabulary

VOCABULARY_ROWS = ("encoder.embeddings.words.weight", "masked_token_head.bias")
"""Names of the parameters with one row per vocabulary entry."""
PADDED_TO = (8, 16, 32, 64, 100, 128)
"""Published models may pad the table of word embeddings: the number of rows is then a multiple of one of these
(DeBERTa v3: 128,100 rows for 128,001 entries).
"""
MOST_NAMED = 4
"""Maximum tensor names in a message."""


@dataclass(frozen=True, kw_only=True)
class Usable:
    """The usable tensors of a pretrained model, in float32."""

    taken: Taken
    rows: int
    """Number of word embeddings."""


def read_usable(saved: SavedModel, entries: int | None) -> Usable:
    """Read a pretrained model's weights, and verify their names, shapes and values.

    `entries` is the size of the model's own vocabulary, and rows beyond it are left out; None keeps them. Raises
    CheckpointError if the model cannot be used.
    """
    tensors = {name: tensor.float() for name, tensor in saved.tensors().items() if tensor.is_floating_point()}
    return errors_with_location(saved.location, _usable, saved.settings, tensors, entries)


def _usable(model: Model, tensors: dict[str, Tensor], entries: int | None) -> Usable:
    """Return the usable ones of a pretrained model's tensors."""
    family = family_of(model)
    if not (rows := vocabulary_size(shapes_of(tensors), family)):
        raise CheckpointError(
            f"tensor {words_name(family)} is missing: without word embeddings there is no {family.title} to start from"
        )
    require_sizes(model, tensors)
    taken = take(tensors, pretrained_parts(model, rows).state_dict(), family)
    _require_usable(taken, family)
    if entries is None or rows <= entries:
        return Usable(taken=taken, rows=rows)
    state = {name: tensor[:entries] if name in VOCABULARY_ROWS else tensor for name, tensor in taken.state.items()}
    return Usable(taken=replace(taken, state=state), rows=entries)


def _require_usable(taken: Taken, family: Family) -> None:
    """Raise CheckpointError if a tensor is missing, unexpected or not finite; heads may be missing as a whole."""
    present = {published for name in taken.state for published in published_names(name, family)}
    absent_heads = tuple(head for head in family.heads if not any(name.startswith(head) for name in present))
    if missing := [name for name in taken.missing if not name.startswith(absent_heads)]:
        raise CheckpointError(
            f"{tensors_named(missing)} missing: only whole heads may be missing "
            f"({', '.join(head.rstrip('.') for head in family.heads)})"
        )
    unused = (*family.other_heads, *OF_OWN_HEADS)
    if surplus := [name for name in taken.surplus if not name.startswith(unused)]:
        raise CheckpointError(
            f"{tensors_named(surplus)} unexpected: {family.article} {family.title} with the layers and heads of "
            "config.json has no tensor of that name"
        )
    if broken := [name for name, tensor in to_published(taken.state, family).items() if not _is_finite(tensor)]:
        raise CheckpointError(f"{tensors_named(broken)} not finite: NaN or infinity among the weights")


def _is_finite(tensor: Tensor) -> bool:
    """Return whether all values are finite; only the minimum and maximum are checked, which is much faster."""
    return not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())


def require_fitting_vocabulary(location: str, path: str, rows: int, vocabulary: Vocabulary) -> None:
    """Raise CheckpointError unless the vocabulary at `path` has as many entries as the model has word embeddings."""
    if rows != vocabulary.size:
        raise CheckpointError(
            f"{location}: the weights have {rows} word embeddings, but the vocabulary in {path} has "
            f"{vocabulary.size} entries: set vocabulary.path to the vocabulary that the model was trained with"
        )


def fill(module: nn.Module, state: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Give a module without memory its weights, without copying them; return the names that `state` lacks.

    Parameters with these names have arbitrary values afterwards.
    """
    own = module.state_dict()
    absent = {name: torch.empty(tensor.shape) for name, tensor in own.items() if name not in state}
    module.load_state_dict(absent | {name: tensor for name, tensor in state.items() if name in own}, assign=True)
    return tuple(absent)


def padding_rows(rows: int, entries: int) -> int:
    """Return how many of a model's `rows` word embeddings are padding, if a vocabulary from elsewhere has `entries`.

    For example, with 30,528 rows and 30,522 entries, 6 rows are padding. The result is 0 unless `rows` is `entries`
    rounded up to a multiple of a number in PADDED_TO.
    """
    return (
        rows - entries
        if rows > entries and any(rows == -(-entries // multiple) * multiple for multiple in PADDED_TO)
        else 0
    )


def tensors_named(names: list[str]) -> str:
    """Return the beginning of a message, such as "tensor a is" or "tensors a, b, c, d and 3 more are"."""
    return f"tensor{'s' * (len(names) > 1)} {listed(names, MOST_NAMED)} {'are' if len(names) > 1 else 'is'}"
