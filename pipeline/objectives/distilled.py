"""Distillation (Sanh et al. 2019). A student learns three things: to predict masked tokens, to give each vocabulary
entry the same probability as a teacher, and to give its last hidden states the same direction as the teacher.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.data import Sampling
from pipeline.config.model import Model
from pipeline.config.objective import Distilled, chosen_layers
from pipeline.model.flops import TokenCounts, encoder_flops, masked_head_flops
from pipeline.model.soft_targets import Output, soft_target_loss
from pipeline.objectives.masked import ACCURACY, MLM, MaskedTokens, unigram_baselines, unigram_sums
from pipeline.objectives.terms import LossCurve, Sums, Terms

SOFT, COSINE = "soft", "cosine"
MLM_ACCURACY = ACCURACY.format(MLM)
TEACHER_SCORES = {MLM: f"teacher_{MLM}", MLM_ACCURACY: f"teacher_{MLM_ACCURACY}"}
"""Score of the student -> name of the same score of the teacher."""
TEACHER_LOSS, TEACHER_ACCURACY = f"baseline/teacher_{MLM}_loss", f"baseline/teacher_{MLM_ACCURACY}"
CURVES = (
    LossCurve(term=SOFT, label="soft-target loss, nats per token"),
    LossCurve(term=COSINE, label="1 - cosine, mean per token"),
)
DESCRIPTIONS = {
    f"heldout/{SOFT}_loss": ("loss", "temperature^2 x Kullback-Leibler divergence from the teacher, nats per token"),
    f"heldout/{COSINE}_loss": ("loss", "1 - cosine of the hidden states of student and teacher"),
}
"""Held-out metric -> (its type on the Hugging Face Hub, its name on a model card)."""
WHOLE, LAYERS = ("encoder.embeddings.", "encoder.projection.", "masked_token_head."), "encoder.layers."
"""Name prefixes of parameters that a student may take from its teacher: LAYERS for the layers, WHOLE for the rest."""


class DistilledTokens(MaskedTokens):
    """Student with a masked-token head. Training and evaluation also need a teacher, which `learn_from` sets.

    Training minimises the weighted sum of the terms' means. A term of weight 0 is left out. Student and teacher get the
    same masked batch; the teacher is in evaluation mode (Sanh et al. 2019, section 2).
    """

    def __init__(
        self, settings: Model, vocabulary_size: int, objective: Distilled, generator: torch.Generator | None = None
    ) -> None:
        """Initialise weights from `generator`; None: from torch's global generator."""
        super().__init__(settings, vocabulary_size, generator, pairs=False)
        cosine = 1.0 if objective.cosine_weight is None else objective.cosine_weight
        weights = {SOFT: objective.soft_weight, MLM: objective.masked_weight, COSINE: cosine}
        self.weights = {term: weight for term, weight in weights.items() if weight}
        self.terms = tuple(self.weights)
        self.temperature, self.only_masked = objective.temperature, objective.soft_targets == "masked"
        # The tuple keeps the teacher from becoming a submodule, which would be saved and sent to other workers.
        self._teacher: tuple[MaskedTokens, ...] = ()

    def learn_from(self, teacher: MaskedTokens) -> None:
        """Set the teacher, which must be on the device of the student and have the same vocabulary."""
        self._teacher = (teacher.eval().requires_grad_(False),)

    def start_from_teacher(self) -> str:
        """Take the weights that `taken_from_teacher` selects, and return one line about them."""
        taken = taken_from_teacher(self, self.teacher)
        self.load_state_dict(self.state_dict() | taken)
        return start_text(self, self.teacher, taken)

    @property
    def teacher(self) -> MaskedTokens:
        assert len(self._teacher) == 1, "a student needs a teacher: call learn_from first"
        return self._teacher[0]

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return {term: count} without a forward pass.

        MLM counts masked positions, and COSINE counts all tokens. SOFT counts masked positions if
        objective.soft_targets is `masked`, else all tokens.
        """
        counts = {SOFT: batch.masked if self.only_masked else batch.tokens, MLM: batch.masked, COSINE: batch.tokens}
        return {term: counts[term] for term in self.terms}

    def forward(self, batch: Batch) -> Terms:
        """Return {term: (summed loss, count)}; losses are float32 scalars."""
        hidden_T = self.encoder(batch)
        losses = self._imitation(hidden_T, batch)
        if MLM in self.weights:
            hidden_M = hidden_T[batch.masked_positions_M]
            losses[MLM] = self.masked_token_head.loss(hidden_M, self.words, batch.masked_labels_M)
        return {term: (losses[term], count) for term, count in self.counts(batch).items()}

    def _imitation(self, hidden_T: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return the summed losses of the terms that compare the student's states (T, width) with the teacher."""
        losses: dict[str, Tensor] = {}
        if self.weights.keys() <= {MLM}:
            return losses
        teacher = self.teacher
        with torch.no_grad():
            taught_T = teacher.encoder(batch)
        if SOFT in self.weights:
            chosen = batch.masked_positions_M if self.only_masked else slice(None)
            with torch.no_grad():
                wanted = _output(teacher, taught_T[chosen])
            losses[SOFT] = soft_target_loss(_output(self, hidden_T[chosen]), wanted, self.temperature)
        if COSINE in self.weights:
            losses[COSINE] = (1 - F.cosine_similarity(hidden_T.float(), taught_T.float(), dim=1)).sum()
        return losses

    @property
    def score_names(self) -> tuple[str, ...]:
        """All keys that `scores` returns."""
        return (MLM, MLM_ACCURACY, *(term for term in self.terms if term != MLM))

    @torch.no_grad()
    def scores(self, batch: Batch) -> Terms:
        """Return the sums of an evaluation, each as (sum, count).

        The sums are loss and accuracy at masked tokens, and the other terms of `forward`.
        """
        hidden_T, counts = self.encoder(batch), self.counts(batch)
        imitation = {term: (loss, counts[term]) for term, loss in self._imitation(hidden_T, batch).items()}
        return _masked_scores(self.masked_logits(hidden_T, batch), batch) | imitation

    def heldout(self, sums: Sums) -> dict[str, float]:
        """Return {metric: mean over all held-out batches}."""
        names = {name: name if name == MLM_ACCURACY else f"{name}_loss" for name in self.score_names}
        return {names[name]: total / count for name, (total, count) in sums.items() if count > 0}

    @torch.no_grad()
    def baseline_sums(self, batches: Sequence[Batch], counts: np.ndarray) -> dict[str, tuple[float, float]]:
        """Return the sums of the unigram baseline, as `unigram_sums` does, and the sums of the teacher."""
        sums = dict.fromkeys(TEACHER_SCORES.values(), (0.0, 0.0))
        for batch in batches:
            on_device = batch.to(self.words.device)
            for name, (total, count) in _masked_scores(self.teacher.predict_masked(on_device), on_device).items():
                before = sums[TEACHER_SCORES[name]]
                sums[TEACHER_SCORES[name]] = before[0] + float(total), before[1] + float(count)
        return unigram_sums(batches, counts) | sums

    def baselines(self, sums: Sums) -> dict[str, float]:
        """Return {metric: baseline}. The baselines are the unigram distribution and the teacher."""
        names = {TEACHER_SCORES[MLM]: TEACHER_LOSS, TEACHER_SCORES[MLM_ACCURACY]: TEACHER_ACCURACY}
        return unigram_baselines(sums) | {
            metric: sums[name][0] / sums[name][1] for name, metric in names.items() if sums[name][1]
        }


