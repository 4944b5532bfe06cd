"""Add a few trainable weights to a frozen encoder: low-rank changes (Hu et al. 2021) or bottlenecks (Houlsby et al.
2019).

Shapes: T tokens of the batch.
"""

import math
from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.config import adapters as settings
from pipeline.config.checks import require
from pipeline.errors import CheckpointError
from pipeline.model.dropout import dropout
from pipeline.model.encoder import Encoder, initialize

QKV = ("query", "key", "value")
"""Parts of the fused attention projection (qkv), in the order of its output."""
CHANGED = ("query", "value")
"""Parts of qkv that get a low-rank change by default (Hu et al. 2021, sections 4.2 and 7.1)."""
WHOLE = ("whole",)
"""The only part of a linear layer that is not fused."""
EMBEDDINGS = ("embeddings", "projection", "relative")
"""Parts of an encoder that are embeddings: of entries, with their projection, and of relative positions."""
BOTTLENECK_DEVIATION = 1e-3
"""Standard deviation of a bottleneck's initial weights, truncated at two deviations (google-research/adapter-bert:
feedforward_adapter).
"""


class LowRankChange(nn.Module):
    """Map states x (T, inputs) to scale / rank * B A x (T, outputs).

    `down` is A, initialised like nn.Linear; `up` is B, initialised to 0 (microsoft/LoRA).
    """

    def __init__(self, adapter: settings.LowRank, like: Tensor, generator: torch.Generator | None) -> None:
        """Create a change for the matrix `like` (outputs, inputs), with the dtype and on the device of `like`."""
        super().__init__()
        self.factor = adapter.scale / adapter.rank
        self.down = nn.Parameter(like.new_empty(adapter.rank, like.shape[1]))
        self.up = nn.Parameter(like.new_zeros(like.shape[0], adapter.rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5), generator=generator)

    def forward(self, states_T: Tensor) -> Tensor:
        return F.linear(self.factor * F.linear(states_T, self.down), self.up)

    def product(self) -> Tensor:
        """Return the matrix scale / rank * B A (outputs, inputs)."""
        return self.factor * (self.up @ self.down)


class LowRankLinear(nn.Linear):
    """Linear layer plus low-rank changes of its output.

    The output consists of `parts` of equal width. The parts in `changed` get a LowRankChange. Weight and bias are those
    of the layer `plain`, under the same names. If they were frozen in `plain`, they stay frozen.
    """

    def __init__(
        self,
        plain: nn.Linear,
        adapter: settings.LowRank,
        generator: torch.Generator | None,
        parts: tuple[str, ...] = WHOLE,
        changed: Collection[str] = WHOLE,
    ) -> None:
        super().__init__(plain.in_features, plain.out_features, device="meta")
        self.weight, self.bias = plain.weight, plain.bias
        self.parts = parts
        self.dropout = adapter.dropout
        pieces = dict(zip(parts, plain.weight.detach().chunk(len(parts)), strict=True))
        self.changes = nn.ModuleDict({part: LowRankChange(adapter, pieces[part], generator) for part in changed})

    def forward(self, states_T: Tensor) -> Tensor:  # ty: ignore[lost-keyword-for-regular-parameter]
        plain = super().forward(states_T).chunk(len(self.parts), -1)
        dropped_T = dropout(states_T, self.dropout if self.training else 0.0)
        outputs = [
            part + self.changes[name](dropped_T) if name in self.changes else part
            for name, part in zip(self.parts, plain, strict=True)
        ]
        return torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return a plain layer with the same output. It takes over this layer's parameters, changed in place."""
        for name, rows in zip(self.parts, self.weight.chunk(len(self.parts)), strict=True):
            if name in self.changes:
                rows += self.changes[name].product()
        plain = nn.Linear(self.in_features, self.out_features, device="meta")
        plain.weight, plain.bias = self.weight, self.bias
        return plain


