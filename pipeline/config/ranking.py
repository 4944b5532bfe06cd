"""Settings of fine-tuning a model that ranks candidates for a query (a reranker, or cross-encoder)."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_at_least

Loss = Literal["binary", "softmax", "margin"]
GROUPED: tuple[Loss, ...] = ("softmax", "margin")
"""Losses that compare the candidates of a query."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Training loss of kind ranking. A model reads a query and a candidate together and gives the pair a score."""

    loss: Loss = "binary"
    """binary: cross-entropy of each pair, relevant or not (Nogueira and Cho 2019); softmax: cross-entropy of a relevant
    candidate among the candidates of its query (Gao et al. 2021); margin: squared error between the model's and a
    teacher's difference of the scores of a relevant and an irrelevant candidate (Hofstätter et al. 2020), needs
    teacher.
    """
    candidates: int = 8
    """Maximum candidates per row of softmax and margin: a relevant one, and irrelevant ones of the same query. A query
    with more irrelevant candidates gets several rows.
    """

    def __post_init__(self) -> None:
        require_at_least("ranking.candidates", self.candidates, 2)
        require(
            self.loss in GROUPED or self.candidates == Ranking.candidates,
            f"ranking.candidates ({self.candidates}) is for ranking.loss {' and '.join(GROUPED)}, but ranking.loss is "
            f"{self.loss}: leave ranking.candidates out",
        )

    @property
    def grouped(self) -> bool:
        """Whether a training row holds several candidates of a query."""
        return self.loss in GROUPED
