"""Contrastive learning of text vectors (InfoNCE, van den Oord et al. 2018). A row has two texts: given one text, the
model must find the other text among the texts of all rows of a step.

Shapes: N rows of two texts and up to K hard negatives, T tokens in total, B rows of a block, W width of a vector.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.data import Sampling
from pipeline.config.model import Model
from pipeline.config.objective import Contrastive
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.flops import BACKWARD, TokenCounts, encoder_flops
from pipeline.model.heads import AttentionPooling
from pipeline.model.pooling import pool
from pipeline.objectives.pretraining import Pretraining
from pipeline.objectives.published import PublishedModel, TextLayer
from pipeline.objectives.terms import LossCurve, Sums
from pipeline.saved.pooling import ATTENTION

CONTRASTIVE = "contrastive"
ACCURACY = f"{CONTRASTIVE}_accuracy"
HELDOUT_LOSS, HELDOUT_ACCURACY = f"heldout/{CONTRASTIVE}_loss", f"heldout/{ACCURACY}"
"""Names in a run's summary: the held-out loss, and the share of texts for which the right text is the most similar."""
CHANCE_LOSS, CHANCE_ACCURACY = f"baseline/chance_{CONTRASTIVE}_loss", f"baseline/chance_{ACCURACY}"
"""Names in a run's summary: the loss and the accuracy of random guesses on the same texts."""
CURVES = (
    LossCurve(
        term=CONTRASTIVE,
        label="contrastive loss, nats per text",
        guess=f"heldout_{CHANCE_LOSS}",
        guess_label="random guess",
    ),
)
DESCRIPTIONS = {
    HELDOUT_ACCURACY: ("accuracy", "accuracy of finding the other text of a pair among all held-out pairs"),
    HELDOUT_LOSS: ("loss", "contrastive loss on held-out pairs, nats per text"),
}
"""Held-out metric -> (its type on the Hugging Face Hub, its name on a model card)."""
POOLER = "attention."
"""Prefix of the attention pooling's parameters in the module."""
BLOCK_ROWS = 1_024
"""Rows whose similarities to all rows are computed at a time: 32 MB in float32 for a step of 8,192 rows."""


