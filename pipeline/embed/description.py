"""Describe the model that made vectors, for manifests and messages."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Description:
    """Everything that determines a model's vectors, for manifests and messages."""

    checkpoint: str
    """Location of the model's files."""
    digest: str
    """Beginning of the SHA-256 of config, weights and vocabulary."""
    dimension: int
    pooling: str
    normalized: bool
    similarity: str
    prompt: str
    maximum_length: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
