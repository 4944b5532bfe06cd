"""Masked-token prediction, with next-sentence or sentence-order prediction if examples are pairs (Devlin et al. 2019,
Lan et al. 2020).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import MaskedBatch, NextSentenceBatch, SentenceOrderBatch
from pipeline.config.data import NextSentence, Sampling, SentenceOrder
from pipeline.config.model import Model
from pipeline.config.objective import Masked
from pipeline.model.flops import TokenCounts, encoder_flops, masked_head_flops
from pipeline.model.masked_model import MaskedModel
from pipeline.objectives.pretraining import Pretraining
from pipeline.objectives.published import PublishedModel
from pipeline.objectives.terms import LossCurve, Sums, Terms

MLM, NSP, SOP = "mlm", "nsp", "sop"
HELDOUT_LOSS, UNIGRAM_LOSS = f"heldout/{MLM}_loss", f"baseline/unigram_{MLM}_loss"
"""Names in a run's summary: the held-out loss at masked tokens, and the unigram baseline's loss at the same tokens."""
HELDOUT_ACCURACY, UNIGRAM_ACCURACY = f"heldout/{MLM}_accuracy", f"baseline/unigram_{MLM}_accuracy"
"""Names in a run's summary: the accuracy at masked tokens, and the unigram baseline's accuracy at the same tokens."""
PAIRS = (NSP, SOP)
ACCURACY = "{}_accuracy"
ONES = "{}_ones"
"""Name of the score whose sum is the number of pairs with label 1."""
PAIR_NAMES = {NSP: "next-sentence prediction", SOP: "sentence-order prediction"}
PAIR_TERMS: dict[type, str] = {NextSentence: NSP, SentenceOrder: SOP}
"""Type of sampling.pairs -> loss term of its pair task, if the examples have a pair label."""
CURVES = (
    LossCurve(
        term=MLM,
        label="MLM loss, nats per masked token",
        guess="heldout_baseline/unigram_mlm_loss",
        guess_label="unigram baseline",
    ),
    *(
        LossCurve(
            term=term,
            label=f"{term.upper()} loss, nats per pair",
            guess=f"heldout_baseline/majority_{term}_accuracy",
            guess_label="guess by frequency",
            guess_is_share=True,
        )
        for term in PAIRS
    ),
)
ONE_ANSWER = (
    "not measured: all held-out pairs have the same answer; "
    "hold out more documents (prepare.heldout_share, or more text)"
)
DESCRIPTIONS = {
    "heldout/mlm_accuracy": ("accuracy", "accuracy at masked tokens"),
    "heldout/mlm_loss": ("loss", "cross-entropy at masked tokens, nats"),
    "heldout/nsp_accuracy": ("accuracy", "accuracy of next-sentence prediction"),
    "heldout/sop_accuracy": ("accuracy", "accuracy of sentence-order prediction"),
}
"""Held-out metric -> (its type on the Hugging Face Hub, its name on a model card)."""


class MaskedTokens(MaskedModel, Pretraining):
    """Encoder with a head for masked tokens, and optionally a head for pairs.

    Training minimises the sum of both heads' mean losses (Devlin et al. 2019, section 3.1). The pair head learns the
    pair task that the batch has labels for: next sentence, or sentence order (Lan et al. 2020, section 3.1).
    """

    selecting = HELDOUT_LOSS

    def __init__(
        self,
        settings: Model,
        vocabulary_size: int,
        generator: torch.Generator | None = None,
        *,
        pairs: bool = True,
        enhanced: bool = False,
    ) -> None:
        """Initialise weights as `MaskedModel` does. The pair head is a term of the loss, if there is one."""
        super().__init__(settings, vocabulary_size, generator, pairs=pairs, enhanced=enhanced)
        self.terms = (MLM,) if self.next_sentence_head is None else (MLM, *PAIRS)

    def models(self) -> tuple[PublishedModel, ...]:
        """Return the one model that is published."""
        return (PublishedModel(folder="", settings=self.encoder.settings, use="masked"),)

    def counts(self, batch: MaskedBatch) -> dict[str, int]:
        """Return {term: count} without a forward pass: masked positions, and labelled pairs of each pair task."""
        labels = _pair_labels(batch)
        return {MLM: batch.masked} | {term: len(labels.get(term, ())) for term in self.terms[1:]}

    def forward(self, batch: MaskedBatch) -> Terms:
        """Return {term: (summed loss, count)}; losses are float32 scalars.

        The counts of a filled batch include its dummies (`pipeline.train.graphs.filled`); the sums do not.

        The masked-token loss is summed over M masked positions. With a pair head and labelled pairs, there is also a
        pair loss, summed over N pairs.
        """
        hidden_T = self.hidden(batch)
        masked_loss = self.masked_token_head.loss(
            hidden_T[batch.masked_positions_M], self.words, batch.masked_labels_M, some_ignored=batch.is_filled
        )
        labels = self.pair_labels(batch)
        if not labels:
            return {MLM: (masked_loss, batch.masked)}
        pair_logits = self.pair_logits(hidden_T, batch)
        pair_losses = {
            name: (F.cross_entropy(pair_logits, label_N, reduction="sum"), batch.sequences)
            for name, label_N in labels.items()
        }
        return {MLM: (masked_loss, batch.masked)} | pair_losses

    @property
    def score_names(self) -> tuple[str, ...]:
        """All keys that `scores` may return. A batch without labels of a pair task lacks the keys of this task."""
        return (*self.terms, *map(ACCURACY.format, self.terms), *map(ONES.format, self.terms[1:]))

    @torch.no_grad()
    def scores(self, batch: MaskedBatch) -> Terms:
        """Return the sums of an evaluation, each as (sum, count).

        The keys are the terms of `forward`, TERM_accuracy (the sum is the number of correct answers), and for pair
        tasks TERM_ones (the sum is the number of pairs with label 1).
        """
        hidden_T = self.hidden(batch)
        labels = self.pair_labels(batch)
        predictions = {MLM: (self.masked_logits(hidden_T, batch), batch.masked_labels_M)}
        predictions |= {name: (self.pair_logits(hidden_T, batch), label_N) for name, label_N in labels.items()}
        losses = {
            name: (F.cross_entropy(logits, wanted, reduction="sum"), len(wanted))
            for name, (logits, wanted) in predictions.items()
        }
        correct = {
            ACCURACY.format(name): ((logits.argmax(-1) == wanted).sum(), len(wanted))
            for name, (logits, wanted) in predictions.items()
        }
        return losses | correct | {ONES.format(name): (label_N.sum(), len(label_N)) for name, label_N in labels.items()}

    def heldout(self, sums: Sums) -> dict[str, float]:
        """Return {metric: mean over all held-out batches}.

        A pair task is left out if all held-out pairs have the same label, because a constant answer would be right for
        all pairs.
        """
        unmeasured = {
            name
            for term in self.terms[1:]
            if sums[ONES.format(term)][0] in (0, sums[ONES.format(term)][1])
            for name in (term, ACCURACY.format(term))
        }
        names = {name: f"{name}_loss" if name in self.terms else name for name in self.score_names}
        return {
            names[name]: total / count
            for name, (total, count) in sums.items()
            if count > 0 and name not in unmeasured and not name.endswith("_ones")
        }

    def baseline_sums(self, batches: Sequence[MaskedBatch], counts: np.ndarray) -> dict[str, tuple[float, float]]:
        """Return the sums that `baselines` takes, each as (sum, count).

        They are the sums from `unigram_sums` and, for each pair task, (number of pairs with label 1, number of pairs).
        """
        ones = {term: _ones_and_rows(batches, term) for term in self.terms[1:]}
        return unigram_sums(batches, counts) | ones

    def baselines(self, sums: Sums) -> dict[str, float]:
        """Return {metric: baseline}.

        The baselines are the unigram distribution and, for each pair task, the share of the more frequent label.
        """
        return unigram_baselines(sums) | {
            f"baseline/majority_{term}_accuracy": max(ones, rows - ones) / rows
            for term in self.terms[1:]
            for ones, rows in [sums[term]]
            if rows
        }

    @torch.no_grad()
    def outputs(self, batch: MaskedBatch) -> dict[str, Tensor]:
        """Return the logits of each head: `masked` (M, V) and, with a pair head, `pairs` (N, 2)."""
        hidden_T = self.hidden(batch)
        pairs = {} if self.next_sentence_head is None else {"pairs": self.pair_logits(hidden_T, batch)}
        return {"masked": self.masked_logits(hidden_T, batch)} | pairs

    @property
    def publishes_hidden_states(self) -> bool:
        """Whether transformers has no such head: it has no enhanced mask decoder."""
        return self.enhanced_decoder is not None

    def pair_labels(self, batch: MaskedBatch) -> dict[str, Tensor]:
        """Return {pair task: int64 labels (N,)} of the batch; empty without a pair head or labels."""
        return _pair_labels(batch) if self.next_sentence_head is not None else {}


def _pair_labels(batch: MaskedBatch) -> dict[str, Tensor]:
    """Return {pair task: int64 labels (N,)} of the batch; empty if its sequences have no pair labels."""
    if isinstance(batch, NextSentenceBatch):
        return {NSP: batch.not_next_N}
    return {SOP: batch.swapped_N} if isinstance(batch, SentenceOrderBatch) else {}


def unigram_sums(batches: Sequence[MaskedBatch], counts: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return the loss in nats and the correct answers of a unigram baseline at the masked positions, as (sum, count).

    The baseline's probabilities are proportional to `counts` (V,), the occurrences of each vocabulary entry, plus 1.
    """
    log_share = np.log(counts + 1.0) - np.log(counts.sum() + len(counts))
    labels = np.concatenate([batch.masked_labels_M.numpy() for batch in batches] or [np.zeros(0, dtype=np.int64)])
    correct = (labels == counts.argmax()).sum()
    return {MLM: (-log_share[labels].sum(), len(labels)), ACCURACY.format(MLM): (correct, len(labels))}


