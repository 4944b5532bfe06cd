"""Settings of the encoder: its sizes, and the parts that differ between architectures."""

from dataclasses import dataclass, replace
from typing import Literal

from pipeline.config.checks import require, require_above_zero, require_at_least, require_share

FamilyName = Literal["bert", "roberta", "electra", "distilbert", "albert", "xlm-roberta"]
Activation = Literal["gelu", "gelu_new"]


@dataclass(frozen=True, kw_only=True)
class LearnedPositions:
    """A learned embedding of each position, added to the word embedding (Devlin et al. 2019)."""

    first: int = 0
    """Row of the position embeddings for the first position of a sequence. In RoBERTa, this row is the id of the
    padding entry plus 1, and earlier rows are unused.
    """

    def __post_init__(self) -> None:
        require_at_least("model.positions.first", self.first, 0)


@dataclass(frozen=True, kw_only=True)
class EncoderPooler:
    """A tanh layer on the first token, pretrained with the label of sentence pairs and used by sequence classifiers
    (Devlin et al. 2019).
    """


@dataclass(frozen=True, kw_only=True)
class ClassifierLayer:
    """No pretrained pooler: each sequence classifier has its own layer on the first token (Liu et al. 2019, Clark et
    al. 2020).
    """

    activation: Literal["tanh", "gelu", "relu"] = "tanh"
    drops_input: bool = True
    """Whether dropout also applies to the layer's input; it always applies to the layer's output."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """An encoder: embeddings of words, positions and segments, then layers of attention and feed-forward (GELU) with
    post-LayerNorm.
    """

    family: FamilyName = "bert"
    """Published architecture. It determines the model's parts, the parameter names in exported files, and where the
    special tokens of a sequence stand.
    """
    layers: int = 2
    width: int = 128
    heads: int = 2
    feed_forward: int = 512
    """Inner width of the feed-forward block."""
    activation: Activation = "gelu"
    """Activation of the feed-forward block and of the masked-token head: gelu is exact (erf); gelu_new approximates it
    with tanh, as in google-research/albert.
    """
    maximum_positions: int = 512
    """Maximum tokens per sequence."""
    segments: int = 2
    """Rows of the segment embeddings. With 1, the model does not distinguish segments; with 0, the model has no segment
    embeddings.
    """
    embedding_width: int | None = None
    """Width of the embeddings. If it is not model.width, a linear layer projects the embeddings to model.width.
    Default: model.width.
    """
    positions: LearnedPositions = LearnedPositions()
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    """Dropout of attention weights. If above 0, attention pads its sequences on every device, because variable-length
    kernels have no dropout.
    """
    layer_norm_epsilon: float = 1e-12
    initializer_deviation: float = 0.02
    """Standard deviation of the truncated normal distribution from which weights are initialised."""

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "feed_forward", "maximum_positions"):
            require_at_least(f"model.{name}", getattr(self, name), 1)
        require_at_least("model.segments", self.segments, 0)
        if self.embedding_width is not None:
            require_at_least("model.embedding_width", self.embedding_width, 1)
        require(
            self.width % self.heads == 0,
            f"model.width ({self.width}) must be a multiple of model.heads ({self.heads})",
        )
        require_share("model.hidden_dropout", self.hidden_dropout)
        require_share("model.attention_dropout", self.attention_dropout)
        require_above_zero("model.layer_norm_epsilon", self.layer_norm_epsilon)
        require_above_zero("model.initializer_deviation", self.initializer_deviation)
        FAMILY_PARTS[self.family].check(self)

    def for_padding(self, entry: int) -> "Model":
        """Return the model for a vocabulary with the padding id `entry`.

        In some families, the position embeddings are used from row `entry` + 1 on.
        """
        after = FAMILY_PARTS[self.family].positions_after_padding
        return replace(self, positions=LearnedPositions(first=entry + 1)) if after else self

    @property
    def pooler(self) -> "EncoderPooler | ClassifierLayer":
        """Layer on a sequence's first token."""
        return FAMILY_PARTS[self.family].pooler

    @property
    def embedded_width(self) -> int:
        """Width of the embeddings, before any projection."""
        return self.width if self.embedding_width is None else self.embedding_width

    @property
    def projects(self) -> bool:
        """Whether a linear layer maps the embeddings to the model's width."""
        return self.embedded_width != self.width or FAMILY_PARTS[self.family].always_projects

    @property
    def shares_layers(self) -> bool:
        """Whether all layers are one layer, applied `layers` times (Lan et al. 2020)."""
        return FAMILY_PARTS[self.family].shares_layers

    @property
    def distinct_layers(self) -> int:
        """Number of layers with weights of their own."""
        return 1 if self.shares_layers else self.layers