def _output(model: MaskedTokens, hidden_T: Tensor) -> Output:
    """Return the tensors from which a model's logits for hidden states (T, width) are computed."""
    head = model.masked_token_head
    return Output(head.transform(hidden_T), model.words, head.bias)


def _masked_scores(logits: Tensor, batch: Batch) -> Terms:
    """Return loss and correct answers at the masked positions, each as (sum, count); `logits` are (M, V)."""
    labels = batch.masked_labels_M
    return {
        MLM: (F.cross_entropy(logits, labels, reduction="sum"), batch.masked),
        MLM_ACCURACY: ((logits.argmax(-1) == labels).sum(), batch.masked),
    }


def taken_from_teacher(student: MaskedTokens, teacher: MaskedTokens) -> dict[str, Tensor]:
    """Return the teacher's tensors that a student starts with, under the student's names.

    Layers are taken if width, heads, feed-forward width and activation agree. Other tensors are taken if their shapes
    agree. If the teacher's layers share their weights, all layers of the student start with these weights. If the
    student's layers share their weights, they start with the weights of the teacher's first layer. Raises ConfigError
    if the student has more layers than the teacher, where layers with shared weights count separately.
    """
    mine, theirs = student.encoder.settings, teacher.encoder.settings
    names = {name: name for name in student.state_dict() if name.startswith(WHOLE)}
    layers = chosen_layers(mine.layers, theirs.layers)
    if all(getattr(mine, part) == getattr(theirs, part) for part in ("width", "heads", "feed_forward", "activation")):
        for name in (name for name in student.state_dict() if name.startswith(LAYERS)):
            number, rest = name.removeprefix(LAYERS).split(".", 1)
            names[name] = f"{LAYERS}{min(layers[int(number)], theirs.distinct_layers - 1)}.{rest}"
    given, own = teacher.state_dict(), student.state_dict()
    return {
        name: given[source]
        for name, source in names.items()
        if source in given and given[source].shape == own[name].shape
    }


