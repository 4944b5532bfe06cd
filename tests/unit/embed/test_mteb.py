"""An encoder called as mteb calls it, without mteb: order and prompts of texts, similarities, and a digest."""

from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from pipeline import api
from pipeline.api import LoadedModel
from pipeline.embed.mteb import MtebModel
from pipeline.errors import ConfigError
from pipeline.model.heads import AttentionPooling
from pipeline.saved.recipe import VectorRecipe

TEXTS = ["kar lost kand mir nel", "mir", "sup kand", "nel lost"]


class PromptType(Enum):
    """The values of mteb's PromptType."""

    query = "query"
    document = "document"


@pytest.fixture(scope="module")
def loaded(tiny_run: Path) -> LoadedModel:
    return api.load(str(tiny_run), "cpu")


def encoded(model: LoadedModel, side: PromptType | None = None, task: str = "Own", **settings: Any) -> np.ndarray:
    batches: DataLoader = DataLoader([{"text": text, "id": str(row)} for row, text in enumerate(TEXTS)], batch_size=3)
    about = SimpleNamespace(name=task, type="Retrieval")
    return MtebModel(model=model).encode(
        batches, task_metadata=about, hf_split="test", hf_subset="default", prompt_type=side, **settings
    )


def test_texts_of_all_batches_are_encoded_in_their_order(loaded: LoadedModel) -> None:
    vectors = encoded(loaded, batch_size=3, show_progress_bar=False)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, loaded.embed(TEXTS), rtol=0, atol=1e-6)


PROMPTS = {
    "query": "kar ", "passage": "mir ", "STS": "nel ", "Retrieval-query": "sup ", "Own-document": "lost ", "Own": "kap "
}  # fmt: skip


@pytest.mark.parametrize(
    ("names", "side", "task", "prompt"),
    [
        (("query", "passage"), PromptType.query, "Own", "kar "),
        (("query", "passage"), PromptType.document, "Own", "mir "),
        (("query", "passage"), None, "Own", "kand "),
        (("query",), PromptType.document, "Own", "kand "),
        (("query", "Retrieval-query"), PromptType.query, "Own", "sup "),
        (("Own", "passage", "Own-document"), PromptType.document, "Own", "lost "),
        (("Own", "query", "Retrieval-query"), PromptType.query, "Own", "kap "),
        (("passage", "Own-document"), PromptType.document, "Other", "mir "),
        (("query", "STS"), None, "STS", "nel "),
    ],
)
def test_the_most_specific_prompt_is_put_before_each_text(
    names: tuple[str, ...], side: PromptType | None, task: str, prompt: str, loaded: LoadedModel
) -> None:
    recipe = VectorRecipe(prompts={name: PROMPTS[name] for name in names}, default_prompt="kand ")
    vectors = encoded(replace(loaded, recipe=recipe), side, task)
    np.testing.assert_allclose(vectors, loaded.embed([prompt + text for text in TEXTS]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("similarity", "product"), [("cosine", 0.6), ("dot", 6.0)])
def test_similarity_is_that_of_the_recipe(similarity: str, product: float, loaded: LoadedModel) -> None:
    model = MtebModel(model=replace(loaded, recipe=VectorRecipe(similarity=similarity)))
    left, right = np.array([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    matrix = model.similarity(left, right)
    assert isinstance(matrix, torch.Tensor) and matrix.dtype == torch.float32
    across = 0.8 if similarity == "cosine" else 4.0
    np.testing.assert_allclose(matrix, [[product, 0.0], [across, 1.0]], rtol=1e-6)
    np.testing.assert_allclose(model.similarity_pairwise(left, right), [product, 1.0], rtol=1e-6)
    np.testing.assert_allclose(model.similarity(left[0], right[0]), [[product]], rtol=1e-6)


def recipes() -> list[VectorRecipe]:
    """Recipes that give different vectors: of another pooling, and of two layers with two weights each."""
    found = [VectorRecipe(pooling="cls")]
    for value in (0.5, 1.0):
        attention, projection = AttentionPooling(32), torch.nn.Linear(32, 2)
        for layer in (attention, projection):
            layer.requires_grad_(False)
            torch.nn.init.constant_(layer.weight, value)
            torch.nn.init.zeros_(layer.bias)
        found += [VectorRecipe(pooling="attention", attention=attention), VectorRecipe(projection=projection)]
    return found


def test_the_digest_changes_with_weights_and_recipe_alone(loaded: LoadedModel, tiny_run: Path) -> None:
    digest = MtebModel(model=loaded).digest
    fitted = loaded.fit(["kar lost", "mir nel"], ["a", "b"], epochs=1)
    assert fitted.location == loaded.location
    others = [fitted, *(replace(loaded, recipe=recipe) for recipe in recipes())]
    assert len({digest, *(MtebModel(model=other).digest for other in others)}) == 7
    assert [MtebModel(model=replace(loaded, recipe=recipe)).digest for recipe in recipes()] == [
        MtebModel(model=other).digest for other in others[1:]
    ]
    assert MtebModel(model=api.load(str(tiny_run), "cpu"), name="own/name").digest == digest


def test_a_similarity_or_precision_that_is_not_supported_is_refused(loaded: LoadedModel) -> None:
    with pytest.raises(ConfigError, match=r"^the model's similarity \(euclidean\) is not supported: use "):
        MtebModel(model=replace(loaded, recipe=VectorRecipe(similarity="euclidean")))
    with pytest.raises(ConfigError, match=r"^precision \(int8\) must be float32: leave it out of encode_kwargs$"):
        encoded(loaded, precision="int8")