def require_one_rate(layer_decay: float | None, model: Model) -> None:
    """Raise ConfigError if the learning rate would differ between layers, but the layers share their weights."""
    require(
        layer_decay in (None, 1) or not model.shares_layers,
        f"optimizer.layer_decay ({layer_decay}) must be 1 for model.family {model.family}: its layers share their "
        "weights, so they have one learning rate",
    )


@dataclass(frozen=True, kw_only=True)
class FamilyParts:
    """Parts that every model of a family has."""

    pooler: EncoderPooler | ClassifierLayer
    tells_segments: bool = True
    """Whether segment embeddings have two rows or more; if False, they have `segment_rows` rows."""
    segment_rows: int = 1
    """Rows of the segment embeddings if `tells_segments` is False: 1, or 0 for a model without segment embeddings."""
    layer_norm_epsilon: float | None = None
    """The only valid value of model.layer_norm_epsilon if the family's config.json cannot state another value. None:
    every value is valid.
    """
    positions_after_padding: bool = False
    """Whether the first position uses row (padding id + 1) of the position embeddings; if False, it uses row 0."""
    projects_embeddings: bool = False
    """Whether embeddings may have another width than the model."""
    always_projects: bool = False
    """Whether a linear layer follows the embeddings even if the embeddings have the model's width."""
    shares_layers: bool = False
    """Whether all layers are one layer, applied `model.layers` times."""
    activations: tuple[Activation, ...] = ("gelu",)
    """Values of model.activation in published models."""
    tuned_layer_decay: float = 1.0
    """Default of optimizer.layer_decay in fine-tuning."""

    def check(self, model: Model) -> None:
        """Raise ConfigError for a part that the family does not have."""
        family = f"for model.family {model.family}"
        require(
            model.segments > 1 if self.tells_segments else model.segments == self.segment_rows,
            f"model.segments ({model.segments}) must be "
            f"{'at least 2' if self.tells_segments else self.segment_rows} {family}",
        )
        require(
            self.layer_norm_epsilon in (None, model.layer_norm_epsilon),
            f"model.layer_norm_epsilon ({model.layer_norm_epsilon}) must be {self.layer_norm_epsilon} {family}",
        )
        require(
            self.projects_embeddings or model.embedding_width in (None, model.width),
            f"model.embedding_width ({model.embedding_width}) must be model.width ({model.width}) {family}",
        )
        require(
            self.positions_after_padding or model.positions.first == 0,
            f"model.positions.first ({model.positions.first}) must be 0 {family}",
        )
        require(
            model.activation in self.activations,
            f"model.activation ({model.activation}) must be {' or '.join(self.activations)} {family}",
        )


OF_ROBERTA = FamilyParts(pooler=ClassifierLayer(activation="tanh"), tells_segments=False, positions_after_padding=True)
FAMILY_PARTS: dict[str, FamilyParts] = {
    "bert": FamilyParts(pooler=EncoderPooler()),
    "roberta": OF_ROBERTA,
    "xlm-roberta": OF_ROBERTA,
    # Layer decay: Clark et al. 2020, table 7, small and base.
    "electra": FamilyParts(pooler=ClassifierLayer(activation="gelu"), projects_embeddings=True, tuned_layer_decay=0.8),
    "distilbert": FamilyParts(
        pooler=ClassifierLayer(activation="relu", drops_input=False),
        tells_segments=False,
        segment_rows=0,
        layer_norm_epsilon=1e-12,
    ),
    "albert": FamilyParts(
        pooler=EncoderPooler(),
        projects_embeddings=True,
        always_projects=True,
        shares_layers=True,
        activations=("gelu", "gelu_new"),
    ),
}
