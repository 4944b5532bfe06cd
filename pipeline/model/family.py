"""Describe a published architecture: the names that its files use for our modules and settings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipeline.config.model import FamilyName, Model

SIZES = ("layers", "width", "heads", "feed_forward", "embedding_width")
"""Settings that have no default, so config.json must state them."""

OWN_HEADS = {"passage_attention": "passage_attention", "tag_chain": "crf"}
"""Our module -> published module, for parts of heads that no published architecture has: all families name them alike,
and ignore them where they have no use.
"""
OF_OWN_HEADS = tuple(f"{name}." for name in OWN_HEADS.values())
"""Prefixes of the tensors of these parts."""


def _no_fields(settings: Model | dict[str, Any]) -> dict[str, Any]:
    """Return no fields, for a family whose parts have no settings."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Family:
    """Names of a published architecture, as transformers reads and writes them."""

    name: FamilyName
    """model.family of its models; `model_type` of config.json unless `fixed` says otherwise."""
    title: str
    """Name in messages and model cards."""
    names: dict[str, str]
    """Our module -> published module; # stands for the layer's number."""
    encoder: str
    """Prefix of the encoder's tensors. A checkpoint of the encoder alone omits the prefix."""
    bare: tuple[str, ...]
    """Prefixes of tensors in a checkpoint of the encoder alone."""
    fused: tuple[str, tuple[str, ...]] | None
    """(infix, parts). Query, key and value are separate tensors: in each name, one of the parts follows the infix. Our
    qkv stacks these tensors in the order of the parts. None: the published tensor is stacked as ours is.
    """
    alternates_heads: bool = False
    """Whether the published qkv has query, key and value of head 0, then those of head 1, and so on."""
    heads_alternating: int = 1
    """Number of heads whose rows alternate in the published qkv; `family_of` sets it from a model's settings."""
    tied: dict[str, str]
    """Name of a copy of a tied tensor, which some checkpoints contain -> name of the original tensor."""
    heads: tuple[str, ...]
    """Prefixes of pretrained heads. A checkpoint may lack a whole head, but not a part of a head."""
    other_heads: tuple[str, ...]
    """Prefixes of further tensors that a checkpoint may have, such as fine-tuned heads. Pretraining ignores them."""
    buffers: tuple[str, ...]
    """Names of constant tensors that old checkpoints contain. These tensors are ignored."""
    config: dict[str, str]
    """Our setting -> field of config.json."""
    fixed: dict[str, Any]
    """Fields of config.json that are always written, and the only supported value of each."""
    assumed: dict[str, Any] = field(default_factory=dict)
    """Fields of config.json that are not written, and the only supported value of each."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """Fields of config.json whose default is not that of our setting, and the default."""
    parts_to_config: Callable[[Model], dict[str, Any]] = _no_fields
    """Function from settings to the fields of config.json that describe parts, beyond those in `config`."""
    parts_from_config: Callable[[dict[str, Any]], dict[str, Any]] = _no_fields
    """Inverse of `parts_to_config`: from a config.json to settings by name. It raises CheckpointError."""
    pooling_field: str | None = None
    """Field of config.json that names the pooling of text classifiers; None: they read the first token."""
    separator_field: str | None = None
    """Field of config.json with the id of the separator entry, for families whose classes look for it in questions."""
    has_graphs: bool = True
    """Whether transformers' code can be traced as an ONNX graph: its operators must not depend on the values of inputs.
    """
    in_transformers: bool = True
    """Whether transformers can load the architecture."""
    without_choices: bool = False
    """Whether transformers has no class of the architecture for multiple choice."""
    architectures: dict[str, str]
    """Use of a model (masked, replaced, encoder or a kind of task) -> its class name in config.json."""
    pair_logits: str | None = None
    """Name of the pair head's logits in the pretraining class's output; None if the family has no pair head."""
    class_prefix: str
    """Prefix of the architecture's class names."""
    inputs: tuple[str, ...]
    """Names of the inputs of ONNX graphs, each int64 (N, S): N texts, padded to S tokens."""

    @property
    def article(self) -> str:
        """Indefinite article before the title."""
        return "an" if self.title[0] in "AEIOUX" else "a"

    @property
    def poolings(self) -> tuple[str, ...]:
        """Poolings that published text classifiers may have."""
        return ("cls", "mean") if self.pooling_field else ("cls",)

    @property
    def pooler(self) -> str:
        """Prefix of the pooler's tensors."""
        return f"{self.encoder}pooler."

    @property
    def size_fields(self) -> dict[str, str]:
        """Return {field of config.json: our setting} for the settings in SIZES that the architecture has."""
        return {self.config[name]: name for name in SIZES if name in self.config}
