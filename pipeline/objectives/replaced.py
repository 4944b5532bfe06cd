"""Replaced-token detection (ELECTRA, Clark et al. 2020): a small generator fills masked positions with samples, and the
model predicts which tokens differ from the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import MaskedBatch
from pipeline.config.data import Sampling
from pipeline.config.model import Model
from pipeline.config.objective import Replaced, generator_share
from pipeline.errors import CheckpointError
from pipeline.model.embeddings import AddedEmbedding
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.families.table import family_of
from pipeline.model.flops import TokenCounts, encoder_flops, masked_head_flops, replaced_head_flops
from pipeline.model.heads import MaskedTokenHead, ReplacedTokenHead
from pipeline.model.sampling import drawn, entries_at
from pipeline.objectives.masked import MLM, unigram_baselines, unigram_sums
from pipeline.objectives.pretraining import Pretraining
from pipeline.objectives.published import PublishedModel
from pipeline.objectives.terms import LossCurve, Sums, Terms
from pipeline.saved.checkpoints import GENERATOR

REPLACED = "replaced"
REPLACED_LOSS = f"heldout/{REPLACED}_loss"
GENERATOR_PART = f"{GENERATOR}."
"""Prefix of the generator's parameter names."""
WORDS = "encoder.embeddings.words.weight"
"""Name of a model's word embeddings in its part of the module."""
SHARING, DISENTANGLED = "embedding_sharing", "gdes"
"""Field of the discriminator's config.json, and its value for gradient-disentangled sharing (microsoft/DeBERTa)."""
CURVES = (
    LossCurve(
        term=REPLACED,
        label="replaced-token loss, nats per token",
        guess="heldout/replaced_share",
        guess_label="guess by frequency",
        guess_is_share=True,
    ),
)
DESCRIPTIONS = {
    "heldout/replaced_accuracy": ("accuracy", "accuracy of replaced-token detection"),
    "heldout/replaced_recall": ("recall", "recall of replaced tokens"),
}
"""Held-out metric -> (its type on the Hugging Face Hub, its name on a model card)."""
SCORES = (MLM, f"{MLM}_accuracy", REPLACED, "replaced_accuracy", "replaced_recall", "replaced_share")


class Generator(nn.Module):
    """Encoder with a masked-token head. Its embeddings are those of the encoder `shared`; None: it has its own."""

    def __init__(self, settings: Model, vocabulary_size: int, shared: Encoder | None) -> None:
        super().__init__()
        self.encoder = Encoder(settings, vocabulary_size, embeddings=shared.embeddings if shared else None)
        self.masked_token_head = MaskedTokenHead(settings, vocabulary_size)


