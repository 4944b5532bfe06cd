"""Settings of the encoder: its sizes, and the parts that differ between architectures."""

from dataclasses import dataclass, replace
from typing import Literal

from pipeline.command_line.options import flag_of
from pipeline.config.checks import require, require_above_zero, require_at_least, require_share
from pipeline.config.model_parts import (
    AnyFamilyAttention,
    Attention,
    Block,
    BlockSparseAttention,
    BucketedAttention,
    ClassifierLayer,
    DisentangledAttention,
    EncoderPooler,
    FullAttention,
    GlobalLocalAttention,
    Inner,
    LearnedPositions,
    LocalAttention,
    NoPositions,
    Positions,
    ReplacedHead,
    RotaryPositions,
)
from pipeline.config.needs import ENHANCED_DECODER, GENERATOR, PAIR_HEAD
from pipeline.errors import ConfigError

FamilyName = Literal[
    "bert",
    "roberta",
    "electra",
    "distilbert",
    "albert",
    "xlm-roberta",
    "modernbert",
    "deberta",
    "deberta-v2",
    "longformer",
    "bigbird",
]
Activation = Literal["gelu", "gelu_new"]


@dataclass(frozen=True, kw_only=True)
class Model:
    """An encoder: embeddings of words, segments and positions, then layers of attention and feed-forward (GELU)."""

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
    inner: Inner = "plain"
    """Feed-forward block. plain: two layers; geglu: the first layer also computes a gate for each inner unit (Shazeer
    2020).
    """
    block: Block = "post-norm"
    """Place of LayerNorm. post-norm: after each residual sum (Devlin et al. 2019); pre-norm: before attention and
    feed-forward, except before the first attention, and after the last layer (Warner et al. 2024).
    """
    bias: bool = True
    """Add biases to linear layers and LayerNorms. The outputs of heads have biases either way."""
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    """Dropout of attention weights. GPUs from Ampere on apply it in the kernel without padding, if products are in
    bfloat16 or float16 and heads have a width of at most 192.
    """
    layer_norm_epsilon: float = 1e-12
    initializer_deviation: float = 0.02
    """Standard deviation of the truncated normal distribution from which weights are initialised. With pre-norm, the
    output layers of attention and feed-forward have deviation / sqrt(2 * layers), as in ModernBERT.
    """
    positions: Positions = LearnedPositions()
    attention: Attention = FullAttention()

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
        if isinstance(self.positions, RotaryPositions):
            _require_rotary(self, self.positions)
        if isinstance(self.attention, BucketedAttention) and self.attention.maximum_distance is None:
            self.attention.require_distance("model.maximum_positions", self.maximum_positions)
        if isinstance(self.attention, BlockSparseAttention):
            self.attention.require_whole_blocks(self.maximum_positions)
        FAMILY_PARTS[self.family].check(self)

    def for_padding(self, entry: int) -> "Model":
        """Return the model for a vocabulary with the padding id `entry`.

        In some families, the position embeddings are used from row `entry` + 1 on.
        """
        after = FAMILY_PARTS[self.family].positions_after_padding
        return replace(self, positions=LearnedPositions(first=entry + 1)) if after else self

    @property
    def is_published(self) -> bool:
        """Whether these are the parts of a published architecture."""
        return FAMILY_PARTS[self.family].exchanged(self) is None

    @property
    def has_distances(self) -> bool:
        """Whether the distance of two tokens enters the scores of attention."""
        return isinstance(self.attention, DisentangledAttention | BucketedAttention)

    @property
    def has_global_tokens(self) -> bool:
        """Whether some tokens may attend to all tokens of their sequence with projections of their own."""
        return isinstance(self.attention, GlobalLocalAttention)

    @property
    def first_position(self) -> int:
        """Row of the position embeddings for the first position; 0 without position embeddings."""
        return self.positions.first if isinstance(self.positions, LearnedPositions) else 0

    @property
    def position_rows(self) -> int:
        """Rows of the position embeddings; 0 without position embeddings."""
        learned = isinstance(self.positions, LearnedPositions)
        return self.first_position + self.maximum_positions if learned else 0

    @property
    def inner_rows(self) -> int:
        """Outputs of the first layer of the feed-forward block: the inner units and, with geglu, their gates."""
        return 2 * self.feed_forward if self.inner == "geglu" else self.feed_forward

    def reach(self, layer: int) -> int | None:
        """Return the tokens on each side that a token attends to in a layer (from 0); None: all tokens."""
        if isinstance(self.attention, GlobalLocalAttention):
            return self.attention.reach
        if not isinstance(self.attention, LocalAttention) or layer % self.attention.global_every == 0:
            return None
        return self.attention.reach

    @property
    def pooler(self) -> "EncoderPooler | ClassifierLayer":
        """Layer on a sequence's first token."""
        return FAMILY_PARTS[self.family].pooler

    @property
    def classifier(self) -> "EncoderPooler | ClassifierLayer":
        """Layer on a sequence's first token in sequence classifiers."""
        parts = FAMILY_PARTS[self.family]
        return parts.pooler if parts.classifier is None else parts.classifier

    @property
    def has_answer_layer(self) -> bool:
        """Whether a feed-forward block stands before the head for answers."""
        return FAMILY_PARTS[self.family].answer_layer

    @property
    def replaced_head(self) -> ReplacedHead | None:
        """Input of the head for replaced tokens; None if the family has no such head."""
        return FAMILY_PARTS[self.family].replaced_head

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


