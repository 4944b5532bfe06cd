"""Load an embedding model, describe it, and compute the vectors of texts and chunks."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from tokenizers import Tokenizer

from pipeline.config.embed import Embed
from pipeline.config.placement import ModelPlacement
from pipeline.embed.chunks import Span, chunk_spans, room_of
from pipeline.embed.description import Description
from pipeline.embed.loaded import LoadedEncoder
from pipeline.embed.loaded import load as load_encoder
from pipeline.errors import CheckpointError
from pipeline.model.int8 import refuse_int8, to_int8
from pipeline.saved.model import open_saved
from pipeline.saved.prompts import OF_DOCUMENTS
from pipeline.saved.recipe import VectorRecipe
from pipeline.train.hardware import answer_precision, autocast_of, required_device

DIGEST_CHARACTERS = 16


@dataclass(frozen=True, kw_only=True)
class VectorModel:
    """A loaded model, the prompt that is put before each text, and the number format of matrix products."""

    model: LoadedEncoder
    prompt: str
    precision: str

    @property
    def maximum_length(self) -> int:
        """Maximum tokens of a text; longer texts are truncated."""
        return self.model.embedding_length

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Return one vector per text, float32 (texts, dimension)."""
        prompted = [self.prompt + text for text in texts]
        with autocast_of(self.precision, self.model.device):
            return self.model.embed(prompted, prompt="")

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text's chunks; the model reads a chunk without truncation."""
        tokenizer = self._whole_texts
        return chunk_spans(texts, tokenizer, room_of(tokenizer, self.maximum_length, self.prompt), self.prompt)

    @cached_property
    def _whole_texts(self) -> Tokenizer:
        """The model's tokenizer, without truncation."""
        tokenizer = Tokenizer.from_str(self.model.tokenizer.to_str())
        tokenizer.no_truncation()
        return tokenizer


def load(checkpoint: str, placement: ModelPlacement, prompt: str | None, usual: tuple[str, ...]) -> VectorModel:
    """Load a model on this process's device.

    `prompt` and `usual` are as in VectorRecipe.prompt. Raises CheckpointError if the model cannot be loaded, and
    ConfigError if the prompt does not exist.
    """
    device = required_device(placement)
    model = load_encoder(checkpoint, "cuda" if device.type == "cuda" else "cpu")
    precision = answer_precision(placement, None, device)
    if precision == "int8":
        refuse_int8(device)
        to_int8(model.encoder.layers)
    return VectorModel(model=model, prompt=model.recipe.prompt(prompt, usual), precision=precision)


def describe(loaded: VectorModel) -> Description:
    """Describe a loaded model. Raises ConfigError if its prompt leaves no room for texts."""
    recipe: VectorRecipe = loaded.model.recipe
    loaded.spans([])
    return Description(
        checkpoint=loaded.model.location,
        digest=digest_of(loaded.model),
        dimension=loaded.model.dimension,
        pooling=recipe.pooling,
        normalized=recipe.normalized,
        similarity=recipe.similarity,
        prompt=loaded.prompt,
        maximum_length=loaded.maximum_length,
    )


def describe_on_cpu(config: Embed) -> Description:
    """Load the model of the settings on the CPU and describe it. Its errors then appear before processes start."""
    placement = ModelPlacement(device="cpu", precision="float32")
    return describe(load(config.checkpoint, placement, config.prompt, OF_DOCUMENTS))


def load_described(described: Description, config: Embed) -> VectorModel:
    """Load the model that `described` describes on this process's device.

    Raises CheckpointError if the model's files have changed.
    """
    loaded = load(described.checkpoint, config.placement, config.prompt, OF_DOCUMENTS)
    digest = digest_of(loaded.model)
    if digest != described.digest:
        raise CheckpointError(
            f"checkpoint {described.checkpoint} has changed since the job began: its digest is {digest}, and was "
            f"{described.digest}; run the job again with --replace"
        )
    return loaded


def digest_of(model: LoadedEncoder) -> str:
    """Return the beginning of the SHA-256 of a model's config, weights, vocabulary, attention and projection."""
    files = open_saved(model.location, verify=False).digest()
    whole = f"{files} {model.vocabulary.fingerprint}"
    whole += digests_of_layers(model.recipe) + " lowercase" * model.recipe.lowercase
    return hashlib.sha256(whole.encode()).hexdigest()[:DIGEST_CHARACTERS]


def digests_of_layers(recipe: VectorRecipe) -> str:
    """Return a space and the SHA-256 of the weights for each layer of a recipe; "" if the recipe has no layer."""
    layers = [layer for layer in (recipe.attention, recipe.projection) if layer is not None]
    weights = [layer.weight.numpy().tobytes() + layer.bias.numpy().tobytes() for layer in layers]
    return "".join(f" {hashlib.sha256(numbers).hexdigest()}" for numbers in weights)


def use_threads(threads: int | None) -> None:
    """Set the CPU threads of this process; a no-op for None."""
    if threads:
        torch.set_num_threads(threads)
