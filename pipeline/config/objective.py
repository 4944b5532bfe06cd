"""Objective of pretraining: the loss that training minimises."""

from dataclasses import dataclass, replace
from typing import Literal, Self

from pipeline.config.checks import require, require_above_zero, require_at_least
from pipeline.config.locations import Location
from pipeline.config.model import Model
from pipeline.config.needs import (
    COMPARES_PAIRS,
    EAGER,
    ENHANCED_DECODER,
    GENERATOR,
    LEARNS_TEXTS,
    MASKED_HEAD,
    PAIR_HEAD,
    PAIRS_OF_TEXTS,
    RECORDABLE,
    SEVERAL_ROWS,
    SINGLE_TEXTS,
    TEACHERS_VOCABULARY,
    TEACHERS_WORDS,
    Choice,
)

SHARED_SIZES = ("width", "heads", "feed_forward")
"""Sizes of a generator that are the same share of the model's, rounded."""
OF_WORDS, OF_VECTORS = "masked words", "text vectors"
"""Kinds of teachers, by what they give the student."""


class AnyObjective(Choice):
    """Base of the objectives' settings, with the answers of an objective without a teacher and a generator."""

    teacher_gives = ""
    """Kind of the model at the setting `teacher`: OF_WORDS or OF_VECTORS; empty: there is no teacher."""
    starts_from_teacher = False
    """Whether the initial weights are those of the teacher, unless the run has an initial model."""
    shares_embeddings = True
    """Whether all encoders of the run have the same embeddings."""

    @property
    def pooling(self) -> Literal["mean", "cls", "attention"]:
        """Vector of a text: the mean of its last hidden states, the state of [CLS], or a learned weighted mean."""
        return "mean"

    @property
    def teacher(self) -> Location | None:
        """The model to learn from."""
        return None

    def require_fitting(self, model: Model) -> None:
        """Raise ConfigError for sizes of the model with which the objective cannot be trained."""

    def require_generator(self, model: Model, generator: Model, location: str) -> None:
        """Raise ConfigError if the objective's generator would have other sizes than `generator`.

        `model` and `generator` are the settings of the published models at `location`.
        """

    def for_widths(self, student: int, teacher: int) -> Self:
        """Return the settings for these widths of the run's model and its teacher.

        Raises ConfigError if a loss needs equal widths.
        """
        return self


@dataclass(frozen=True, kw_only=True)
class Masked(AnyObjective):
    """Predict masked tokens; if rows are sentence pairs, also predict the pair's label (Devlin et al. 2019; Liu et al.
    2019).
    """

    decoder: Literal["plain", "enhanced"] = "plain"
    """States from which masked tokens are predicted. plain: those of the last layer; enhanced: those of DeBERTa's
    enhanced mask decoder, which applies the last layer twice to the states before it, with absolute positions in the
    queries (He et al. 2021). For model.family deberta and deberta-v2.
    """
    offers = (MASKED_HEAD, PAIR_HEAD, RECORDABLE)

    @property
    def needs(self) -> tuple[str, ...]:
        return (ENHANCED_DECODER,) if self.decoder == "enhanced" else ()