class ContrastiveTexts(Pretraining):
    """Encoder that maps a text to a vector: the text's last hidden states, pooled and scaled to length 1.

    The loss of a step needs the vectors of all rows of the step, so `forward` returns vectors, not loss terms.
    """

    terms = (CONTRASTIVE,)
    two_passes = True
    fills_blanks = False
    selecting = HELDOUT_LOSS
    hub_task = "sentence-similarity"
    publishes_hidden_states = True

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        objective: Contrastive = Contrastive(),  # noqa: B008 (it is frozen)
        generator: torch.Generator | None = None,
        negatives: int = 0,
    ) -> None:
        """Initialise weights from `generator`; None: from torch's global generator. `negatives` is K."""
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size)
        self.negatives = negatives
        self.pooling, self.temperature = objective.pooling, objective.temperature
        self.attention = AttentionPooling(settings.width) if objective.pooling == "attention" else None
        initialize(self, settings.initializer_deviation, generator)
        self.encoder.drop_pooler()

    def models(self) -> tuple[PublishedModel, ...]:
        """Return the one model that is published: the encoder alone."""
        return (PublishedModel(folder="", settings=self.encoder.settings, use="encoder", others=(POOLER,)),)

    def text_layers(self) -> tuple[TextLayer, ...]:
        """Return the attention pooling, if there is one."""
        if self.attention is None:
            return ()
        config = {"in_features": self.attention.in_features}
        return (TextLayer(folder=ATTENTION, prefix=POOLER, published="linear.", config=config),)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return {term: number of rows} without a forward pass."""
        assert batch.keys is not None
        return {CONTRASTIVE: len(batch.keys)}

    def forward(self, batch: Batch) -> Tensor:
        """Return the vectors of both texts and of the hard negatives of each row, float32 (N, 2 + K, W).

        The vector of a negative that a row does not have is 0.
        """
        pooled = pool(self.encoder(batch), batch, self.attention or self.pooling)
        vectors, width = F.normalize(pooled, dim=1), pooled.shape[1]
        if batch.places is not None:
            assert batch.keys is not None
            every = vectors.new_zeros(len(batch.keys) * (2 + self.negatives), width)
            vectors = every.index_copy(0, batch.places, vectors)
        return vectors.view(-1, 2 + self.negatives, width)

    @torch.no_grad()
    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """Return the hidden states, `hidden` (T, W)."""
        return {"hidden": self.encoder(batch)}

    @torch.no_grad()
    def scores(self, texts: Tensor, keys: Tensor) -> Sums:
        """Return the loss and the right answers of an evaluation over N rows, each as (sum, count).

        Each text is compared with the texts of all N rows, and first texts also with all hard negatives.
        """
        loss = right = torch.zeros((), dtype=torch.float64, device=texts.device)
        for part in compared(texts, keys, self.temperature):
            loss, right = loss + part.loss_B.sum(dtype=torch.float64), right + part.right_B.sum()
        return {CONTRASTIVE: (float(loss), len(texts)), ACCURACY: (float(right), len(texts))}

    def heldout(self, sums: Sums) -> dict[str, float]:
        """Return {metric: mean over all held-out rows}."""
        names = {CONTRASTIVE: f"{CONTRASTIVE}_loss", ACCURACY: ACCURACY}
        return {names[name]: total / count for name, (total, count) in sums.items() if count > 0}

    def baselines(self, keys: Tensor) -> dict[str, float]:
        """Return {metric: baseline} of random guesses: the means of ln(n) and 1 / n, with n texts to choose from."""
        if not len(keys):
            return {}
        choices = torch.cat([count for rows in _blocks(len(keys)) for count in _choices(keys, rows)]).double()
        return {CHANCE_LOSS: choices.log().mean().item(), CHANCE_ACCURACY: (1 / choices).mean().item()}

    def losses_and_gradients(self, texts: Tensor, keys: Tensor, divisor: float | Tensor) -> tuple[Tensor, Tensor]:
        """Return what the function `losses_and_gradients` returns for this module's temperature."""
        return losses_and_gradients(texts, keys, divisor, self.temperature)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A block of B rows in one direction: the first texts are compared with all second texts and hard negatives, or the
    second texts with all first texts.

    A row's loss is the sum of its values in the two directions.
    """

    rows: slice
    loss_B: Tensor
    """float32: half of the cross-entropy of the right text."""
    right_B: Tensor
    """float32: 0.5 if the right text is the most similar, else 0."""


def compared(texts: Tensor, keys: Tensor, temperature: float) -> Iterator[Compared]:
    """Yield the comparisons of N rows, both directions of each block; `texts` are vectors of length 1, (N, 2 + K, W).

    `keys` (N, 3 + K) are those of Batch.keys.
    """
    with torch.autocast(texts.device.type, enabled=False):
        for rows in _blocks(len(texts)):
            wrong = _excluded_by_side(keys, rows)
            answers_B = torch.arange(rows.start, rows.stop, device=texts.device)
            for side in (0, 1):
                similarity = texts[rows, side] @ _candidates(texts, side).T
                logits = similarity.div_(temperature).masked_fill_(wrong[side], -torch.inf)
                right_B = logits.argmax(1) == answers_B
                loss_B = F.cross_entropy(logits, answers_B, reduction="none")
                del similarity, logits  # the backward pass needs only the copy that cross_entropy keeps
                yield Compared(rows=rows, loss_B=loss_B / 2, right_B=right_B.float() / 2)


def losses_and_gradients(
    texts: Tensor, keys: Tensor, divisor: float | Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the loss of each row, float32 (N,), and the gradient of their sum / divisor by `texts` (N, 2 + K, W).

    `texts` are vectors of length 1. Both results are computed in float32 and in blocks of rows.
    """
    leaf = texts.detach().requires_grad_()
    losses_N = texts.new_zeros(len(texts))
    with torch.enable_grad():
        for part in compared(leaf, keys, temperature):
            (part.loss_B.sum() / divisor).backward()
            losses_N[part.rows] += part.loss_B.detach()
    assert leaf.grad is not None
    return losses_N, leaf.grad


def excluded(keys: Tensor, rows: slice) -> Tensor:
    """Return, for each row of a block, which of all N rows it is not compared with, bool (B, N).

    Two rows are not compared if they have a text or a parent document in common. A row is compared with itself.
    """
    ours, both = keys[rows], range(2)
    same = ours[:, 2, None] == keys[:, 2]
    for mine, other in ((mine, other) for mine in both for other in both):
        same |= ours[:, mine, None] == keys[:, other]
    same[torch.arange(len(ours)), torch.arange(rows.start, rows.stop)] = False
    return same


