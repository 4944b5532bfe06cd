"""Table of the pretraining objectives: the module of each, and everything that others ask about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pipeline.config.data import Sampling
from pipeline.config.model import Model
from pipeline.config.objective import Contrastive, Distilled, DistilledVectors, Masked, Objective, Replaced
from pipeline.model.flops import TokenCounts
from pipeline.objectives import contrastive, distilled, distilled_vectors, masked, replaced
from pipeline.objectives.pretraining import Pretraining
from pipeline.objectives.terms import LossCurve

Named = list[tuple[str, str]]
"""Rows of a run's summary, as (name, text)."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveHandlers:
    """The work of an objective outside of a training step."""

    build: Callable[..., Pretraining]
    """Make the module, as `build_objective`."""
    trained_parts: Callable[..., tuple[str, ...]]
    """As the function `trained_parts`."""
    described: Callable[..., str]
    """As the function `described`."""
    flops_per_token: Callable[..., float]
    """As the function `flops_per_token`."""
    curves: tuple[LossCurve, ...]
    """Loss terms that have a panel in the figure of learning curves, in the order of the panels."""
    descriptions: Mapping[str, tuple[str, str]]
    """Held-out metric -> (its type on the Hugging Face Hub, its name on a model card)."""
    figures: Callable[[Mapping[str, Any], str], Named] = lambda summary, other_length: []
    """Summary's rows about the held-out loss; empty if the summary has none of the objective's metrics. The second
    argument follows values before training: it names their sequence length if it is not the last one.
    """
    further_figures: Callable[[Mapping[str, Any]], Named] = lambda summary: []
    """Summary's rows that follow those about words; empty as `figures`."""
    uses: Callable[[Sampling], tuple[str, ...]] = masked.uses
    """Sentences about uses of the model and their limits, for a model card."""
    passes: str = "forward and backward"
    """The passes of a step, for a plan."""
    forward_passes: int = 1
    """Forward passes of a step."""
    step_memory: Callable[[int, int, int], str] | None = None
    """(rows, width, hard negatives) -> text about the memory that a step needs besides its slots, for a plan."""


OBJECTIVES: dict[type, ObjectiveHandlers] = {
    Masked: ObjectiveHandlers(
        build=masked.build,
        trained_parts=masked.trained_parts,
        described=masked.described,
        flops_per_token=masked.flops_per_token,
        curves=masked.CURVES,
        descriptions=masked.DESCRIPTIONS,
        figures=masked.masked_rows,
        further_figures=masked.pair_rows,
    ),
    Replaced: ObjectiveHandlers(
        build=replaced.build,
        trained_parts=replaced.trained_parts,
        described=replaced.described,
        flops_per_token=replaced.flops_per_token,
        curves=replaced.CURVES,
        descriptions=replaced.DESCRIPTIONS,
        further_figures=replaced.replaced_rows,
    ),
    Distilled: ObjectiveHandlers(
        build=distilled.build,
        trained_parts=distilled.trained_parts,
        described=distilled.described,
        flops_per_token=distilled.flops_per_token,
        curves=distilled.CURVES,
        descriptions=distilled.DESCRIPTIONS,
        further_figures=distilled.distilled_rows,
    ),
    Contrastive: ObjectiveHandlers(
        build=contrastive.build,
        trained_parts=contrastive.trained_parts,
        described=contrastive.described,
        flops_per_token=contrastive.flops_per_token,
        curves=contrastive.CURVES,
        descriptions=contrastive.DESCRIPTIONS,
        figures=contrastive.contrastive_rows,
        uses=contrastive.uses,
        passes="two forward passes and a backward, without similarities",
        forward_passes=2,
        step_memory=contrastive.vectors_text,
    ),
    DistilledVectors: ObjectiveHandlers(
        build=distilled_vectors.build,
        trained_parts=distilled_vectors.trained_parts,
        described=distilled_vectors.described,
        flops_per_token=distilled_vectors.flops_per_token,
        curves=distilled_vectors.CURVES,
        descriptions=distilled_vectors.DESCRIPTIONS,
        figures=distilled_vectors.vector_rows,
        uses=distilled_vectors.uses,
    ),
}
CURVES = tuple(curve for handlers in OBJECTIVES.values() for curve in handlers.curves)
DESCRIPTIONS = {name: text for handlers in OBJECTIVES.values() for name, text in handlers.descriptions.items()}


def build_objective(
    objective: Objective,
    sampling: Sampling,
    model: Model,
    vocabulary_size: int,
    generator: torch.Generator | None = None,
) -> Pretraining:
    """Return the module that trains `objective` on examples made with `sampling`."""
    return OBJECTIVES[type(objective)].build(objective, sampling, model, vocabulary_size, generator)


def trained_parts(objective: Objective, sampling: Sampling) -> tuple[str, ...]:
    """Return the prefixes of parameter names for the heads that an objective trains."""
    return OBJECTIVES[type(objective)].trained_parts(objective, sampling)


def described(objective: Objective, sampling: Sampling) -> str:
    """Return an objective in words, for a model card."""
    return OBJECTIVES[type(objective)].described(objective, sampling)


def flops_per_token(objective: Objective, model: Model, vocabulary_size: int, counted: TokenCounts) -> float:
    """Return the floating-point operations of a training step per token (no padding), matrix products only."""
    return OBJECTIVES[type(objective)].flops_per_token(objective, model, vocabulary_size, counted)
