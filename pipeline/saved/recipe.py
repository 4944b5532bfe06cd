"""Recipe for a text's vector: pooling, scaling, prompts and maximum length, read from a model's folder.

These files of sentence-transformers are read, in the format before version 5.4 and in the format since 5.4:

modules.json                         the steps: Transformer, Pooling, perhaps Dense, and Normalize if the length is 1
1_Pooling/config.json                pooling: flags pooling_mode_*; since 5.4, a name under pooling_mode
1_AttentionPooling/                  this project's attention pooling, in place of 1_Pooling
2_Dense/                             a linear layer after the pooling: config.json and model.safetensors
sentence_bert_config.json            max_seq_length: maximum tokens of a text; do_lower_case: lower case first
tokenizer_config.json                model_max_length: maximum tokens of a text, since 5.4
config_sentence_transformers.json    prompts by name, the default prompt's name, and the similarity
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pipeline.config.jobs import Pretrain
from pipeline.errors import CheckpointError, ConfigError, PipelineError, listed, shown
from pipeline.files import storage
from pipeline.files.encoder_folder import MODULES
from pipeline.model.heads import AttentionPooling
from pipeline.saved.checkpoints import WEIGHTS
from pipeline.saved.files import MOST_CONFIG, json_fields
from pipeline.saved.module_settings import (
    MODEL,
    TRANSFORMER,
    VECTOR,
    require_known_package,
    require_supported,
    require_supported_arguments,
)
from pipeline.saved.pooling import ATTENTION, DENSE, PROMPTS, exported_length, pooling_of, prompts_of
from pipeline.saved.run import run_of_checkpoint
from pipeline.saved.tensors import read_tensors

Pooling = Literal["mean", "cls", "max", "attention"]
POOLINGS: tuple[Pooling, ...] = ("mean", "cls", "max")
"""Poolings of sentence-transformers that are supported."""
FLAGS = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max"}
"""Ending of a flag pooling_mode_* -> pooling."""
STEPS = (
    ("Transformer", "Pooling"),
    ("Transformer", "Pooling", "Normalize"),
    ("Transformer", "Pooling", "Dense"),
    ("Transformer", "Pooling", "Dense", "Normalize"),
    ("Transformer", "AttentionPooling", "Normalize"),
)
"""Classes of the steps that are supported."""
OF_ENCODER = (
    "sentence_bert_config.json",
    *(f"sentence_{name}_config.json" for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta")),
)
"""Files with the settings of the encoder. The first that exists is used."""
LINEAR = {"linear.weight", "linear.bias"}
"""Tensors of a step Dense. The bias may be missing."""
RESTORE = "restore the files that were saved together"
NAME = re.compile(r"[\w-]+")


@dataclass(frozen=True, kw_only=True)
class VectorRecipe:
    """Recipe for a text's vector. The default, for models without a recipe, is the mean, scaled to length 1."""

    pooling: Pooling = "mean"
    normalized: bool = True
    """Whether vectors are scaled to length 1."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Name of a prompt -> words that are put before a text."""
    default_prompt: str = ""
    """Words that are put before a text if no prompt is named."""
    maximum_length: int | None = None
    """Maximum tokens of a text; longer texts are truncated. None means the number of the model's positions."""
    similarity: str = "cosine"
    lowercase: bool = False
    """Whether texts are lower-cased before the tokenizer's own normalisation."""
    pools_prompts: bool = True
    """Whether the tokens of a prompt are pooled; a prompt is refused otherwise."""
    attention: AttentionPooling | None = None
    """Layer of pooling attention, on the CPU; None for other poolings."""
    projection: nn.Linear | None = None
    """Linear layer that maps pooled states to vectors, on the CPU; None: the pooled states are the vectors."""

    def prompt(self, asked: str | None, usual: tuple[str, ...] = ()) -> str:
        """Return the words of a prompt.

        `asked` is a prompt's name or its words. If it is None, the first prompt of the model with a name in `usual` is
        returned, or the default prompt if there is none. Raises ConfigError for a single word that is not the name of a
        prompt.
        """
        words = self._prompt(asked, usual)
        if words and not self.pools_prompts:
            raise ConfigError(
                f"prompt ({words}) has no effect on pooling in this model (include_prompt false), which is not "
                "supported: leave the prompt out, or choose a model with include_prompt true"
            )
        return words

    def _prompt(self, asked: str | None, usual: tuple[str, ...]) -> str:
        """Return the words of a prompt, as `prompt` does."""
        if asked is None:
            return next((self.prompts[name] for name in usual if name in self.prompts), self.default_prompt)
        if asked in self.prompts:
            return self.prompts[asked]
        if NAME.fullmatch(asked):
            raise ConfigError(
                f"prompt ({asked}) is not the name of a prompt of the model ({listed(self.prompts)}); to give a text "
                f"instead, end it in a space, such as '{asked}: '"
            )
        return asked


