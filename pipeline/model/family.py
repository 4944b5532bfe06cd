"""A published architecture: the names that its files give to our parts and settings."""

from dataclasses import dataclass, field
from typing import Any

from pipeline.config.model import FamilyName

SIZES = ("layers", "width", "heads", "feed_forward", "embedding_width")
"""Settings without a default in config.json."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Names of a published architecture, as transformers reads and writes them."""

    name: FamilyName
    """`model_type` of config.json."""
    title: str
    """Name for people."""
    names: dict[str, str]
    """Our module -> published module; # is the layer's number."""
    encoder: str
    """Prefix of the encoder's tensors, which bare encoders are published without."""
    bare: tuple[str, ...]
    """Prefixes of a bare encoder's tensors."""
    fused: tuple[str, tuple[str, ...]]
    """Published as several tensors, stacked in this order in our qkv."""
    tied: dict[str, str]
    """Copies that some checkpoints hold -> the tensors they repeat."""
    heads: tuple[str, ...]
    """Prefixes of pretrained heads that a checkpoint may lack, each as a whole."""
    other_heads: tuple[str, ...]
    """Prefixes of fine-tuned heads, which pretraining leaves out."""
    buffers: tuple[str, ...]
    """Constants that old checkpoints hold."""
    config: dict[str, str]
    """Our setting -> field of config.json."""
    fixed: dict[str, Any]
    """Fields of config.json that every supported model has, and their values."""
    assumed: dict[str, Any] = field(default_factory=dict)
    """Fields of config.json that may be absent, but must not differ."""
    architectures: dict[str, str]
    """Use -> class name in config.json: masked, replaced, and the kinds of tasks."""
    class_prefix: str
    """Prefix of the names of all its classes."""
    inputs: tuple[str, ...]
    """Inputs of its published graphs, each int64 (N, S)."""

    @property
    def article(self) -> str:
        """Indefinite article before its title."""
        return "an" if self.title[0] in "AEIOU" else "a"

    @property
    def pooler(self) -> str:
        """Prefix of the pooler's tensors."""
        return f"{self.encoder}pooler."

    @property
    def size_fields(self) -> dict[str, str]:
        """Field of config.json -> our setting, of the sizes that must be stated."""
        return {self.config[name]: name for name in SIZES if name in self.config}
