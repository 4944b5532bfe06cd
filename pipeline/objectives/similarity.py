"""Similarity of two texts: each is encoded alone, and the cosine of their vectors is compared with a score.

Losses: CoSENT (Su 2022, kexue.fm/archives/8847) or squared error of the cosine (Reimers and Gurevych 2019, 3). Shapes:
N pairs, whose 2N sequences alternate in the batch: the first and the second text of each pair.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.finetune import Similarity
from pipeline.config.model import Model
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import by_segment
from pipeline.objectives.terms import TASK, Terms


class SimilarityTask(nn.Module):
    """Encoder whose vectors of two texts have a cosine that follows the pair's score; there is no head."""

    per_token = False
    weights = {TASK: 1.0}

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        generator: torch.Generator | None = None,
        *,
        pooling: str = "mean",
    ) -> None:
        """Make the encoder; `pooling` is "mean" (of the last states) or "cls" (last state of the first token).

        Weights are initialised from `generator`; None: from torch's global generator.
        """
        super().__init__()
        assert pooling in ("mean", "cls")
        self.encoder = Encoder(settings, vocabulary_size)
        self.pooling, self.settings = pooling, Similarity()
        self.low, self.range = 0.0, 1.0
        initialize(self, settings.initializer_deviation, generator)

    def learn(self, settings: Similarity, low: float, high: float) -> None:
        """Train with the loss of these settings on scores from `low` to `high`."""
        self.settings, self.low, self.range = settings, low, high - low

    def forward(self, batch: Batch) -> Terms:
        """Return {TASK: (summed loss, its count)}; the loss is a float32 scalar."""
        assert batch.label_N is not None
        loss = LOSSES[self.settings.loss](self.cosines(batch), (batch.label_N - self.low) / self.range, self.settings)
        return {TASK: (loss, self.counts(batch)[TASK])}

    def counts(self, batch: Batch) -> dict[str, int | Tensor]:
        """Return {TASK: count that its summed loss is divided by}: 1 for CoSENT, which is one value, else N."""
        return {TASK: 1 if self.settings.loss == "cosent" else batch.sequences // 2}

    def logits(self, batch: Batch) -> Tensor:
        """Return the cosine of each pair, float32 (N, 1)."""
        return self.cosines(batch)[:, None]

    def cosines(self, batch: Batch) -> Tensor:
        """Return the cosine of each pair, float32 (N,)."""
        hidden_T = self.encoder(batch).float()
        vectors = (
            hidden_T[batch.offsets[:-1]]
            if self.pooling == "cls"
            else by_segment(hidden_T, "mean", batch.offsets.diff().long())
        )
        with torch.autocast(hidden_T.device.type, enabled=False):
            return F.cosine_similarity(vectors[::2], vectors[1::2])


def cosent(cosines_N: Tensor, scores_N: Tensor, settings: Similarity) -> Tensor:
    """Return log(1 + sum of exp((cos_j - cos_i) / temperature) over all i, j with a higher score of i than of j)."""
    differences = (cosines_N[None, :] - cosines_N[:, None]) / settings.temperature  # [i, j]: cos_j - cos_i
    higher = scores_N[:, None] > scores_N[None, :]
    exponents = differences.masked_fill(~higher, -torch.inf).flatten()
    return torch.logsumexp(F.pad(exponents, (1, 0)), dim=0)  # the 0 in front is the 1 in the sum


def squared_error(cosines_N: Tensor, scores_N: Tensor, settings: Similarity) -> Tensor:
    """Return the squared differences of cosines and scores, which are scaled to the range from 0 to 1, summed."""
    return F.mse_loss(cosines_N, scores_N, reduction="sum")


LOSSES: dict[str, Callable[[Tensor, Tensor, Similarity], Tensor]] = {"cosent": cosent, "cosine": squared_error}
"""similarity.loss -> function of (cosines, scores from 0 to 1, settings)."""