class ReplacedTokens(Pretraining):
    """Discriminator and generator (Clark et al. 2020, section 2).

    Training minimises the generator's masked-token loss plus the weighted replaced-token loss. The replaced-token loss
    covers all tokens. No gradient passes through the generator's samples. A sample that equals the original token
    counts as original.
    """

    terms = (MLM, REPLACED)
    score_names = SCORES
    selecting = f"heldout/{REPLACED}_loss"

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        objective: Replaced,
        generator: torch.Generator | None = None,
        *,
        summed: bool = False,
    ) -> None:
        """Initialise weights with the random generator `generator`; None: with torch's global random generator.

        With gradient-disentangled sharing, the discriminator's word embeddings are a table that is added to the
        generator's. If `summed` is true, they are the sum itself, for a module that is not trained.
        """
        super().__init__()
        disentangled = objective.embedding_sharing == "gradient-disentangled"
        self.weights = {REPLACED: objective.weight}
        self.encoder = Encoder(settings, vocabulary_size)
        self.replaced_token_head = ReplacedTokenHead(settings)
        shared = None if disentangled else self.encoder
        self.generator = Generator(objective.generator_of(settings), vocabulary_size, shared)
        self._about: dict[str, Any] = {SHARING: DISENTANGLED} if disentangled else {}
        self._added = {WORDS: f"{GENERATOR_PART}{WORDS}"} if disentangled and not summed else {}
        if self._added:
            self.encoder.embeddings.words = AddedEmbedding(self.generator.encoder.embeddings.words)
        initialize(self, settings.initializer_deviation, generator)
        if self._added:
            nn.init.zeros_(self.encoder.embeddings.words.weight)

    @classmethod
    def of(
        cls, settings: Model, generator: Model, vocabulary_size: int, sharing: str | None = None
    ) -> "ReplacedTokens":
        """Return a module that is not trained and whose generator has the settings `generator`.

        `sharing` is the field SHARING of the discriminator's config.json. The sizes of `generator` determine
        objective.generator_share and objective.generator_depth. Raises CheckpointError if no such values give these
        settings.
        """
        share, depth = generator_share(settings, generator), generator.layers / settings.layers
        if share and depth <= 1:
            kind = "gradient-disentangled" if sharing == DISENTANGLED else "all"
            objective = Replaced(generator_share=share, generator_depth=depth, embedding_sharing=kind)
            if objective.generator_of(settings) == generator:
                return cls(settings, vocabulary_size, objective, summed=True)
        raise CheckpointError(
            f"{GENERATOR}: a generator of width {generator.width} and {generator.layers} layers does not fit a "
            f"discriminator of width {settings.width} and {settings.layers} layers"
        )

    def models(self) -> tuple[PublishedModel, ...]:
        """Return the discriminator, which is the model to fine-tune, and the generator."""
        settings = self.generator.encoder.settings
        return (
            PublishedModel(
                folder="",
                settings=self.encoder.settings,
                use="replaced",
                others=(GENERATOR_PART,),
                added=self._added,
                config=self._about,
            ),
            PublishedModel(folder=GENERATOR, settings=settings, use="masked", prefix=GENERATOR_PART),
        )

    def counts(self, batch: MaskedBatch) -> dict[str, int]:
        """Return {term: count} without a forward pass: masked positions, and all tokens."""
        return {MLM: batch.masked, REPLACED: batch.tokens}

    def forward(self, batch: MaskedBatch) -> Terms:
        """Return {term: (summed loss, count)}; losses are float32 scalars.

        The masked-token loss is summed over M masked positions, and the replaced-token loss over T tokens.
        """
        head = self.generator.masked_token_head
        masked_loss, sampled_M = head.loss_and_samples(self._masked_states(batch), self.words, batch.masked_labels_M)
        filled, replaced_T = _replace_tokens(batch, sampled_M)
        logits_T = self.replaced_logits(filled)
        loss = F.binary_cross_entropy_with_logits(logits_T, replaced_T, reduction="sum")
        return {MLM: (masked_loss, batch.masked), REPLACED: (loss, batch.tokens)}

    @torch.no_grad()
    def scores(self, batch: MaskedBatch) -> Terms:
        """Return the sums of an evaluation, each as (sum, count).

        The sums are the terms of `forward`, accuracies, and the recall and share of replaced tokens. The batch's
        sizes seed the samples, so that every evaluation draws the same random numbers.
        """
        hidden_M = self._masked_states(batch)
        logits = self.generator.masked_token_head(hidden_M, self.words)
        labels = batch.masked_labels_M
        with torch.random.fork_rng(devices=[batch.ids_T.device] if batch.ids_T.is_cuda else []):
            torch.manual_seed(batch.tokens << 32 | batch.masked)
            sampled_M = entries_at(logits.softmax(1), drawn(labels))
        filled, replaced_T = _replace_tokens(batch, sampled_M)
        logits_T = self.replaced_logits(filled)
        correct_T, replaced = (logits_T > 0) == replaced_T.bool(), replaced_T.sum()
        return {
            MLM: (F.cross_entropy(logits, labels, reduction="sum"), batch.masked),
            f"{MLM}_accuracy": ((logits.argmax(-1) == labels).sum(), batch.masked),
            REPLACED: (F.binary_cross_entropy_with_logits(logits_T, replaced_T, reduction="sum"), batch.tokens),
            "replaced_accuracy": (correct_T.sum(), batch.tokens),
            "replaced_recall": ((correct_T * replaced_T).sum(), replaced),
            "replaced_share": (replaced, batch.tokens),
        }

    def heldout(self, sums: Sums) -> dict[str, float]:
        """Return {metric: mean over all held-out batches}."""
        names = {name: f"{name}_loss" if name in self.terms else name for name in SCORES}
        return {names[name]: total / count for name, (total, count) in sums.items() if count > 0}

    def baseline_sums(self, batches: Sequence[MaskedBatch], counts: np.ndarray) -> dict[str, tuple[float, float]]:
        """Return the sums of the generator's unigram baseline, as `unigram_sums` does."""
        return unigram_sums(batches, counts)

    def baselines(self, sums: Sums) -> dict[str, float]:
        """Return {metric: unigram baseline}."""
        return unigram_baselines(sums)

    @torch.no_grad()
    def predict_masked(self, batch: MaskedBatch) -> Tensor:
        """Return the generator's float32 logits (M, V) at the masked positions, without reading the labels."""
        return self.generator.masked_token_head(self._masked_states(batch), self.words)

    @torch.no_grad()
    def log_probabilities(self, batch: MaskedBatch) -> Tensor:
        """Return the generator's log-probability of each masked position's label in nats, float32 (M,).

        The head is computed in float32 even under autocast: with rounded logits, different sentences would have equal
        scores.
        """
        hidden_M = self._masked_states(batch)
        return self.generator.masked_token_head.log_probabilities(hidden_M, self.words, batch.masked_labels_M)

    @torch.no_grad()
    def outputs(self, batch: MaskedBatch) -> dict[str, Tensor]:
        """Return the logits of each head: the generator's `masked` (M, V), and the discriminator's `replaced` (T,).

        The discriminator reads the batch unchanged: no samples fill its masked positions.
        """
        return {"masked": self.predict_masked(batch), "replaced": self.replaced_logits(batch)}

    def replaced_logits(self, batch: MaskedBatch) -> Tensor:
        """Return the discriminator's float32 logits (T,) of the batch's tokens."""
        return self.replaced_token_head(self.encoder(batch), batch.offsets)

    @property
    def has_published_head(self) -> bool:
        """Whether transformers has a class with the family's head for replaced tokens."""
        classes = family_of(self.encoder.settings).architectures
        return classes["replaced"] != classes["encoder"]

    def published_outputs(self, batch: Any) -> dict[str, Tensor]:
        """Return the outputs that transformers has too: hidden states in place of a head that it does not have."""
        if self.has_published_head:
            return self.outputs(batch)
        return {"masked": self.predict_masked(batch), "hidden": self.encoder(batch)}

    @property
    def words(self) -> Tensor:
        """Word embeddings (V, embedded width) of the generator."""
        return self.generator.encoder.embeddings.words.weight

    def _masked_states(self, batch: MaskedBatch) -> Tensor:
        """Return the generator's hidden states (M, generator's width) at the masked positions."""
        return self.generator.encoder(batch)[batch.masked_positions_M]


