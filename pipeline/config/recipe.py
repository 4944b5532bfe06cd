"""Settings of the training of a fine-tuning trial."""

from dataclasses import dataclass, replace
from typing import Literal

from pipeline.config.checks import require, require_above_zero, require_at_least, require_share
from pipeline.config.model import Model

DROPOUT = 0.1
"""Default dropout of fine-tuning: the dropout of pretraining and fine-tuning in Devlin et al. 2019, A.2 and A.3."""

DISTILLED = ("recipe.temperature", "recipe.teacher_weight")
"""Settings that need a teacher."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Training recipe of a trial."""

    epochs: int = 3
    """Passes over the training rows; fewer if training stops early (recipe.patience)."""
    rows_per_step: int = 32
    """Rows per optimiser step; the last step of an epoch has the remaining rows."""
    rows_per_slot: int | None = None
    """Rows per forward and backward pass; the gradients of a step's passes are summed. Lower this value when memory
    runs out. Default: all rows of the step.
    """
    training_rows: int | None = None
    """Maximum number of training rows; a random sample, of whole texts if these have several rows (cutting.passages),
    is drawn with the trial's seed. Default: all rows.
    """
    rows_per_class: int | None = None
    """Maximum number of training texts per class; a random sample is drawn with the trial's seed. Default: all rows."""
    contrastive_pairs: int | None = None
    """For few labels (SetFit, Tunstall et al. 2022): train the encoder on pairs of texts, then fit the head to the
    vectors of the texts. Each training row gets this number of pairs with rows of its class, and as many with rows of
    other classes; 20 is the published number. recipe.epochs counts passes over the pairs. Needs recipe.pooling mean.
    Default: train encoder and head together on the rows.
    """
    pooling: Literal["cls", "mean", "attention"] = "cls"
    """Vector of a text. cls: the pooled [CLS] state (as published); mean: the mean of the last hidden states;
    attention: the weighted mean of the last hidden states, with learnt weights.
    """
    dropout: float | None = None
    """Hidden and attention dropout of the training; default: 0.1 in every family, also if the checkpoint was pretrained
    with another value.
    """
    patience: int | None = None
    """Early stopping: end training after this many epochs without a better development score, and keep the weights of
    the best epoch. Default: train all epochs and keep the weights of the last one.
    """
    balance_classes: bool = False
    """Weight each class in the loss in inverse proportion to its number of rows."""
    crf: bool = False
    """Train and predict the tags of a sentence together, by a linear-chain conditional random field (Lafferty et
    al. 2001): it learns which tag follows which, and never predicts tags that IOB2 or BIOES forbid, such as I-PER after
    O. For tags; the loss is the negative log-likelihood per word.
    """
    group_lengths: bool = True
    """Put rows of similar length into one step. This reduces padding if attention runs on padded rows. Rows are sorted
    by length within every 50 steps, as in transformers' Trainer with group_by_length.
    """
    metric: str | None = None
    """Metric that selects settings, the epoch (recipe.patience) and the best model, on the development set; default:
    the first metric of the task. Examples: accuracy, f1, macro_f1, matthews or mcc, auc, average_precision,
    mean_absolute_error. With two classes, f1 is the F1 score of the second class.
    """
    temperature: float = 2.0
    """Divisor of the logits of teacher and student in the teacher's loss term, except in regression. Hinton et
    al. 2015, section 4.1, tried 1, 2, 5 and 10, and 2 was best. Sanh et al. 2019 (DistilBERT) also use 2.
    """
    teacher_weight: float = 0.5
    """Weight of the teacher's loss term; the labels' loss term has the weight 1 - teacher_weight. 0.5 is from Hinton et
    al. 2015, section 4.1. With 1, trials learn only from the teacher, as in Turc et al. 2019.
    """

    def __post_init__(self) -> None:
        require_at_least("recipe.epochs", self.epochs, 1)
        require_at_least("recipe.rows_per_step", self.rows_per_step, 1)
        if self.rows_per_slot is not None:
            require_at_least("recipe.rows_per_slot", self.rows_per_slot, 1)
        require(
            self.training_rows is None or self.training_rows >= 1,
            f"recipe.training_rows ({self.training_rows}) must be at least 1",
        )
        require(
            self.rows_per_class is None or self.rows_per_class >= 1,
            f"recipe.rows_per_class ({self.rows_per_class}) must be at least 1",
        )
        require(
            self.rows_per_class is None or not self.balance_classes,
            f"recipe.rows_per_class ({self.rows_per_class}) takes as many rows of each class, so "
            "recipe.balance_classes would weight them by the counts of the whole file: leave one of them out",
        )
        self._require_few_labels()
        require(self.patience is None or self.patience >= 1, f"recipe.patience ({self.patience}) must be at least 1")
        if self.dropout is not None:
            require_share("recipe.dropout", self.dropout)
        require(
            not (self.crf and self.balance_classes),
            "recipe.balance_classes (True) weights the loss of each tag, but recipe.crf (True) has one loss for all "
            "tags of a sentence: leave one of the two out",
        )
        require_above_zero("recipe.temperature", self.temperature)
        require_share("recipe.teacher_weight", self.teacher_weight)

    def for_dropout(self, model: Model) -> "Recipe":
        """Return the recipe with an unset dropout replaced by DROPOUT.

        It stays unset if it is the model's own dropout: so trials keep the names that earlier versions gave them.
        """
        same = model.hidden_dropout == model.attention_dropout == DROPOUT
        return self if same or self.dropout is not None else replace(self, dropout=DROPOUT)

    def dropouts(self, model: Model) -> tuple[float, float]:
        """Return hidden and attention dropout of the training: `dropout`, or the model's own where it is unset."""
        return (model.hidden_dropout, model.attention_dropout) if self.dropout is None else (self.dropout, self.dropout)

    def _require_few_labels(self) -> None:
        """Raise ConfigError for settings that contrastive_pairs does not work with."""
        if self.contrastive_pairs is None:
            return
        pairs = f"recipe.contrastive_pairs ({self.contrastive_pairs})"
        require(self.contrastive_pairs >= 1, f"{pairs} must be at least 1")
        require(self.pooling == "mean", f"{pairs} needs recipe.pooling mean, but recipe.pooling is {self.pooling}")
        require(
            not self.balance_classes,
            f"{pairs} draws as many pairs for each row, so recipe.balance_classes has no effect: leave it out",
        )
