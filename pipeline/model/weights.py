"""Convert weights and settings to and from published checkpoints, whose names depend on the family."""

import math
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pipeline.config.model import FAMILY_PARTS, Model
from pipeline.config.model_parts import LearnedPositions
from pipeline.errors import CheckpointError, listed
from pipeline.model.encoder import Encoder
from pipeline.model.enhanced_decoder import EnhancedDecoder
from pipeline.model.families.table import FAMILIES, MODEL_TYPES, family_of
from pipeline.model.family import OF_OWN_HEADS, OWN_HEADS, Family
from pipeline.model.heads import MaskedTokenHead, NextSentenceHead, ReplacedTokenHead

Module = TypeVar("Module", bound=nn.Module)
Found = TypeVar("Found", Tensor, torch.Size)
"""A tensor of a published checkpoint, or its shape."""
PADDING_ENTRY = 1
"""RoBERTa's pad_token_id if config.json does not state it, as in transformers."""
FEW_LAYERS, FEW_WEIGHTS, SLACK = 1_000, 1 << 24, 64
"""Limits of `require_sizes`.

A model with at most FEW_LAYERS layers and SLACK * FEW_WEIGHTS weights is always built. A model with more layers may
have at most as many layers as its files have tensors. A model with more weights may have at most SLACK times the number
of weights in its files.
"""


def _published_name(name: str, family: Family) -> str:
    """Return the published name of one of our parameters.

    For a qkv, the returned name is not complete: after the infix of `family.fused`, the caller must insert the name of
    query, key or value.
    """
    module, leaf = name.rsplit(".", 1)
    number = re.search(r"\.layers\.(\d+)\.", name)
    if number is None:
        return f"{(OWN_HEADS | family.names)[module]}.{leaf}"
    pattern = module.replace(f".layers.{number[1]}.", ".layers.#.", 1)
    return f"{family.names[pattern].replace('#', number[1])}.{leaf}"


def published_names(name: str, family: Family) -> tuple[str, ...]:
    """Return the published names of one of our parameters: three names for a qkv that the family splits, in stacking
    order, else one name.
    """
    published = _published_name(name, family)
    if ".qkv." not in name or family.fused is None:
        return (published,)
    infix, parts = family.fused
    return tuple(published.replace(infix, f"{infix}{part}.") for part in parts)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Weights of a published checkpoint that fit a module."""

    state: dict[str, Tensor]
    """Our name -> tensor."""
    missing: tuple[str, ...]
    """Published names that the module has and the checkpoint lacks."""
    surplus: tuple[str, ...]
    """Published names that only the checkpoint has."""


def to_published(state: dict[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Return the tensors of an encoder, and of its heads if it has any, under their published names.

    qkv is split into query, key and value. They share the memory of qkv if possible. Tied output weights are left out.
    """
    published = {}
    for name, tensor in state.items():
        names, whole = published_names(name, family), tensor.detach()
        if ".qkv." in name:
            whole = _regrouped(whole, (3, family.heads_alternating))
        published |= dict(zip(names, (part.contiguous() for part in whole.chunk(len(names))), strict=True))
    return published


def _regrouped(rows: Tensor, sizes: tuple[int, int]) -> Tensor:
    """Return rows that lie in sizes[0] parts of sizes[1] groups each, as sizes[1] parts of sizes[0] groups each."""
    return rows if 1 in sizes else rows.unflatten(0, (*sizes, -1)).transpose(0, 1).flatten(0, 2)


def take(tensors: dict[str, Tensor], like: Mapping[str, Tensor], family: Family) -> Taken:
    """Return the weights of a published checkpoint that fit a module.

    `like` is the module's state, which may be on device meta. LayerNorm's parameters may be named gamma and beta, as in
    the first checkpoints. Names may lack the encoder's prefix. Copies of tied weights are dropped. Raises
    CheckpointError for a tensor with a wrong shape, and for a copy that differs from its original.
    """
    published = _without_copies(_modern(tensors, family), family)
    shapes = {name: tensor.shape for name, tensor in like.items()}
    names = {name: published_names(name, family) for name in shapes}
    wanted = dict.fromkeys(part for name in shapes for part in names[name])
    return Taken(
        state={
            name: _ours(name, _assemble(names[name], shape, published), family)
            for name, shape in shapes.items()
            if published.keys() >= set(names[name])
        },
        missing=tuple(name for name in wanted if name not in published),
        surplus=tuple(name for name in published if name not in wanted),
    )


def _ours(name: str, tensor: Tensor, family: Family) -> Tensor:
    """Return a tensor with its rows in our order."""
    return _regrouped(tensor, (family.heads_alternating, 3)) if ".qkv." in name else tensor


