"""Base of the modules that pretraining trains, with the answers of most of them to what others ask."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from pipeline.model.masked_model import PretrainedModule
from pipeline.objectives.published import PublishedModel, TextLayer
from pipeline.objectives.terms import Sums


class Teacher(Protocol):
    """A teacher as the driver describes it; every worker loads it."""

    @property
    def fingerprint(self) -> str:
        """Digest of everything that determines what the teacher gives."""
        ...

    def load(self, device: torch.device) -> Any:
        """Load the teacher on a device, as the objective's `learn_from` takes it."""
        ...


class Pretraining(PretrainedModule):
    """A module that turns a batch into {term: (summed loss, count)} and is published.

    With `two_passes`, `forward` returns vectors, and `scores` and `baselines` compare the rows of all ranks.
    """

    terms: tuple[str, ...]
    """Loss terms."""
    weights: Mapping[str, float] = {}
    """Loss term -> weight; a term without an entry has weight 1."""
    selecting: str
    """Held-out metric that selects the best checkpoint."""
    two_passes = False
    """Whether the loss compares the rows of all slots of a step, so that a step needs two passes over its slots."""
    negatives = 0
    """Maximum hard negatives per row."""
    hub_task = "fill-mask"
    """The hub's name of the task that the published model does."""
    has_published_head = True
    """Whether transformers has a class with the head of the published encoder."""

    counts: Callable[..., dict[str, int]]
    scores: Callable[..., Any]
    baselines: Callable[..., dict[str, float]]
    baseline_sums: Callable[..., dict[str, tuple[float, float]]]
    outputs: Callable[..., dict[str, Tensor]]
    learn_from: Callable[..., None]
    """Set the teacher, as Teacher.load returns it."""
    start_from_teacher: Callable[..., str]
    """Take initial weights from the teacher, and return one line about them."""

    def models(self) -> tuple[PublishedModel, ...]:
        """Return the models that are published."""
        raise NotImplementedError

    def text_layers(self) -> tuple[TextLayer, ...]:
        """Return the published layers between the encoder and a text's vector: none."""
        return ()

    @property
    def score_names(self) -> tuple[str, ...]:
        """All keys that `scores` may return, without `two_passes`."""
        return self.terms

    def heldout(self, sums: Sums) -> dict[str, float]:
        """Return {metric: mean over all held-out batches}."""
        raise NotImplementedError

    @property
    def publishes_hidden_states(self) -> bool:
        """Whether transformers has none of the module's heads, so that it gives hidden states only."""
        return False

    def published_outputs(self, batch: Any) -> dict[str, Tensor]:
        """Return the outputs that transformers has too: hidden states in place of a head that it does not have."""
        return {"hidden": self.encoder(batch)} if self.publishes_hidden_states else self.outputs(batch)