def unigram_baselines(sums: Sums) -> dict[str, float]:
    """Return {metric: unigram baseline}; empty if no position is masked."""
    (loss, masked), (correct, _) = sums[MLM], sums[ACCURACY.format(MLM)]
    if not masked:
        return {}
    return {"baseline/unigram_mlm_loss": loss / masked, "baseline/unigram_mlm_accuracy": correct / masked}


def _ones_and_rows(batches: Sequence[MaskedBatch], term: str) -> tuple[float, float]:
    """Return the number of pairs with label 1 in a pair task, and the number of its pairs."""
    labels = [labels[term] for batch in batches if term in (labels := _pair_labels(batch))]
    return float(sum(int(label_N.sum()) for label_N in labels)), float(sum(map(len, labels)))


def build(
    objective: Masked, sampling: Sampling, model: Model, vocabulary_size: int, generator: torch.Generator | None
) -> MaskedTokens:
    """Return the module; it has a pair head if sampling.pairs has a pair task."""
    pairs, enhanced = type(sampling.pairs) in PAIR_TERMS, objective.decoder == "enhanced"
    return MaskedTokens(model, vocabulary_size, generator, pairs=pairs, enhanced=enhanced)


def trained_parts(objective: Masked, sampling: Sampling) -> tuple[str, ...]:
    """Return the parameter-name prefixes of the heads that the objective trains; a pair head includes the pooler."""
    pairs = type(sampling.pairs) in PAIR_TERMS
    decoder = ("enhanced_decoder.",) * (objective.decoder == "enhanced")
    return ("masked_token_head.", *decoder, *(("encoder.pooler.", "next_sentence_head.") if pairs else ()))