@dataclass(frozen=True, kw_only=True)
class Replaced(AnyObjective):
    """Predict for each token whether a small generator replaced it (ELECTRA, Clark et al. 2020).

    The generator replaces the tokens at masked positions. It is trained at the same time to predict masked tokens.
    """

    weight: float = 50.0
    """Weight of the loss on replaced tokens; the generator's loss has weight 1 (Clark et al. 2020, table 6)."""
    generator_share: float = 0.25
    """Width of the generator as a share of the model's width. The generator's heads and feed-forward width are the same
    share of the model's heads and feed-forward width.
    """
    generator_depth: float = 1.0
    """Layers of the generator as a share of the model's layers, above 0 and at most 1. Published: 1 in ELECTRA, 0.5 in
    DeBERTa v3.
    """
    embedding_sharing: Literal["all", "gradient-disentangled"] = "all"
    """Sharing of embeddings between both models. all: they are the same parameters (Clark et al. 2020);
    gradient-disentangled: the model's word embeddings are the generator's, without gradient, plus a table that starts
    at zero (He et al. 2023), and each model has its own LayerNorm, positions and segments.
    """
    needs = (GENERATOR,)
    offers = (MASKED_HEAD,)

    @property
    def shares_embeddings(self) -> bool:
        return self.embedding_sharing == "all"

    def __post_init__(self) -> None:
        require_above_zero("objective.weight", self.weight)
        require(
            0 < self.generator_depth <= 1,
            f"objective.generator_depth ({self.generator_depth}) must be above 0 and at most 1: with a generator "
            "deeper than the discriminator, replaced tokens are too hard to detect",
        )
        require(
            0 < self.generator_share <= 1,
            f"objective.generator_share ({self.generator_share}) must be above 0 and at most 1: with a generator wider "
            "than the discriminator, replaced tokens are too hard to detect (Clark et al. 2020, figure 3)",
        )

    def require_fitting(self, model: Model) -> None:
        """Raise ConfigError if the width of the model's generator is not a multiple of its heads."""
        self.generator_of(model)

    def generator_of(self, model: Model) -> Model:
        """Return the settings of a model's generator: at most as wide and deep as the model, with equally wide
        embeddings.

        Raises ConfigError if the generator's width is not a multiple of its heads.
        """
        share = self.generator_share
        width, heads = round(share * model.width), max(1, round(share * model.heads))
        require(
            width >= heads and width % heads == 0,
            f"objective.generator_share ({share}) gives a generator of width {width} with {heads} heads, but the width "
            f"must be a multiple of the heads: model.width is {model.width}, model.heads {model.heads}; "
            "choose another share",
        )
        return replace(
            model,
            layers=max(1, round(self.generator_depth * model.layers)),
            width=width,
            heads=heads,
            feed_forward=max(1, round(share * model.feed_forward)),
            embedding_width=None if model.embedded_width == width else model.embedded_width,
        )

    def require_generator(self, model: Model, generator: Model, location: str) -> None:
        """Raise ConfigError if the objective's generator would have other sizes than `generator`."""
        wanted, share = self.generator_of(model), generator_share(model, generator)
        for name in ("layers", *SHARED_SIZES):
            mine, theirs = getattr(wanted, name), getattr(generator, name)
            setting = "generator_depth" if name == "layers" else "generator_share"
            fitting = f"{generator.layers / model.layers:.4g}" if name == "layers" else share
            remedy = (
                f"set objective.{setting} {fitting}" if fitting else "no share gives its sizes, choose another init"
            )
            require(
                mine == theirs,
                f"objective.{setting} ({getattr(self, setting)}) gives a generator with {name} {mine}, but the "
                f"generator of init {location} has {theirs}: {remedy}",
            )


def generator_share(model: Model, generator: Model) -> float | None:
    """Return an objective.generator_share that gives the sizes of `generator`, with few digits; None if none does.

    As `generator_of` rounds each size, the shares between `low` and `high` do.
    """
    sizes = [(getattr(generator, name), getattr(model, name)) for name in SHARED_SIZES]
    low = max(((size - 0.5) / whole for size, whole in sizes if size > 1), default=0.0)
    high = min((size + 0.5) / whole for size, whole in sizes)
    shares = (float(f"{(low + high) / 2:.{digits}g}") for digits in range(1, 18))
    fitting = (share for share in shares if all(max(1, round(share * whole)) == size for size, whole in sizes))
    return next((share for share in fitting if share <= 1), None)


@dataclass(frozen=True, kw_only=True)
class Distilled(AnyObjective):
    """Learn from a larger pretrained model, the teacher (DistilBERT, Sanh et al. 2019).

    The student learns to predict the teacher's probabilities of all vocabulary entries (soft targets), to predict
    masked tokens, and to give its last hidden states the same direction as the teacher's last hidden states.
    """

    teacher: Location | None = None
    """Model of any family to learn from, with a masked-token head, such as a run's export.

    A folder, an s3:// or gs:// URL, or hf://OWNER/NAME. The run uses the teacher's vocabulary.
    """
    temperature: float = 2.0
    """Divisor of both models' logits before the softmax of the soft targets (Hinton et al. 2015)."""
    soft_weight: float = 5.0
    """Weight of the loss on soft targets: temperature^2 x KL(teacher || student), the mean per token."""
    masked_weight: float = 2.0
    """Weight of the loss on masked tokens, the mean per masked token."""
    cosine_weight: float | None = None
    """Weight of 1 - cosine of the two models' last hidden states, the mean per token. Default: 1 if both models have
    the same width, else 0.
    """
    soft_targets: Literal["all", "masked"] = "all"
    """Tokens with soft targets. all: all tokens, as published; masked: only masked positions.

    With masked, neither model computes logits for the other tokens. Estimated: this saves a quarter of a step's
    operations for distilbert-base with the teacher bert-base. With either value, memory is bounded, because logits are
    computed in parts.
    """
    start: Literal["teacher", "random"] = "teacher"
    """Initial weights. teacher: the teacher's embeddings, head and evenly spaced layers, where shapes agree (6 layers
    of 12 are the layers 0, 2, 4, 7, 9 and 11, as published); random: random weights. With init, the run starts from
    init instead.
    """
    needs = (TEACHERS_VOCABULARY, TEACHERS_WORDS)
    offers = (MASKED_HEAD,)
    teacher_gives = OF_WORDS

    @property
    def starts_from_teacher(self) -> bool:
        return self.start == "teacher"

    def __post_init__(self) -> None:
        require_above_zero("objective.temperature", self.temperature)
        weights = {"soft": self.soft_weight, "masked": self.masked_weight, "cosine": self.cosine_weight}
        for name, weight in weights.items():
            if weight is not None:
                require_at_least(f"objective.{name}_weight", weight, 0)
        require(
            self.soft_weight > 0 or self.masked_weight > 0,
            "objective.soft_weight (0) and objective.masked_weight (0) would leave the masked-token head untrained: "
            "set one of them above 0",
        )

    def for_widths(self, student: int, teacher: int) -> Self:
        """Return the settings with `cosine_weight` set, for models of these widths.

        Raises ConfigError if the weight is above 0 and the widths differ.
        """
        weight = float(student == teacher) if self.cosine_weight is None else self.cosine_weight
        require(
            weight == 0 or student == teacher,
            f"objective.cosine_weight ({weight}) compares hidden states of one width, but model.width is {student} and "
            f"the teacher's width is {teacher}: leave objective.cosine_weight out, or set it to 0",
        )
        return replace(self, cosine_weight=weight)


