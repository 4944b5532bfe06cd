"""The models that an objective trains, each published in a folder of its own."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from pipeline.config.model import Model


@dataclass(frozen=True, kw_only=True)
class PublishedModel:
    """A model as others load it."""

    folder: str
    """Below the checkpoint's folder; empty: that folder itself."""
    settings: Model
    use: str
    """Key of Family.architectures."""
    prefix: str = ""
    """Prefix of its parameters' names in the objective's module."""
    others: tuple[str, ...] = ()
    """Prefixes of other models' parameters there."""

    def path(self, name: str) -> str:
        """Return the path of one of its files below the checkpoint's folder."""
        return f"{self.folder}/{name}" if self.folder else name

    def own(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this model's tensors of a module's state, under names without the prefix."""
        return {
            name.removeprefix(self.prefix): tensor
            for name, tensor in state.items()
            if name.startswith(self.prefix) and not (self.others and name.startswith(self.others))
        }

    def in_module(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return these tensors under the names that they have in the module."""
        return {f"{self.prefix}{name}": tensor for name, tensor in state.items()}