class Bottleneck(nn.Module):
    """Add to states (T, width) the output of a two-layer network with a narrow middle of width `inner`.

    At initialisation the module is close to the identity.
    """

    def __init__(self, width: int, inner: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.down = nn.Linear(width, inner)
        self.up = nn.Linear(inner, width)
        initialize(self, BOTTLENECK_DEVIATION, generator)

    def forward(self, states_T: Tensor) -> Tensor:
        return states_T + self.up(F.gelu(self.down(states_T)))


def _add_nothing(encoder: Encoder, adapter: settings.NoAdapter, generator: torch.Generator | None) -> None:
    """Add no adapter, and leave all weights trainable."""


def _add_low_rank(encoder: Encoder, adapter: settings.LowRank, generator: torch.Generator | None) -> None:
    """Freeze embeddings and layers, and add trainable low-rank changes to matrices of the layers."""
    _freeze_below_pooler(encoder)
    for layer in encoder.layers:
        layer.attention.qkv = LowRankLinear(
            layer.attention.qkv, adapter, generator, QKV, QKV if adapter.everywhere else CHANGED
        )
        if adapter.everywhere:
            layer.attention.output = LowRankLinear(layer.attention.output, adapter, generator)
            layer.feed_forward.inner = LowRankLinear(layer.feed_forward.inner, adapter, generator)
            layer.feed_forward.outer = LowRankLinear(layer.feed_forward.outer, adapter, generator)


def _add_bottlenecks(encoder: Encoder, adapter: settings.Bottleneck, generator: torch.Generator | None) -> None:
    """Freeze embeddings and layers except LayerNorms, and add trainable bottlenecks."""
    _freeze_below_pooler(encoder)
    for part in encoder.modules():
        if isinstance(part, nn.LayerNorm):
            part.requires_grad_(True)
    width = encoder.settings.width
    for layer in encoder.layers:
        layer.attention_adapter = Bottleneck(width, adapter.width, generator)
        layer.feed_forward_adapter = Bottleneck(width, adapter.width, generator)


def _freeze_below_pooler(encoder: Encoder) -> None:
    """Freeze all weights except the pooler's."""
    _freeze(encoder, *EMBEDDINGS, "layers", "final_norm")


def _freeze(encoder: Encoder, *names: str) -> None:
    """Freeze the parts of these names that the encoder has."""
    for name, part in encoder.named_children():
        if name in names:
            part.requires_grad_(False)


ADAPTERS: dict[type, Callable[..., None]] = {
    settings.NoAdapter: _add_nothing,
    settings.LowRank: _add_low_rank,
    settings.Bottleneck: _add_bottlenecks,
}


def add_adapter(module: nn.Module, adapter: settings.Adapter, generator: torch.Generator | None = None) -> None:
    """Add adapters to `module.encoder` and freeze its embeddings and layers; NoAdapter changes nothing.

    The adapters, the pooler and the heads stay trainable; with bottlenecks, the LayerNorms do too. In contrast,
    google-research/adapter-bert does not train the pooler. Layers that share their weights share their adapters too.
    The original weights stay the same tensors under the same names. Adapters are initialised from `generator`, which
    must be on the weights' device; None: torch's global generator.
    """
    ADAPTERS[type(adapter)](module.encoder, adapter, generator)


def freeze(module: nn.Module, layers: int, embeddings: bool) -> None:
    """Freeze the lowest `layers` layers of `module.encoder`; if `embeddings` is True, freeze the embeddings too.

    Adapters that were added to these layers earlier are frozen too, and the final LayerNorm with the last layer. Raises
    ConfigError if the encoder has fewer layers, or if only some of several layers with shared weights would be frozen.
    """
    count = module.encoder.settings.layers
    require(layers <= count, f"freeze.layers ({layers}) must be at most the model's layers ({count})")
    settings.require_freezable(layers, module.encoder.settings)
    module.encoder.layers[:layers].requires_grad_(False)
    if layers == count:
        _freeze(module.encoder, "final_norm")
    if embeddings:
        _freeze(module.encoder, *EMBEDDINGS)


def merge(module: nn.Module) -> None:
    """Add all low-rank changes to the weights of their layers, and make these layers plain again. Bottlenecks stay."""
    for parent in list(module.modules()):
        for name, part in list(parent.named_children()):
            if isinstance(part, LowRankLinear):
                setattr(parent, name, part.merged())


def adapter_state(module: nn.Module) -> dict[str, Tensor]:
    """Return {name in `module`: tensor} for the tensors of all adapters, without copying them."""
    starts = tuple(f"{name}." for name, part in module.named_modules() if isinstance(part, LowRankChange | Bottleneck))
    return {name: tensor for name, tensor in module.state_dict().items() if name.startswith(starts)}


def plain_state(module: nn.Module) -> dict[str, Tensor]:
    """Return {name in `module`: tensor} for all tensors that are not part of an adapter, without copying them."""
    adapters = adapter_state(module)
    return {name: tensor for name, tensor in module.state_dict().items() if name not in adapters}


def load_adapter_state(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Load tensors from `adapter_state` into a module whose adapters have the same settings.

    Raises CheckpointError for the first tensor that does not fit.
    """
    wanted = adapter_state(module)
    if odd := sorted(wanted.keys() ^ tensors.keys()):
        raise CheckpointError(
            f"adapter tensor {odd[0]} is {'missing' if odd[0] in wanted else 'unexpected'}: "
            "load the adapter with its settings from training"
        )
    for name, tensor in wanted.items():
        if tensors[name].shape != tensor.shape:
            raise CheckpointError(
                f"adapter tensor {name} has shape {list(tensors[name].shape)}, but the adapter's settings give "
                f"{list(tensor.shape)}"
            )
        tensor.copy_(tensors[name])
