"""Convert names and shapes of weights to and from the published checkpoints (Hugging Face's BERT with any head)."""

import math
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pipeline.config.model import Model
from pipeline.errors import CheckpointError
from pipeline.model.encoder import Encoder
from pipeline.model.heads import MaskedTokenHead, NextSentenceHead

PUBLISHED = {
    "encoder.embeddings.words": "bert.embeddings.word_embeddings",
    "encoder.embeddings.positions": "bert.embeddings.position_embeddings",
    "encoder.embeddings.segments": "bert.embeddings.token_type_embeddings",
    "encoder.embeddings.norm": "bert.embeddings.LayerNorm",
    "encoder.layers.#.attention.qkv": "bert.encoder.layer.#.attention.self",
    "encoder.layers.#.attention.output": "bert.encoder.layer.#.attention.output.dense",
    "encoder.layers.#.attention_norm": "bert.encoder.layer.#.attention.output.LayerNorm",
    "encoder.layers.#.feed_forward.inner": "bert.encoder.layer.#.intermediate.dense",
    "encoder.layers.#.feed_forward.outer": "bert.encoder.layer.#.output.dense",
    "encoder.layers.#.feed_forward_norm": "bert.encoder.layer.#.output.LayerNorm",
    "encoder.pooler": "bert.pooler.dense",
    "masked_token_head.dense": "cls.predictions.transform.dense",
    "masked_token_head.norm": "cls.predictions.transform.LayerNorm",
    "masked_token_head": "cls.predictions",
    "next_sentence_head": "cls.seq_relationship",
    "classification_head": "classifier",
    "answer_head": "qa_outputs",
    "attention_pooling": "attention_pooling",
}
"""Our module -> published module; # is the layer's number.

Sequence and token classifiers share published names; attention_pooling is ours alone.
"""
ENCODER = ("embeddings.", "encoder.", "pooler.")
"""Prefixes of an encoder published without `bert.`."""
FUSED = (".attention.self.", ("query", "key", "value"))
"""Published as three tensors, stacked in this order in our qkv."""
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Copies that some checkpoints hold -> the tensors they repeat."""
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
"""Constants that old checkpoints hold."""

FEW_LAYERS, FEW_WEIGHTS, SLACK = 1_000, 1 << 24, 64
"""Size checks: layers and weights below which a model is always built, and how many times its files' weights it may
have otherwise.
"""

CONFIG_SIZES = {
    "num_hidden_layers": "layers",
    "hidden_size": "width",
    "num_attention_heads": "heads",
    "intermediate_size": "feed_forward",
}
CONFIG_FIELDS = {name: field for field, name in CONFIG_SIZES.items()} | {
    "maximum_positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_deviation": "initializer_range",
}
"""Our setting -> field of config.json."""
CONFIG_CONSTANTS = {"model_type": "bert", "hidden_act": "gelu"}
"""Fields of config.json that every supported model has."""
CONFIG_DEFAULTS = {"position_embedding_type": "absolute", "is_decoder": False}
"""Fields of config.json that may be absent, but must not differ."""


def _published_name(name: str) -> str:
    """Return the published name of one of our parameters; qkv keeps `.attention.self.`, without query, key or value."""
    module, leaf = name.rsplit(".", 1)
    number = re.search(r"\.layers\.(\d+)\.", name)
    if number is None:
        return f"{PUBLISHED[module]}.{leaf}"
    pattern = module.replace(f".layers.{number[1]}.", ".layers.#.", 1)
    return f"{PUBLISHED[pattern].replace('#', number[1])}.{leaf}"


def published_names(name: str) -> tuple[str, ...]:
    """Return the published names of one of our parameters: three for a qkv, in stacking order, else one."""
    published = _published_name(name)
    infix, parts = FUSED
    if infix not in published:
        return (published,)
    return tuple(published.replace(infix, f"{infix}{part}.") for part in parts)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Weights of a published checkpoint that fit a module."""

    state: dict[str, Tensor]
    missing: tuple[str, ...]
    """Published names that the module has and the checkpoint lacks."""
    surplus: tuple[str, ...]
    """Published names that only the checkpoint has."""


