"""An encoder in the form that the package mteb evaluates: its EncoderProtocol (github.com/embeddings-benchmark/mteb).

import mteb
from pipeline import api
from pipeline.embed.mteb import MtebModel

mteb.evaluate(MtebModel(model=api.load("output/runs/NAME")), mteb.get_tasks(tasks=["STSBenchmark"]))
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from pipeline.embed.loaded import LoadedEncoder
from pipeline.embed.model import DIGEST_CHARACTERS, digests_of_layers
from pipeline.embed.search import comparable, require_similarity
from pipeline.errors import ConfigError
from pipeline.saved.prompts import OF_DOCUMENTS, OF_QUERIES

SIDES = {"query": OF_QUERIES, "document": OF_DOCUMENTS}
"""Value of mteb's prompt type -> names of a model's prompts for it."""
Array = np.ndarray | torch.Tensor


@dataclass(kw_only=True, eq=False)
class MtebModel:
    """A model for `mteb.evaluate`. Raises ConfigError if its similarity is neither the cosine nor the dot product."""

    model: LoadedEncoder
    name: str | None = None
    """Name in mteb's results, as ORGANISATION/MODEL. Default: the last two parts of the model's location."""

    def __post_init__(self) -> None:
        require_similarity(self.model.recipe.similarity)

    @cached_property
    def mteb_model_meta(self) -> Any:
        """The description under which mteb stores results; its revision is a digest of the weights and the recipe."""
        from mteb.models.model_meta import ModelMeta, ScoringFunction  # only mteb asks for this

        about = {
            "name": self.name or "/".join(self.model.location.rstrip("/").split("/")[-2:]),
            "revision": self.digest,
            "similarity_fn_name": ScoringFunction(self.model.recipe.similarity),
            "embed_dim": self.model.dimension,
            "max_tokens": self.model.embedding_length,
        }
        return ModelMeta.create_empty(about)

    @cached_property
    def digest(self) -> str:
        """Beginning of the SHA-256 of everything that determines the vectors: weights, vocabulary, recipe, its layers.

        The weights are those in memory, because a model that was fine-tuned in Python has no files.
        """
        recipe, vocabulary = self.model.recipe, self.model.vocabulary.fingerprint
        digest = hashlib.sha256(f"{self.model.settings} {vocabulary} {recipe}{digests_of_layers(recipe)}".encode())
        for name, tensor in sorted(self.model.encoder.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.float().cpu().contiguous().numpy().data)
        return digest.hexdigest()[:DIGEST_CHARACTERS]

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        precision: str = "float32",
        **_: Any,
    ) -> np.ndarray:
        """Return one vector per text, float32 (texts, dimension), in the order of the texts.

        `inputs` yields batches with the texts under "text". Other settings of mteb, such as batch_size, have no effect.
        Raises ConfigError for a precision other than float32.
        """
        if precision != "float32":
            raise ConfigError(f"precision ({precision}) must be float32: leave it out of encode_kwargs")
        prompt = self._prompt(task_metadata, prompt_type)
        return self.model.embed([prompt + text for batch in inputs for text in batch["text"]], prompt="")

    def _prompt(self, task_metadata: Any, prompt_type: Any) -> str:
        """Return the words before each text: the model's prompt for the task or its type, else for the side.

        A side is the queries or the documents. Without such a prompt, it is the model's default prompt.
        """
        side, recipe = None if prompt_type is None else prompt_type.value, self.model.recipe
        of_task = [name for task in (task_metadata.name, task_metadata.type) for name in (f"{task}-{side}", task)]
        return recipe.prompt(None, (*of_task, *SIDES.get(side, ())))

    def similarity(self, embeddings1: Array, embeddings2: Array) -> torch.Tensor:
        """Return the similarity of each vector (N, D) or (D,) with each vector (M, D) or (D,), float32 (N, M)."""
        return torch.from_numpy(self._comparable(embeddings1) @ self._comparable(embeddings2).T)

    def similarity_pairwise(self, embeddings1: Array, embeddings2: Array) -> torch.Tensor:
        """Return the similarity of each vector (N, D) or (D,) with the vector of the same row, float32 (N,)."""
        left, right = self._comparable(embeddings1), self._comparable(embeddings2)
        return torch.from_numpy((left * right).sum(axis=1))

    def _comparable(self, embeddings: Array) -> np.ndarray:
        """Return vectors (N, D) whose dot product is the similarity, float32."""
        vectors = torch.as_tensor(embeddings, dtype=torch.float32).cpu().numpy()
        return comparable(np.atleast_2d(vectors), self.model.recipe.similarity)