def take_all(tensors: dict[str, Tensor], like: Mapping[str, Tensor], settings: Model) -> dict[str, Tensor]:
    """Return a module's state from a published checkpoint. It must have exactly the tensors of the state `like`, and
    may have heads of OWN_HEADS that the module lacks.

    Raises CheckpointError as `take` and `require_sizes` do, and also for a tensor that is missing or unexpected.
    """
    family = family_of(settings)
    require_sizes(settings, tensors)
    taken = take(tensors, like, family)
    if surplus := [name for name in taken.surplus if not name.startswith(OF_OWN_HEADS)]:
        raise CheckpointError(
            f"tensor {surplus[0]} is unexpected: a model with model.layers {settings.layers} has no tensor of this name"
        )
    if taken.missing:
        raise CheckpointError(f"tensor {taken.missing[0]} is missing: only complete checkpoints can be loaded")
    return taken.state


class Uninitialized(TorchFunctionMode):
    """Skip weight initialisation inside the context.

    Initialisation has no effect on the meta device, but it makes torch load its compiler, which takes two seconds.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init" or func in (Tensor.normal_, Tensor.uniform_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def without_memory() -> Generator[None]:
    """Create all modules inside the context on the meta device, without memory for their weights."""
    with torch.device("meta"), Uninitialized():
        yield


def uninitialized(build: Callable[[], Module]) -> Module:
    """Return the module that `build` returns, with arbitrary weights: all are loaded, and drawing them takes seconds.

    Its modules may not share parameters.
    """
    with without_memory():
        module = build()
    # not by Module.to_empty, which makes torch load its compiler for tensors on the meta device
    own = {name: torch.empty(tensor.shape, dtype=tensor.dtype) for name, tensor in module.state_dict().items()}
    module.load_state_dict(own, assign=True)
    return module


def pretrained_parts(settings: Model, vocabulary_size: int) -> nn.Module:
    """Return the modules that a pretrained checkpoint of the model's family may have, on the meta device."""
    names = family_of(settings).names
    with without_memory():
        parts: dict[str, nn.Module] = {"encoder": Encoder(settings, vocabulary_size)}
        if "masked_token_head" in names:
            parts["masked_token_head"] = MaskedTokenHead(settings, vocabulary_size)
        if "next_sentence_head" in names:
            parts["next_sentence_head"] = NextSentenceHead(settings)
        if "replaced_token_head.score" in names:
            parts["replaced_token_head"] = ReplacedTokenHead(settings)
        if "enhanced_decoder.positions" in names:
            parts["enhanced_decoder"] = EnhancedDecoder(settings)
        return nn.ModuleDict(parts)


def require_sizes(settings: Model, tensors: dict[str, Tensor]) -> None:
    """Raise CheckpointError if the settings describe a far larger model than the tensors do.

    Building such a model could take unlimited memory or time. Smaller differences are not reported here: `take` reports
    the first tensor that does not fit.
    """
    if settings.layers > max(FEW_LAYERS, len(tensors)):
        raise CheckpointError(
            f"config.json: num_hidden_layers is {settings.layers}, but the weights have only {len(tensors)} tensors: "
            "use config.json and weights of the same model"
        )
    per_layer = 4 * settings.width**2 + settings.width * (settings.inner_rows + settings.feed_forward)
    rows = settings.position_rows + settings.segments
    wanted = settings.distinct_layers * per_layer + rows * settings.embedded_width
    held = sum(tensor.numel() for tensor in tensors.values())
    if wanted > SLACK * max(FEW_WEIGHTS, held):
        raise CheckpointError(
            f"config.json: a model of these sizes has at least {wanted:,} weights, but the files have {held:,}: "
            "use config.json and weights of the same model"
        )


def vocabulary_size(shapes: dict[str, torch.Size], family: Family) -> int:
    """Return the number of rows of a published checkpoint's word embeddings; 0 if the checkpoint has none.

    `shapes` maps the published names of the checkpoint's tensors to their shapes.
    """
    words = _modern(shapes, family).get(words_name(family))
    return words[0] if words else 0


def shapes_of(tensors: dict[str, Tensor]) -> dict[str, torch.Size]:
    """Return the shapes of tensors by name."""
    return {name: tensor.shape for name, tensor in tensors.items()}


def words_name(family: Family) -> str:
    """Return the published name of the word embeddings."""
    return _published_name("encoder.embeddings.words.weight", family)


def published_config(
    settings: Model, vocabulary_size: int, pad_id: int, use: str = "masked", sep_id: int | None = None
) -> dict[str, Any]:
    """Return the config.json of a model with these settings; `use` is a key of Family.architectures.

    `sep_id` is the id of the separator entry, for families that state it; None: leave it out.
    """
    family = family_of(settings)
    config = {field: getattr(settings, name) for name, field in family.config.items()}
    config[family.config["maximum_positions"]] += settings.first_position
    if "embedding_width" in family.config:
        config[family.config["embedding_width"]] = settings.embedded_width
    separator = {} if family.separator_field is None or sep_id is None else {family.separator_field: sep_id}
    return (
        config
        | family.parts_to_config(settings)
        | separator
        | family.fixed
        | {
            "architectures": [family.architectures[use]],
            "vocab_size": vocabulary_size,
            "pad_token_id": pad_id,
            "tie_word_embeddings": True,
        }
    )