def to_published(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a BertPretraining, or of an encoder with other heads, under their published names.

    qkv is split, with as few copies as possible. Tied output weights are left out.
    """
    published = {}
    for name, tensor in state.items():
        names = published_names(name)
        published |= dict(zip(names, (part.contiguous() for part in tensor.detach().chunk(len(names))), strict=True))
    return published


def from_published(tensors: dict[str, Tensor], settings: Model) -> dict[str, Tensor]:
    """Return the state of a BertPretraining from a complete published checkpoint; the word embeddings give the
    vocabulary's size.

    Raises CheckpointError as `take` does, and for the first tensor that is missing or unexpected.
    """
    require_sizes(settings, tensors)
    taken = take(tensors, pretraining_parts(settings, vocabulary_size(tensors)))
    if taken.surplus:
        raise CheckpointError(
            f"unexpected tensor {taken.surplus[0]}: a BERT of model.layers {settings.layers} with both pretraining "
            "heads has none of that name"
        )
    if taken.missing:
        raise CheckpointError(
            f"tensor {taken.missing[0]} is missing: only whole BertForPreTraining checkpoints can be loaded"
        )
    return taken.state


def take(tensors: dict[str, Tensor], parts: nn.Module) -> Taken:
    """Return the weights of a published checkpoint that fit a module (on any device, also `meta`).

    Accepts gamma and beta for LayerNorm as in the first checkpoints, and encoder names without `bert.`; drops copies of
    tied weights. Raises CheckpointError naming the first tensor with a wrong shape, or that differs from the one it is
    tied to.
    """
    found = _without_copies(_modern(tensors))
    shapes = {name: tensor.shape for name, tensor in parts.state_dict().items()}
    names = {name: published_names(name) for name in shapes}
    wanted = dict.fromkeys(published for name in shapes for published in names[name])
    return Taken(
        state={
            name: _assemble(names[name], shape, found)
            for name, shape in shapes.items()
            if found.keys() >= set(names[name])
        },
        missing=tuple(name for name in wanted if name not in found),
        surplus=tuple(name for name in found if name not in wanted),
    )


class Uninitialized(TorchFunctionMode):
    """Skip weight initialisation inside the context: on the meta device it does nothing, yet torch would load its
    compiler for two seconds.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init" or func in (Tensor.normal_, Tensor.uniform_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def without_memory() -> Generator[None]:
    """Create modules inside the context on the meta device, without memory for weights."""
    with torch.device("meta"), Uninitialized():
        yield


def pretraining_parts(settings: Model, vocabulary_size: int) -> nn.Module:
    """Return the modules of a BertPretraining by name, without memory for weights."""
    with without_memory():
        return nn.ModuleDict(
            {
                "encoder": Encoder(settings, vocabulary_size),
                "masked_token_head": MaskedTokenHead(settings, vocabulary_size),
                "next_sentence_head": NextSentenceHead(settings),
            }
        )


def require_sizes(settings: Model, tensors: dict[str, Tensor]) -> None:
    """Raise CheckpointError for a model far larger than its tensors, which could take any memory or time to build.

    Smaller differences are reported with the first tensor that does not fit.
    """
    if settings.layers > max(FEW_LAYERS, len(tensors)):
        raise CheckpointError(
            f"config.json: num_hidden_layers is {settings.layers}, and the weights are {len(tensors)} tensors"
        )
    per_layer = 4 * settings.width**2 + 2 * settings.width * settings.feed_forward
    wanted = settings.layers * per_layer + (settings.maximum_positions + settings.segments) * settings.width
    held = sum(tensor.numel() for tensor in tensors.values())
    if wanted > SLACK * max(FEW_WEIGHTS, held):
        raise CheckpointError(f"config.json: a BERT of its sizes has {wanted:,} weights, and the files hold {held:,}")


def vocabulary_size(tensors: dict[str, Tensor]) -> int:
    """Return the rows of a published checkpoint's word embeddings; 0 where it has none."""
    words = _modern(tensors).get(_published_name("encoder.embeddings.words.weight"))
    return words.shape[0] if words is not None and words.dim() else 0


def published_config(settings: Model, vocabulary_size: int, pad_id: int) -> dict[str, Any]:
    """Return the config.json of such a model, under the published names."""
    return (
        {field: getattr(settings, name) for name, field in CONFIG_FIELDS.items()}
        | CONFIG_CONSTANTS
        | {
            "architectures": [
                "BertForMaskedLM"
            ],  # as published ones; AutoModelForPreTraining finds both heads by model_type
            "vocab_size": vocabulary_size,
            "pad_token_id": pad_id,
            "tie_word_embeddings": True,
        }
    )


def model_settings(config: dict[str, Any]) -> Model:
    """Return a published model's settings from its config.json; absent fields have our defaults, which are the
    published ones except sizes.

    Raises CheckpointError for a model that is not a published BERT, and ConfigError for invalid sizes.
    """
    for field, value in (CONFIG_CONSTANTS | CONFIG_DEFAULTS).items():
        if config.get(field, value) != value:
            raise CheckpointError(f"config.json: {field} is {config[field]!r}, only {value!r} can be loaded")
    named = config.get("architectures") or []
    if foreign := [
        name for name in (named if isinstance(named, list) else [named]) if not str(name).startswith("Bert")
    ]:
        raise CheckpointError(f"config.json: architectures is {foreign[0]!r}, only Bert's can be loaded")
    missing = next((field for field in CONFIG_SIZES if field not in config), None)
    if missing is not None:
        raise CheckpointError(f"config.json: {missing} is missing: a BERT names {', '.join(CONFIG_SIZES)}")
    found = {name: config[field] for name, field in CONFIG_FIELDS.items() if field in config}
    if wrong := [
        name for name, value in found.items() if not isinstance(value, int | float) or isinstance(value, bool)
    ]:
        raise CheckpointError(f"config.json: {CONFIG_FIELDS[wrong[0]]} is {found[wrong[0]]!r}, which is no number")
    whole = {field.name for field in fields(Model) if field.type is int}
    if wrong := [
        name for name, value in found.items() if not (isinstance(value, int) if name in whole else math.isfinite(value))
    ]:
        raise CheckpointError(
            f"config.json: {CONFIG_FIELDS[wrong[0]]} is {found[wrong[0]]!r}, which is no "
            f"{'whole' if wrong[0] in whole else 'finite'} number"
        )
    return Model(**found)


def _modern(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    names = {
        name: re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))
        for name in tensors
    }
    return {f"bert.{name}" if name.startswith(ENCODER) else name: tensors[old] for old, name in names.items()}


def _without_copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    for copy, original in TIED.items():
        if copy in tensors and original in tensors and not torch.equal(tensors[copy], tensors[original]):
            raise CheckpointError(
                f"tensor {copy} differs from {original}: only checkpoints that tie the two can be loaded"
            )
    originals = {TIED.get(name, name): tensor for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in originals.items() if name not in BUFFERS}


def _assemble(names: tuple[str, ...], shape: torch.Size, found: dict[str, Tensor]) -> Tensor:
    """Return one of our tensors from its published parts, each checked for shape."""
    expected = [shape[0] // len(names), *shape[1:]]
    for name in names:
        if list(found[name].shape) != expected:
            raise CheckpointError(
                f"tensor {name} has shape {list(found[name].shape)}, the model's settings give {expected}"
            )
    return found[names[0]] if len(names) == 1 else torch.cat([found[name] for name in names])