def read_recipe(location: str) -> VectorRecipe:
    """Return the recipe of a model's folder or URL, or the default recipe if its files do not state one."""
    return stated_recipe(location) or VectorRecipe()


def stated_recipe(location: str) -> VectorRecipe | None:
    """Return the recipe of a model's folder or URL.

    The recipe is read from the folder, or follows from the run's settings if the folder is a checkpoint of a run. Any
    other folder states none. Raises CheckpointError for a file that cannot be read, and for a step or pooling that is
    not supported.
    """
    try:
        if storage.exists(storage.join(location, MODULES)):
            return _read(location)
        origin = run_of_checkpoint(location)
        return _of_run(origin.settings, location) if origin else None
    except PipelineError:
        raise
    except Exception as error:  # file systems and web clients raise their own exception types
        raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error


def _of_run(settings: Pretrain, checkpoint: str) -> VectorRecipe:
    """Return the recipe of a run's checkpoint, which is the same as for the run's exported model."""
    folder = storage.join(checkpoint, DENSE)
    projection = _projection(folder) if storage.exists(storage.join(folder, WEIGHTS)) else None
    pooling = pooling_of(settings)
    return VectorRecipe(
        pooling=pooling,
        attention=_attention(storage.join(checkpoint, ATTENTION)) if pooling == "attention" else None,
        maximum_length=exported_length(settings),
        projection=projection,
        prompts=prompts_of(settings),
    )


def _read(location: str) -> VectorRecipe:
    """Read the recipe of a folder with modules.json."""
    steps = _steps(location)
    kinds = tuple(kind for kind, _ in steps)
    if kinds not in STEPS:
        raise CheckpointError(
            f"{location}/modules.json has the steps {', '.join(kinds)}, but only Transformer, Pooling, Dense and "
            "Normalize, in this order, are supported: choose a model without other steps"
        )
    about = json_fields(location, PROMPTS)
    require_supported(storage.join(location, PROMPTS), about, MODEL)
    encoder, file = _settings_of_encoder(storage.join(location, steps[0][1]))
    require_supported(file, encoder, TRANSFORMER)
    require_supported_arguments(file, encoder)
    for kind, path in steps:
        if kind in ("Dense", "Normalize"):
            config = storage.join(location, path, "config.json")
            require_supported(config, json_fields(storage.join(location, path), "config.json"), VECTOR)
    prompts = {name: text or "" for name, text in (about.get("prompts") or {}).items()}
    if (default := about.get("default_prompt_name")) not in (None, *prompts):
        raise CheckpointError(
            f"{storage.join(location, PROMPTS)} has default_prompt_name {shown(default)}, which is not one of its "
            f"prompts ({listed(prompts)}): correct the name"
        )
    folder, attends = storage.join(location, steps[1][1]), kinds[1] == "AttentionPooling"
    return VectorRecipe(
        pooling="attention" if attends else _pooling(folder, prompts),
        attention=_attention(folder) if attends else None,
        normalized="Normalize" in kinds,
        prompts=prompts,
        default_prompt=prompts.get(about.get("default_prompt_name"), ""),
        maximum_length=_maximum_length(encoder, storage.join(location, steps[0][1])),
        lowercase=encoder.get("do_lower_case") is True,
        pools_prompts=attends or json_fields(folder, "config.json").get("include_prompt") is not False,
        similarity=about.get("similarity_fn_name") or "cosine",
        projection=_projection(storage.join(location, steps[2][1])) if "Dense" in kinds else None,
    )