def start_text(student: MaskedTokens, teacher: MaskedTokens, taken: Mapping[str, Tensor]) -> str:
    """Return one line about the student's initial weights; `taken` is the result of `taken_from_teacher`."""
    mine, theirs = student.encoder.settings, teacher.encoder.settings
    layers = chosen_layers(mine.layers, theirs.layers)[: mine.distinct_layers]
    layers = tuple(dict.fromkeys(min(layer, theirs.distinct_layers - 1) for layer in layers))
    at_random = sorted({_part_of(name) for name in student.state_dict() if name not in taken})
    rest = f"; at random: {', '.join(at_random)}, because sizes or activations differ" if at_random else ""
    from_layers = any(name.startswith(LAYERS) for name in taken)
    whole = ", ".join(sorted({_part_of(name) for name in taken if not name.startswith(LAYERS)}))
    numbers = f"layers {', '.join(map(str, layers))} of {theirs.distinct_layers}, " if from_layers else ""
    return f"the student starts with these parts of its teacher: {numbers}{whole}{rest}"


def _part_of(name: str) -> str:
    """Return the part of the model that a parameter belongs to, for messages."""
    words = name.split(".")
    return {"layers": "layers", "projection": "projection of the embeddings"}.get(
        words[1], f"{words[2]} of the embeddings" if words[0] == "encoder" else "masked-token head"
    )


def build(
    objective: Distilled, sampling: Sampling, model: Model, vocabulary_size: int, generator: torch.Generator | None
) -> DistilledTokens:
    """Return the student, without a teacher."""
    return DistilledTokens(model, vocabulary_size, objective, generator)


def trained_parts(objective: Distilled, sampling: Sampling) -> tuple[str, ...]:
    """Return the name prefixes of the trained parameters outside the encoder."""
    return ("masked_token_head.",)


def described(objective: Distilled, sampling: Sampling) -> str:
    """Return the objective in words, for a model card."""
    weights = {
        f"soft targets at temperature {objective.temperature:g}": objective.soft_weight,
        "masked-language modelling": objective.masked_weight,
        "cosine of the hidden states": objective.cosine_weight,
    }
    terms = ", ".join(f"{name} (weight {weight:g})" for name, weight in weights.items() if weight)
    return f"distillation from a teacher: {terms}"


def flops_per_token(objective: Distilled, model: Model, vocabulary_size: int, counted: TokenCounts) -> float:
    """Return the floating-point operations of the student per token (no padding), matrix products only.

    The teacher's operations are not counted, because the settings do not contain the teacher's sizes.
    """
    soft = counted if objective.soft_targets == "masked" else replace(counted, masked=counted.tokens)
    heads = [masked_head_flops(model, vocabulary_size, counted)] * bool(objective.masked_weight)
    heads += [masked_head_flops(model, vocabulary_size, soft)] * bool(objective.soft_weight)
    return encoder_flops(model, counted) + sum(heads)


def distilled_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the summary's rows about distillation, as (name, text); empty for other objectives."""
    after, baselines = summary["heldout_after"], summary["baselines"]
    if TEACHER_LOSS not in baselines:
        return []
    rows = [
        (
            "teacher on these rows",
            f"MLM loss {baselines[TEACHER_LOSS]:.3f} nats, accuracy {baselines[TEACHER_ACCURACY]:.1%}",
        )
    ]
    if (soft := after.get(f"heldout/{SOFT}_loss")) is not None:
        unit = "temperature^2 x divergence from the teacher, nats per token"
        rows.append(("held-out soft-target loss", f"{soft:.4f} ({unit})"))
    if (cosine := after.get(f"heldout/{COSINE}_loss")) is not None:
        rows.append(("held-out cosine loss", f"{cosine:.4f} (0: hidden states have the teacher's direction)"))
    return rows
