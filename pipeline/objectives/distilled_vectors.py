"""Distillation of text vectors (Reimers and Gurevych 2020). The student's vector of a text learns the direction of the
vector that another model, the teacher, gives the same text.

Shapes: N texts, T tokens in total, W width of the student, D dimension of the teacher's vectors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.data import Sampling
from pipeline.config.model import Model
from pipeline.config.objective import DistilledVectors
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.flops import TokenCounts, encoder_flops
from pipeline.model.pooling import pool
from pipeline.objectives.pretraining import Pretraining
from pipeline.objectives.published import PublishedModel, TextLayer
from pipeline.objectives.terms import LossCurve, Sums, Terms
from pipeline.saved.pooling import DENSE

VECTORS = "vectors"
HELDOUT_LOSS, MEAN_LOSS = f"heldout/{VECTORS}_loss", f"baseline/mean_{VECTORS}_loss"
"""Names in a run's summary: the held-out loss, and the loss of a student that gives every text the same vector, the
mean of the teacher's vectors of the held-out texts.
"""
CURVES = (
    LossCurve(
        term=VECTORS,
        label="1 - cosine to the teacher's vector",
        guess=f"heldout_{MEAN_LOSS}",
        guess_label="one vector for all texts",
    ),
)
DESCRIPTIONS = {HELDOUT_LOSS: ("loss", "1 - cosine of the vectors of student and teacher on held-out texts")}
"""Held-out metric -> (its type on the Hugging Face Hub, its name on a model card)."""
PROJECTION = "dense."
"""Prefix of the projection's parameters in the module."""
IDENTITY = "torch.nn.modules.linear.Identity"

Embed = Callable[[Sequence[str]], Tensor]
"""Function from N texts to a teacher's vectors of them, float32 (N, D), on the student's device."""


class VectorStudent(Pretraining):
    """Encoder that maps a text to a vector. Training and evaluation need a teacher, which `learn_from` sets.

    If the teacher's vectors have another width, a linear layer maps the pooled states to this width. The loss of a text
    is 1 - cosine of both vectors: half of the squared distance of the vectors scaled to length 1. Reimers and Gurevych
    (2020, equation 1) use the squared distance of the vectors without scaling.
    """

    terms = (VECTORS,)
    fills_blanks = False
    selecting = HELDOUT_LOSS
    hub_task = "sentence-similarity"
    publishes_hidden_states = True

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        objective: DistilledVectors = DistilledVectors(),  # noqa: B008 (it is frozen)
        generator: torch.Generator | None = None,
    ) -> None:
        """Initialise weights from `generator`; None: from torch's global generator."""
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size)
        self.pooling, self.width = objective.pooling, objective.teacher_width or settings.width
        self.dense = nn.Linear(settings.width, self.width) if self.width != settings.width else None
        initialize(self, settings.initializer_deviation, generator)
        self.encoder.drop_pooler()
        # The tuple keeps a teacher that is a module from becoming a submodule, which would be saved.
        self._teacher: tuple[Embed, ...] = ()

    def learn_from(self, teacher: Embed) -> None:
        """Set the teacher."""
        self._teacher = (teacher,)

    def models(self) -> tuple[PublishedModel, ...]:
        """Return the one model that is published: the encoder alone."""
        return (PublishedModel(folder="", settings=self.encoder.settings, use="encoder", others=(PROJECTION,)),)

    def text_layers(self) -> tuple[TextLayer, ...]:
        """Return the projection, if there is one, as sentence-transformers' Dense."""
        if self.dense is None:
            return ()
        sizes = {"in_features": self.dense.in_features, "out_features": self.dense.out_features}
        config = sizes | {"bias": True, "activation_function": IDENTITY}
        return (TextLayer(folder=DENSE, prefix=PROJECTION, published="linear.", config=config),)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return {term: number of texts} without a forward pass."""
        return {VECTORS: batch.sequences}

    def forward(self, batch: Batch) -> Terms:
        """Return {term: (summed loss, count)}; the loss is a float32 scalar."""
        vectors = pool(self.encoder(batch), batch, self.pooling)
        if self.dense is not None:
            vectors = self.dense(vectors).float()
        return {VECTORS: ((1 - F.cosine_similarity(vectors, self._taught(batch), dim=1)).sum(), batch.sequences)}

    @torch.no_grad()
    def _taught(self, batch: Batch) -> Tensor:
        """Return the teacher's vectors of the texts of a batch, float32 (N, D)."""
        assert len(self._teacher) == 1, "a student needs a teacher: call learn_from first"
        assert batch.texts is not None
        return self._teacher[0](batch.texts)

    @torch.no_grad()
    def scores(self, batch: Batch) -> Terms:
        """Return the sums of an evaluation, each as (sum, count)."""
        return self(batch)

    def heldout(self, sums: Sums) -> dict[str, float]:
        """Return {metric: mean over all held-out texts}."""
        return {f"{name}_loss": total / count for name, (total, count) in sums.items() if count > 0}

    def baseline_sums(self, batches: Sequence[Batch], counts: np.ndarray) -> dict[str, tuple[float, float]]:
        """Return the sum of each number of the teacher's vectors, scaled to length 1, over all texts."""
        total = torch.zeros(self.width, dtype=torch.float64)
        for batch in batches:
            total += F.normalize(self._taught(batch).double(), dim=1).sum(0).cpu()
        texts = float(sum(batch.sequences for batch in batches))
        return {f"teacher_{index}": (value, texts) for index, value in enumerate(total.tolist())}

    def baselines(self, sums: Sums) -> dict[str, float]:
        """Return {metric: baseline}: 1 - cosine of the mean of the teacher's vectors to each of them, the mean."""
        totals, counts = zip(*sums.values(), strict=True)
        return {MEAN_LOSS: 1 - float(np.linalg.norm(totals)) / counts[0]} if counts[0] else {}