def model_settings(config: dict[str, Any]) -> Model:
    """Return a published model's settings from its config.json.

    A missing field gets its published default, which is ours or in Family.defaults. Sizes must not be missing. Raises
    CheckpointError for an unsupported architecture or a missing size, and ConfigError for invalid sizes.
    """
    family = _family_in(config)
    config = family.defaults | config
    for field, value in (family.fixed | family.assumed).items():
        if config.get(field, value) != value:
            raise CheckpointError(f"config.json: {field} is {config[field]!r}, but only {value!r} can be loaded")
    missing = next((field for field in family.size_fields if field not in config), None)
    if missing is not None:
        raise CheckpointError(
            f"config.json: {missing} is missing: {family.title} needs {', '.join(family.size_fields)}"
        )
    values: dict[str, Any] = {name: config[field] for name, field in family.config.items() if field in config}
    parts = FAMILY_PARTS[family.name]
    if values.setdefault("activation", parts.activations[0]) not in parts.activations:
        raise CheckpointError(
            f"config.json: {family.config['activation']} is {values['activation']!r}, only "
            f"{' and '.join(map(repr, parts.activations))} can be loaded"
        )
    _require_numbers({name: value for name, value in values.items() if name != "activation"}, family)
    if parts.positions_after_padding:
        first = _padding_entry(config) + 1
        values["maximum_positions"] = values.get("maximum_positions", Model.maximum_positions) - first
        values["positions"] = LearnedPositions(first=first)
    if not parts.tells_segments:
        values.setdefault("segments", parts.segment_rows)
    if values.get("embedding_width") == values["width"]:
        values["embedding_width"] = None
    return Model(family=family.name, **values | family.parts_from_config(config))


def _family_in(config: dict[str, Any]) -> Family:
    """Return the family that a config.json names. Without model_type, it is BERT, as in google-research's files.

    For an unknown family, raises CheckpointError with the names of the known families.
    """
    kind = config.get("model_type", "bert")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise CheckpointError(
            f"config.json: model_type is {kind!r}, but only {listed(map(repr, FAMILIES))} can be loaded"
        )
    family, named = MODEL_TYPES[kind], config.get("architectures") or []
    for name in named if isinstance(named, list) else [named]:
        if not str(name).startswith(family.class_prefix):
            raise CheckpointError(
                f"config.json: architectures is {name!r}, but model_type {kind!r} needs a class of {family.title}"
            )
    return family


def _padding_entry(config: dict[str, Any]) -> int:
    """Return the id of the padding entry. Raises CheckpointError if it is not a whole number of at least 0."""
    entry = config.get("pad_token_id", PADDING_ENTRY)
    if not isinstance(entry, int) or isinstance(entry, bool) or entry < 0:
        raise CheckpointError(f"config.json: pad_token_id is {entry!r}, but must be a whole number of at least 0")
    return entry


def _require_numbers(values: dict[str, Any], family: Family) -> None:
    """Raise CheckpointError for a value that is not a finite number, and for a float in an integer setting."""
    whole = {field.name for field in fields(Model) if field.type in (int, int | None)}
    for name, value in values.items():
        kind = ""
        if not isinstance(value, int | float) or isinstance(value, bool):
            kind = "number"
        elif name in whole and not isinstance(value, int):
            kind = "whole number"
        elif name not in whole and not math.isfinite(value):
            kind = "finite number"
        if kind:
            raise CheckpointError(f"config.json: {family.config[name]} is {value!r}, which is not a {kind}")


def _modern(tensors: dict[str, Found], family: Family) -> dict[str, Found]:
    """Return tensors or shapes under today's names: `weight` and `bias` for LayerNorms, and the encoder's prefix."""
    names = {
        name: re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))
        for name in tensors
    }
    return {
        f"{family.encoder}{name}" if name.startswith(family.bare) else name: tensors[old] for old, name in names.items()
    }


def _without_copies(tensors: dict[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Drop copies of tied weights, and constants. Raises CheckpointError for a copy that differs from its original."""
    for copy, original in family.tied.items():
        if copy in tensors and original in tensors and not torch.equal(tensors[copy], tensors[original]):
            raise CheckpointError(
                f"tensor {copy} differs from {original}: only checkpoints in which both are equal can be loaded"
            )
    originals = {family.tied.get(name, name): tensor for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in originals.items() if name not in family.buffers}


def _assemble(names: tuple[str, ...], shape: torch.Size, tensors: dict[str, Tensor]) -> Tensor:
    """Build one of our tensors from its published parts. Raises CheckpointError for a part with a wrong shape."""
    expected = [shape[0] // len(names), *shape[1:]]
    for name in names:
        if list(tensors[name].shape) != expected:
            raise CheckpointError(
                f"tensor {name} has shape {list(tensors[name].shape)}, but the model's settings give {expected}"
            )
    return tensors[names[0]] if len(names) == 1 else torch.cat([tensors[name] for name in names])