@dataclass(frozen=True, kw_only=True)
class Contrastive(AnyObjective):
    """Learn text vectors: for each text, the model finds the other text of the row among the texts of all rows of the
    step (InfoNCE, van den Oord et al. 2018; in both directions).

    sampling.pairs must be two-crops, adjacent-paragraphs, title-paragraph or given-pairs. Rows that have a text or a
    document in common are not compared with each other. sampling.masking has no effect.
    """

    temperature: float = 0.05
    """Divisor of the cosine similarities before the softmax."""
    pooling: Literal["mean", "cls", "attention"] = "mean"
    """Vector of a text. mean: the mean of its last hidden states, [CLS] and [SEP] included; cls: the state of [CLS];
    attention: a mean weighted by the softmax of a learned score of each state (Lin et al. 2017, with one hop and a
    linear score). sentence-transformers cannot load an export with attention.
    """
    needs = (PAIRS_OF_TEXTS, EAGER, SEVERAL_ROWS)
    offers = (COMPARES_PAIRS,)
    eager = "needs equal dropout in a pass with gradients and in one without"

    def __post_init__(self) -> None:
        require_above_zero("objective.temperature", self.temperature)


@dataclass(frozen=True, kw_only=True)
class DistilledVectors(AnyObjective):
    """Learn the text vectors of another model, the teacher (Reimers and Gurevych 2020). Each text's vector learns the
    direction of the teacher's vector: the loss is 1 - cosine.

    sampling.pairs must be sentences. The teacher reads the text itself, so it may have another vocabulary.
    sampling.masking has no effect. If the teacher's vectors have another width than model.width, a linear layer is
    trained too, and exported as the module Dense of sentence-transformers.
    """

    teacher: Location | None = None
    """Embedding model to learn from: a folder, a URL or hf://OWNER/NAME in the format of sentence-transformers, or a
    run or fine-tuned model of this project. All workers must be able to read it.
    """
    teacher_prompt: str | None = None
    """Text before each text that the teacher reads, such as "query: ", or the name of one of the teacher's prompts.
    Default: the teacher's default prompt.
    """
    teacher_width: int | None = None
    """Numbers per vector. Default: the width of the teacher's vectors; another value is refused. Set it for a plan,
    which does not read the teacher.
    """
    pooling: Literal["mean", "cls"] = "mean"
    """Vector of a text. mean: the mean of its last hidden states, [CLS] and [SEP] included; cls: the state of [CLS]."""
    needs = (SINGLE_TEXTS, EAGER)
    offers = (LEARNS_TEXTS,)
    eager = "calls a teacher in each step, and the teacher cannot be compiled"
    teacher_gives = OF_VECTORS

    def __post_init__(self) -> None:
        if self.teacher_width is not None:
            require_at_least("objective.teacher_width", self.teacher_width, 1)


def chosen_layers(student: int, teacher: int) -> tuple[int, ...]:
    """Return the evenly spaced numbers (from 0) of the teacher's layers that a student of `student` layers starts from.

    If the student has two layers or more, the teacher's first and last layer are included. Raises ConfigError if the
    student has more layers than the teacher.
    """
    require(
        student <= teacher,
        f"model.layers ({student}) is more than the {teacher} layers of the teacher, from which the student starts: "
        "lower model.layers, or set objective.start to random",
    )
    return tuple(round(layer * (teacher - 1) / max(1, student - 1)) for layer in range(student))


Objective = Masked | Replaced | Distilled | Contrastive | DistilledVectors