def _require_rotary(model: Model, positions: RotaryPositions) -> None:
    """Raise ConfigError if the model's heads cannot be rotated, or if it has no layers for the local angles."""
    head = model.width // model.heads
    require(
        head % 2 == 0,
        f"model.width ({model.width}) / model.heads ({model.heads}) is {head}, but rotary positions turn pairs of "
        "numbers: set an even width per head",
    )
    require(
        positions.local_theta is None or isinstance(model.attention, LocalAttention),
        f"model.positions.local_theta ({positions.local_theta}) needs model.attention:local-attention: leave it out",
    )


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
    classifier: ClassifierLayer | None = None
    """Layer of sequence classifiers, if they do not use the pooler."""
    answer_layer: bool = False
    """Whether a feed-forward block stands before the head for answers."""
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
    positions: type[Positions] = LearnedPositions
    attention: type[Attention] = FullAttention
    inner: Inner = "plain"
    block: Block = "post-norm"
    bias: bool = True
    exchangeable: bool = False
    """Whether models may have other positions, attention, inner, block and bias, for ablations. Such a model has no
    published architecture.
    """
    replaced_head: ReplacedHead | None = None
    """Input of the head for replaced tokens. None: the family has no such head, and no generator."""
    enhanced_decoder: bool = False
    """Whether masked tokens may be predicted by an enhanced mask decoder."""
    activations: tuple[Activation, ...] = ("gelu",)
    """Values of model.activation in published models; the first is that of a config.json that does not state it."""
    continues: tuple[FamilyName, ...] = ()
    """Families whose models can start a model of this family (--init)."""
    tuned_layer_decay: float = 1.0
    """Default of optimizer.layer_decay in fine-tuning."""

    @property
    def offers(self) -> tuple[str, ...]:
        """Names of properties that the family offers to other choices, as in Choice."""
        has = {
            GENERATOR: self.replaced_head is not None,
            ENHANCED_DECODER: self.enhanced_decoder,
            PAIR_HEAD: isinstance(self.pooler, EncoderPooler),
        }
        return tuple(name for name, offered in has.items() if offered)

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
            self.positions_after_padding or model.first_position == 0,
            f"model.positions.first ({model.first_position}) must be 0 {family}",
        )
        require(
            model.activation in self.activations,
            f"model.activation ({model.activation}) must be {' or '.join(self.activations)} {family}",
        )
        own = [name for name, parts in FAMILY_PARTS.items() if parts.attention is type(model.attention)]
        require(
            model.family in own or isinstance(model.attention, AnyFamilyAttention),
            f"model.attention ({flag_of(type(model.attention))}) needs model.family {' or '.join(own)}, but "
            f"model.family is {model.family}",
        )
        if not self.exchangeable and (exchanged := self.exchanged(model)):
            name, value, own = exchanged
            raise ConfigError(f"{name} ({value}) must be {own} {family}: only model.family bert may have other parts")

    def exchanged(self, model: Model) -> tuple[str, str, str] | None:
        """Return (setting, value, the family's value) of the first part that the family does not have, or None."""
        for name in ("positions", "attention"):
            kind, own = flag_of(type(getattr(model, name))), flag_of(getattr(self, name))
            if kind != own:
                return f"model.{name}", kind, own
        for name in ("inner", "block", "bias"):
            value, own = str(getattr(model, name)), str(getattr(self, name))
            if value != own:
                return f"model.{name}", value, own
        return None


OF_ROBERTA = FamilyParts(pooler=ClassifierLayer(activation="tanh"), tells_segments=False, positions_after_padding=True)
OF_DEBERTA = FamilyParts(
    pooler=ClassifierLayer(activation="gelu", drops_input=False),
    tells_segments=False,
    segment_rows=0,
    positions=NoPositions,
    attention=DisentangledAttention,
    enhanced_decoder=True,
)
FAMILY_PARTS: dict[str, FamilyParts] = {
    "bert": FamilyParts(pooler=EncoderPooler(), exchangeable=True),
    "roberta": OF_ROBERTA,
    "xlm-roberta": OF_ROBERTA,
    # Layer decay: Clark et al. 2020, table 7, small and base.
    "electra": FamilyParts(
        pooler=ClassifierLayer(activation="gelu"),
        projects_embeddings=True,
        replaced_head="token",
        tuned_layer_decay=0.8,
    ),
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
    "modernbert": FamilyParts(
        pooler=ClassifierLayer(activation="gelu", drops_input=False, normalises=True, on_all=True),
        tells_segments=False,
        segment_rows=0,
        positions=RotaryPositions,
        attention=LocalAttention,
        inner="geglu",
        block="pre-norm",
        bias=False,
    ),
    "deberta": OF_DEBERTA,
    "deberta-v2": replace(OF_DEBERTA, attention=BucketedAttention, replaced_head="with-first-token"),
    "longformer": replace(OF_ROBERTA, attention=GlobalLocalAttention, continues=("roberta",)),
    "bigbird": FamilyParts(
        pooler=EncoderPooler(),
        classifier=ClassifierLayer(activation="gelu_new"),
        answer_layer=True,
        attention=BlockSparseAttention,
        activations=("gelu_new",),
    ),
}