def described(objective: Masked, sampling: Sampling) -> str:
    """Return the objective in words, for a model card."""
    term = PAIR_TERMS.get(type(sampling.pairs))
    return "masked-language modelling" + (f" and {PAIR_NAMES[term]}" if term else "")


def uses(sampling: Sampling) -> tuple[str, ...]:
    """Return sentences about uses of a model that fills blanks, for a model card."""
    return (
        "The model fills blanks and computes vectors. It does not generate text. For a task, fine-tune it first.",
        "Its vectors were not trained to measure how similar two texts are: use them as a baseline only.",
    )


def flops_per_token(objective: Masked, model: Model, vocabulary_size: int, counted: TokenCounts) -> float:
    """Return the floating-point operations of forward and backward per token (no padding), matrix products only.

    The enhanced mask decoder applies the last layer twice instead of once.
    """
    applied = replace(model, layers=model.layers + 1) if objective.decoder == "enhanced" else model
    return encoder_flops(applied, counted) + masked_head_flops(model, vocabulary_size, counted)


def masked_rows(summary: Mapping[str, Any], other_length: str) -> list[tuple[str, str]]:
    """Return the summary's rows about masked tokens, as (name, text): loss and accuracy with their baselines.

    `other_length` is text that follows the loss before training. The text names the length at which this loss was
    measured, and is empty if this length is the final length. Return no rows for an objective without masked tokens.
    """
    before, after, baselines = summary["heldout_before"], summary["heldout_after"], summary["baselines"]
    if HELDOUT_LOSS not in after:
        return []
    return [
        (
            "held-out MLM loss",
            f"{after['heldout/mlm_loss']:.3f} nats at length {summary['maximum_length']} (before training "
            f"{before['heldout/mlm_loss']:.3f}{other_length}, "
            f"unigram baseline {baselines['baseline/unigram_mlm_loss']:.3f})",
        ),
        (
            "held-out MLM accuracy",
            f"{after['heldout/mlm_accuracy']:.1%} (unigram baseline {baselines['baseline/unigram_mlm_accuracy']:.1%})",
        ),
    ]


def pair_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the summary's rows about pair tasks, as (name, text): accuracy with the majority baseline.

    For a task that could not be measured, the text is ONE_ANSWER.
    """
    after, baselines = summary["heldout_after"], summary["baselines"]
    rows = []
    for term in PAIRS:
        accuracy, majority = f"heldout/{term}_accuracy", f"baseline/majority_{term}_accuracy"
        if accuracy in after:
            text = f"{after[accuracy]:.1%} (majority baseline {baselines[majority]:.1%})"
            rows.append((f"held-out {term.upper()} accuracy", text))
        elif majority in baselines:
            rows.append((f"held-out {term.upper()} accuracy", ONE_ANSWER))
    return rows
