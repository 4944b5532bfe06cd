"""Tables of the pretraining objectives: modules, loss curves, metric names, descriptions and FLOPs."""

from collections.abc import Callable

import torch

from pipeline.config.data import Sampling
from pipeline.config.model import Model
from pipeline.config.objective import Contrastive, Distilled, DistilledVectors, Masked, Objective, Replaced
from pipeline.model.flops import TokenCounts
from pipeline.objectives import contrastive, distilled, distilled_vectors, masked, replaced
from pipeline.objectives.contrastive import ContrastiveTexts
from pipeline.objectives.distilled import DistilledTokens
from pipeline.objectives.distilled_vectors import VectorStudent
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.replaced import ReplacedTokens

FillsBlanks = MaskedTokens | ReplacedTokens | DistilledTokens
"""Modules that predict masked words."""
MakesVectors = ContrastiveTexts | VectorStudent
"""Modules that compute text vectors."""
Pretraining = FillsBlanks | MakesVectors
CURVES = (*masked.CURVES, *replaced.CURVES, *distilled.CURVES, *contrastive.CURVES, *distilled_vectors.CURVES)
"""Loss terms that have a panel in the figure of learning curves, in the order of the panels."""
_DESCRIBING = (masked, replaced, distilled, contrastive, distilled_vectors)
DESCRIPTIONS = {name: text for objective in _DESCRIBING for name, text in objective.DESCRIPTIONS.items()}
"""Held-out metric -> (its type on the Hugging Face Hub, its name on a model card)."""
_BUILD: dict[type, Callable[..., Pretraining]] = {
    Masked: masked.build,
    Replaced: replaced.build,
    Distilled: distilled.build,
    Contrastive: contrastive.build,
    DistilledVectors: distilled_vectors.build,
}
_PARTS: dict[type, Callable[..., tuple[str, ...]]] = {
    Masked: masked.trained_parts,
    Replaced: replaced.trained_parts,
    Distilled: distilled.trained_parts,
    Contrastive: contrastive.trained_parts,
    DistilledVectors: distilled_vectors.trained_parts,
}
_DESCRIBED: dict[type, Callable[..., str]] = {
    Masked: masked.described,
    Replaced: replaced.described,
    Distilled: distilled.described,
    Contrastive: contrastive.described,
    DistilledVectors: distilled_vectors.described,
}
_FLOPS: dict[type, Callable[..., float]] = {
    Masked: masked.flops_per_token,
    Replaced: replaced.flops_per_token,
    Distilled: distilled.flops_per_token,
    Contrastive: contrastive.flops_per_token,
    DistilledVectors: distilled_vectors.flops_per_token,
}


def build_objective(
    objective: Objective,
    sampling: Sampling,
    model: Model,
    vocabulary_size: int,
    generator: torch.Generator | None = None,
) -> Pretraining:
    """Return the module that trains `objective` on examples made with `sampling`."""
    return _BUILD[type(objective)](objective, sampling, model, vocabulary_size, generator)


def trained_parts(objective: Objective, sampling: Sampling) -> tuple[str, ...]:
    """Return the prefixes of parameter names for the heads that an objective trains."""
    return _PARTS[type(objective)](objective, sampling)


def described(objective: Objective, sampling: Sampling) -> str:
    """Return an objective in words, for a model card."""
    return _DESCRIBED[type(objective)](objective, sampling)


def flops_per_token(objective: Objective, model: Model, vocabulary_size: int, counted: TokenCounts) -> float:
    """Return the floating-point operations of a training step per token (no padding), matrix products only."""
    return _FLOPS[type(objective)](objective, model, vocabulary_size, counted)