def _steps(location: str) -> list[tuple[str, str]]:
    """Return (class, folder) of each step in modules.json."""
    path = storage.join(location, MODULES)
    try:
        steps = storage.parse_json(storage.read_at_most(path, MOST_CONFIG))
        types = [str(step["type"]) for step in steps]
        found = [(kind.rpartition(".")[2], str(step["path"])) for kind, step in zip(types, steps, strict=True)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read as a list of steps: {storage.first_line(error)}") from error
    if outside := next((folder for _, folder in found if storage.escapes_folder(folder)), None):
        raise CheckpointError(f"{path} names {shown(outside)}, which is outside of the folder")
    for kind in types:
        require_known_package(path, kind)
    return found


def _pooling(folder: str, prompts: Mapping[str, str]) -> Pooling:
    """Return the pooling that a folder's config.json names."""
    config = json_fields(folder, "config.json")
    flags = [name.removeprefix("pooling_mode_") for name, on in config.items() if on and name != "pooling_mode"]
    given = config.get("pooling_mode") or [FLAGS.get(flag, flag) for flag in flags if f"pooling_mode_{flag}" in config]
    names = [given] if isinstance(given, str) else list(given) or ["mean"]
    known = next((pooling for pooling in POOLINGS if names == [pooling]), None)
    if known is None:
        raise CheckpointError(
            f"{folder}/config.json has pooling {listed(names)}, which is not supported: choose a model with one of "
            f"{', '.join(POOLINGS)}"
        )
    if config.get("include_prompt") is False and any(prompts.values()):
        raise CheckpointError(
            f"{folder}/config.json has include_prompt false, which leaves a prompt's tokens out of the pooling and is "
            "not supported: choose a model with include_prompt true"
        )
    return known


def _projection(folder: str) -> nn.Linear:
    """Return the linear layer of a step Dense. Raises CheckpointError for an activation, and for other tensors."""
    config = json_fields(folder, "config.json")
    activation = str(config.get("activation_function") or "torch.nn.modules.activation.Tanh")
    if not activation.endswith(".Identity") or config.get("use_residual"):
        kind = "a residual connection" if config.get("use_residual") else f"activation_function {activation}"
        raise CheckpointError(
            f"{folder}/config.json has {kind}, which is not supported: choose a model whose Dense has Identity and no "
            "residual connection"
        )
    weight, bias = _linear(folder, "Dense")
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    _fill(layer, weight, bias)
    return layer


def _attention(folder: str) -> AttentionPooling:
    """Return the layer of an attention pooling. Raises CheckpointError for other tensors."""
    weight, bias = _linear(folder, "AttentionPooling")
    if len(weight) != 1:
        raise CheckpointError(
            f"{folder}/{WEIGHTS} has {len(weight)} scores per state, but an AttentionPooling has one: {RESTORE}"
        )
    layer = AttentionPooling(weight.shape[1])
    _fill(layer, weight, bias)
    return layer


def _linear(folder: str, kind: str) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a folder's linear layer, whose step has the class `kind`.

    Raises CheckpointError for other tensors.
    """
    tensors = read_tensors(storage.join(folder, WEIGHTS))
    weight = tensors.get("linear.weight")
    if weight is None or weight.ndim != 2 or not tensors.keys() <= LINEAR:
        raise CheckpointError(
            f"{folder}/{WEIGHTS} has the tensors {listed(tensors)}, but a {kind} has linear.weight: {RESTORE}"
        )
    return weight, tensors.get("linear.bias", torch.zeros(len(weight)))


def _fill(layer: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    """Set weight and bias of a layer, which then has no gradients."""
    layer.requires_grad_(False)
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)


def _settings_of_encoder(folder: str) -> tuple[dict[str, Any], str]:
    """Return the settings of the encoder, and the location of their file."""
    name = next((name for name in OF_ENCODER if storage.exists(storage.join(folder, name))), OF_ENCODER[0])
    return json_fields(folder, name), storage.join(folder, name)


def _maximum_length(encoder: Mapping[str, Any], folder: str) -> int | None:
    """Return the maximum tokens of a text by the encoder's settings and tokenizer; None if they do not state it."""
    lengths = (encoder.get("max_seq_length"), json_fields(folder, "tokenizer_config.json").get("model_max_length"))
    return next((int(length) for length in lengths if isinstance(length, int | float) and length > 0), None)