def build(
    objective: DistilledVectors,
    sampling: Sampling,
    model: Model,
    vocabulary_size: int,
    generator: torch.Generator | None,
) -> VectorStudent:
    """Return the student, without a teacher."""
    return VectorStudent(model, vocabulary_size, objective, generator)


def trained_parts(objective: DistilledVectors, sampling: Sampling) -> tuple[str, ...]:
    """Return the name prefixes of the trained parameters outside the encoder that a published model may have: none."""
    return ()


def described(objective: DistilledVectors, sampling: Sampling) -> str:
    """Return the objective in words, for a model card."""
    pooling = {"mean": "mean", "cls": "[CLS]"}[objective.pooling]
    return f"distillation of a teacher's text vectors ({pooling} pooling, 1 - cosine)"


def uses(sampling: Sampling) -> tuple[str, ...]:
    """Return sentences about uses of the model, for a model card."""
    return (
        "The model computes vectors. It neither fills blanks nor generates text.",
        "It learnt to imitate its teacher's vectors, so it has the teacher's weaknesses too.",
    )


def flops_per_token(objective: DistilledVectors, model: Model, vocabulary_size: int, counted: TokenCounts) -> float:
    """Return the floating-point operations of the student's encoder per token (no padding), matrix products only.

    The teacher's operations are not counted, because the settings do not contain the teacher's sizes.
    """
    return encoder_flops(model, counted)


def vector_rows(summary: Mapping[str, Any], other_length: str) -> list[tuple[str, str]]:
    """Return the summary's rows about distilled vectors, as (name, text); empty for other objectives.

    `other_length` is text that follows the values before training, as in `masked_rows`.
    """
    before, after, baselines = summary["heldout_before"], summary["heldout_after"], summary["baselines"]
    if HELDOUT_LOSS not in after:
        return []
    text = (
        f"{after[HELDOUT_LOSS]:.4f} (1 - cosine to the teacher's vector; before training "
        f"{before[HELDOUT_LOSS]:.4f}{other_length}, one vector for all texts {baselines[MEAN_LOSS]:.4f})"
    )
    return [("held-out vector loss", text)]
