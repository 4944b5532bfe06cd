"""Settings of fine-tuning an encoder whose vectors tell how similar two texts are."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_above_zero, require_at_least

Loss = Literal["cosent", "cosine", "contrastive", "triplet", "softmax"]
ROWS_OF_KIND = {
    "similarity": "pairs of texts with a score",
    "matching": "texts, each with another text that matches it",
    "relations": "pairs of texts with a class",
}
"""Kind of task -> its rows in words."""


@dataclass(frozen=True, kw_only=True)
class VectorLoss:
    """A loss of text vectors: the rows and settings that it reads, and how it treats the rows of a step."""

    kind: str
    """Kind of task, which says what a row has (`ROWS_OF_KIND`)."""
    settings: tuple[str, ...] = ()
    """Settings of `Similarity` that have an effect on it."""
    needs_negatives: bool = False
    """Whether rows without negative texts have no loss."""
    compares_rows: bool = False
    """Whether a row's loss is its comparison with the step's other rows, so that a split step needs two passes."""
    is_of_whole_step: bool = False
    """Whether a step has one loss for all pairs of rows, so that it cannot be split."""


LOSSES: dict[str, VectorLoss] = {
    "cosent": VectorLoss(kind="similarity", settings=("temperature",), is_of_whole_step=True),
    "cosine": VectorLoss(kind="similarity"),
    "contrastive": VectorLoss(kind="matching", settings=("temperature", "negatives"), compares_rows=True),
    "triplet": VectorLoss(kind="matching", settings=("margin", "negatives"), needs_negatives=True),
    "softmax": VectorLoss(kind="relations"),
}
KIND_OF_LOSS = {name: loss.kind for name, loss in LOSSES.items()}
"""similarity.loss -> kind of task."""
LOSSES_WITH = {
    setting: tuple(name for name, loss in LOSSES.items() if setting in loss.settings)
    for setting in ("temperature", "margin", "negatives")
}
"""Setting of `Similarity` -> losses on which it has an effect."""
MOST_DISTANT = 2
"""Largest distance of two vectors of length 1."""


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """Training loss and vectors of kind similarity; the cosine of two vectors tells how similar two texts are."""

    loss: Loss = "cosent"
    """For pairs with a score. cosent: of any two pairs in a step, the pair with the higher score should have the higher
    cosine (Su 2022); cosine: squared error between the cosine and the score, after scaling the score to the range from
    0 to 1 (Reimers and Gurevych 2019). For a text and its match. contrastive: each text should find its match among the
    texts of all rows of a step, and the other way round (InfoNCE, van den Oord et al. 2018); triplet: a text should be
    nearer to its match than to a negative text, by a margin (Reimers and Gurevych 2019). For pairs with a class.
    softmax: a head, which is not saved, tells the class from both vectors u, v and |u - v| (Reimers and Gurevych 2019).
    """
    pooling: Literal["mean", "cls"] = "mean"
    """Vector of a text. mean: the mean of the last hidden states; cls: the last hidden state of [CLS]."""
    temperature: float = 0.05
    """Divisor of the differences of cosines in cosent (0.05 is from Su 2022), and of the cosines in contrastive (0.05
    is the default of sentence-transformers, scale 20).
    """
    margin: float = 5.0
    """Margin of triplet, in Euclidean distance of the vectors before they are scaled to length 1. 5 is the default of
    sentence-transformers; Reimers and Gurevych 2019 use 1.
    """
    negatives: int = 8
    """Maximum negative texts per row, for contrastive and triplet. If a row has more, the first ones are used. The
    memory of a step follows the row with the most negative texts.
    """
    dimensions: tuple[int, ...] = ()
    """Lengths of truncated vectors (Matryoshka, Kusupati et al. 2022), such as 32, 64 and the encoder's width. The loss
    is the mean over the vectors of the first 32 numbers, of the first 64 and so on, each scaled to length 1, and each
    length is scored. Default: the loss of whole vectors.
    """

    def __post_init__(self) -> None:
        require_above_zero("similarity.temperature", self.temperature)
        require_above_zero("similarity.margin", self.margin)
        require_at_least("similarity.negatives", self.negatives, 1)
        for name, losses in LOSSES_WITH.items():
            value = getattr(self, name)
            require(
                self.loss in losses or value == getattr(Similarity, name),
                f"similarity.{name} ({value:g}) is for similarity.loss {' and '.join(losses)}, but similarity.loss is "
                f"{self.loss}: leave similarity.{name} out",
            )
        shown = f"similarity.dimensions ({', '.join(map(str, self.dimensions))})"
        require(all(length >= 1 for length in self.dimensions), f"{shown} must be at least 1")
        require(
            all(short < long for short, long in zip(self.dimensions, self.dimensions[1:])),
            f"{shown} must increase: give each length once, the shortest first",
        )
        require(
            self.loss != "triplet" or not self.dimensions or self.margin < MOST_DISTANT,
            f"similarity.margin ({self.margin:g}) must be below {MOST_DISTANT} with {shown}, because truncated vectors "
            f"have length 1 and distances of at most {MOST_DISTANT}: set similarity.margin 0.5",
        )

    def require_columns(self, kind: str, label: tuple[str, ...], negative: tuple[str, ...]) -> None:
        """Raise ConfigError for columns of a file of this kind (the setting `kind`) that the loss does not read."""
        matching = kind == "similarity" and KIND_OF_LOSS[self.loss] == "matching"
        require(
            matching or not negative,
            f"negative ({', '.join(negative)}) is for --kind similarity with similarity.loss "
            f"{' and '.join(LOSSES_WITH['negatives'])}: leave negative out",
        )
        require(
            not matching or not label,
            f"label ({', '.join(label)}) has no effect on similarity.loss {self.loss}, whose rows have no label: leave "
            "label out",
        )