def _replace_tokens(batch: MaskedBatch, sampled_M: Tensor) -> tuple[MaskedBatch, Tensor]:
    """Return the batch with `sampled_M` at its masked positions, and the labels of its tokens, float32 (T,).

    A label is 1 if the token differs from the original token, else 0.
    """
    filled = replace(batch, ids_T=batch.ids_T.index_put((batch.masked_positions_M,), sampled_M))
    changed_M = (sampled_M != batch.masked_labels_M).float()
    return filled, torch.zeros_like(batch.ids_T, dtype=torch.float32).index_put((batch.masked_positions_M,), changed_M)


def build(
    objective: Replaced, sampling: Sampling, model: Model, vocabulary_size: int, generator: torch.Generator | None
) -> ReplacedTokens:
    """Return the module with generator and discriminator."""
    return ReplacedTokens(model, vocabulary_size, objective, generator)


def trained_parts(objective: Replaced, sampling: Sampling) -> tuple[str, ...]:
    """Return the name prefixes of the trained parameters outside the encoder."""
    return ("replaced_token_head.", GENERATOR_PART)


def described(objective: Replaced, sampling: Sampling) -> str:
    """Return the objective in words, for a model card."""
    return "replaced-token detection, with a generator trained by masked-language modelling"


def flops_per_token(objective: Replaced, model: Model, vocabulary_size: int, counted: TokenCounts) -> float:
    """Return the floating-point operations per token (no padding), matrix products only.

    The forward and backward passes of both generator and discriminator count.
    """
    generator = objective.generator_of(model)
    return (
        encoder_flops(generator, counted)
        + masked_head_flops(generator, vocabulary_size, counted)
        + encoder_flops(model, counted)
        + replaced_head_flops(model)
    )


def replaced_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the summary's rows about replaced tokens, as (name, text); empty for other objectives.

    The text compares the accuracy with the accuracy of always answering "not replaced".
    """
    after = summary["heldout_after"]
    if REPLACED_LOSS not in after:
        return []
    share = after["heldout/replaced_share"]
    return [
        ("held-out replaced-token loss", f"{after[REPLACED_LOSS]:.4f} nats per token"),
        (
            "held-out replaced tokens",
            f"accuracy {after['heldout/replaced_accuracy']:.1%}, recall {after['heldout/replaced_recall']:.1%} "
            f"({share:.1%} are replaced: always answering no has accuracy {1 - share:.1%})",
        ),
    ]