def excluded_negatives(keys: Tensor, rows: slice) -> Tensor:
    """Return which of all K N hard negatives are not compared with the first text of each row of a block, bool
    (B, N K); the negatives of a row are next to each other.

    A negative is excluded if it is equal to a text of the row, or of a row that has a text or the parent in common with
    it: such a row shows another right answer. Negatives that a row does not have are excluded too.
    """
    negatives = keys[:, 3:].reshape(-1)
    related = excluded(keys, rows)
    related[torch.arange(len(related)), torch.arange(rows.start, rows.stop)] = True
    wrong = (negatives == 0).repeat(len(related), 1)
    for others in _blocks(len(keys)):
        equal = (keys[others, 0, None] == negatives) | (keys[others, 1, None] == negatives)
        wrong |= related[:, others].float() @ equal.float() > 0
    return wrong


def _excluded_by_side(keys: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """Return the candidates that the first and the second text of each row of a block are not compared with."""
    wrong = excluded(keys, rows)
    if keys.shape[1] == 3:
        return wrong, wrong
    return torch.cat((wrong, excluded_negatives(keys, rows)), dim=1), wrong


def _choices(keys: Tensor, rows: slice) -> list[Tensor]:
    """Return the numbers of candidates of the first and of the second text of each row of a block, int64 (B,)."""
    return [(~wrong).sum(1) for wrong in _excluded_by_side(keys, rows)]


def _candidates(texts: Tensor, side: int) -> Tensor:
    """Return the vectors that the texts of one side are compared with, (N, W), or with hard negatives (N + N K, W)."""
    others = texts[:, 1 - side]
    if side == 1 or texts.shape[1] == 2:
        return others
    return torch.cat((others, texts[:, 2:].reshape(-1, texts.shape[2])))


def _blocks(rows: int) -> Iterator[slice]:
    """Yield slices of at most BLOCK_ROWS rows."""
    for start in range(0, rows, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, rows))


def build(
    objective: Contrastive, sampling: Sampling, model: Model, vocabulary_size: int, generator: torch.Generator | None
) -> ContrastiveTexts:
    """Return the module."""
    return ContrastiveTexts(model, vocabulary_size, objective, generator, sampling.negatives)


def trained_parts(objective: Contrastive, sampling: Sampling) -> tuple[str, ...]:
    """Return the name prefixes of the trained parameters outside the encoder. This objective has none."""
    return ()


def described(objective: Contrastive, sampling: Sampling) -> str:
    """Return the objective in words, for a model card."""
    pairs = sampling.pairs.in_words
    pooling = {"mean": "mean", "cls": "[CLS]", "attention": "attention"}[objective.pooling]
    return f"contrastive learning on {pairs} ({pooling} pooling, temperature {objective.temperature:g})"


def uses(sampling: Sampling) -> tuple[str, ...]:
    """Return sentences about uses of the model, for a model card."""
    return (
        "The model computes vectors. It neither fills blanks nor generates text.",
        f"Texts were paired automatically ({sampling.pairs.in_words}). No person judged how similar they are.",
    )


def flops_per_token(objective: Contrastive, model: Model, vocabulary_size: int, counted: TokenCounts) -> float:
    """Return the floating-point operations per token (no padding) of two forward passes and one backward pass.

    Only matrix products of the encoder count.
    """
    return encoder_flops(model, counted) * (BACKWARD + 1) / BACKWARD


def vectors_text(rows: int, width: int, negatives: int = 0) -> str:
    """Return the estimated memory of a step's vectors on each worker as text, for a plan; `negatives` is K."""
    block = min(rows, BLOCK_ROWS)
    vectors = 4 * (2 + negatives) * rows * width  # own, gathered, their gradients, and those of a block
    similarities = 4 * block * rows * (1 + negatives)  # with their softmax and gradients
    return (
        f"{4 * (vectors + similarities) / 1e6:,.0f} MB per GPU besides a slot (estimated): the vectors of "
        f"{rows:,} rows and their gradients, and the similarities of {block:,} rows at a time"
    )


def contrastive_rows(summary: Mapping[str, Any], other_length: str) -> list[tuple[str, str]]:
    """Return the summary's rows about contrastive learning, as (name, text); empty for other objectives.

    `other_length` is text that follows the values before training, as in `masked_rows`.
    """
    before, after, baselines = summary["heldout_before"], summary["heldout_after"], summary["baselines"]
    if HELDOUT_LOSS not in after:
        return []
    return [
        (
            "held-out contrastive loss",
            f"{after[HELDOUT_LOSS]:.3f} nats (before training {before[HELDOUT_LOSS]:.3f}{other_length}, "
            f"random guess {baselines[CHANCE_LOSS]:.3f})",
        ),
        (
            "held-out right texts found",
            f"{after[HELDOUT_ACCURACY]:.1%} (before training {before[HELDOUT_ACCURACY]:.1%}{other_length}, "
            f"random guess {baselines[CHANCE_ACCURACY]:.2%})",
        ),
    ]
