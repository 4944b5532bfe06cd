"""The models and layers that an objective trains and publishes, each in its own folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from pipeline.config.model import Model


@dataclass(frozen=True, kw_only=True)
class PublishedModel:
    """A published model: its folder and settings, and its parameters within the objective's module."""

    folder: str
    """Path relative to the checkpoint's folder; empty: the checkpoint's folder itself."""
    settings: Model
    use: str
    """Key of Family.architectures."""
    prefix: str = ""
    """Prefix of the model's parameter names in the objective's module."""
    others: tuple[str, ...] = ()
    """Prefixes of the other models' parameter names in the objective's module; only needed if `prefix` is empty."""
    added: Mapping[str, str] = field(default_factory=dict)
    """Name of one of the model's parameters -> name, in the objective's module, of the tensor that the published tensor
    also contains: the published tensor is the sum of both.
    """
    config: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of config.json."""

    def path(self, name: str) -> str:
        """Return the path of the model's file `name`, relative to the checkpoint's folder."""
        return f"{self.folder}/{name}" if self.folder else name

    def own(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this model's tensors from the state of the objective's module, under names without the prefix."""
        return {
            name.removeprefix(self.prefix): tensor + state[self.added[name]] if name in self.added else tensor
            for name, tensor in state.items()
            if name.startswith(self.prefix) and not (self.others and name.startswith(self.others))
        }

    def without_added(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of the objective's module for a state that has published sums."""
        return dict(state) | {name: state[name] - state[other] for name, other in self.added.items()}

    def in_module(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this model's tensors under their names in the objective's module; the inverse of `own`."""
        return {f"{self.prefix}{name}": tensor for name, tensor in state.items()}


@dataclass(frozen=True, kw_only=True)
class TextLayer:
    """A trained layer between an encoder's hidden states and a text's vector, as sentence-transformers stores it."""

    folder: str
    """Path relative to the checkpoint's folder; the layer's weights and its config.json are in it."""
    prefix: str
    """Prefix of the layer's parameter names in the objective's module."""
    published: str
    """Prefix of the layer's parameter names in its file."""
    config: Mapping[str, Any]
    """Contents of config.json."""

    def own(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the layer's tensors from the state of the objective's module, under their published names."""
        return {
            f"{self.published}{name.removeprefix(self.prefix)}": tensor
            for name, tensor in state.items()
            if name.startswith(self.prefix)
        }

    def in_module(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the layer's tensors under their names in the objective's module; the inverse of `own`."""
        return {f"{self.prefix}{name.removeprefix(self.published)}": tensor for name, tensor in tensors.items()}
