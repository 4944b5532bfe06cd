"""Build the encoder from the parts that its settings choose, run it on flat batches, and initialise its weights.

Shapes: T tokens of the batch, N sequences, H heads, D width of a head.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from pipeline.batch import Batch
from pipeline.config.model import EncoderPooler, Model, RotaryPositions
from pipeline.config.model_parts import (
    BlockSparseAttention,
    BucketedAttention,
    DisentangledAttention,
    FullAttention,
    GlobalLocalAttention,
    LocalAttention,
)
from pipeline.errors import DataError
from pipeline.model.activations import ACTIVATIONS
from pipeline.model.attention import Layout, attention, layout_of
from pipeline.model.block_sparse import BlockLayout, block_layouts, block_sparse_attention
from pipeline.model.disentangled import (
    BucketedSelfAttention,
    DisentangledSelfAttention,
    RelativeEmbeddings,
    distances_of,
)
from pipeline.model.dropout import dropout
from pipeline.model.embeddings import Embeddings
from pipeline.model.global_local import (
    GlobalLayout,
    GlobalTokens,
    GlobalUse,
    global_attention,
    local_attention,
    with_global_tokens,
)
from pipeline.model.norm import make_norm
from pipeline.model.rotary import rotate, rotation
from pipeline.model.windows import band, windowed_attention

KEPT = ("aten::mm", "aten::addmm", "aten::bmm", "torch_attn::_varlen_attn")
"""Operators that layers with `recompute_products` off do not compute again. None of them draws random numbers: if one
did and were not computed again, the next dropout of the layer would draw other numbers than in the forward pass. So
attention with dropout is computed again.
"""


class SelfAttention(nn.Module):
    """Map hidden states (T, width) to attention outputs (T, width)."""

    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.heads = settings.heads
        self.dropout = settings.attention_dropout
        self.qkv = nn.Linear(settings.width, 3 * settings.width, bias=settings.bias)
        self.output = nn.Linear(settings.width, settings.width, bias=settings.bias)

    def forward(self, hidden_T: Tensor, layout: Layout) -> Tensor:
        qkv, probability = self.projected(hidden_T, layout), self.dropout if self.training else 0.0
        if isinstance(layout, BlockLayout):
            gathered = block_sparse_attention(qkv, layout, probability)
        else:
            gathered = (attention if layout.band is None else windowed_attention)(qkv, layout, probability)
        return self.output(gathered.reshape(hidden_T.shape))

    def projected(self, hidden_T: Tensor, layout: Layout) -> Tensor:
        """Return queries, keys and values (T, 3, H, D), rotated if the layout has a rotation."""
        T, width = hidden_T.shape
        qkv = self.qkv(hidden_T).view(T, 3, self.heads, width // self.heads)
        return qkv if layout.rotation is None else rotate(qkv, layout.rotation)


class GlobalLocalSelfAttention(SelfAttention):
    """Self-attention with further projections for global tokens (Beltagy et al. 2020, section 3.1)."""

    def __init__(self, settings: Model) -> None:
        super().__init__(settings)
        width, bias = settings.width, settings.bias
        self.global_query, self.global_key, self.global_value = (nn.Linear(width, width, bias=bias) for _ in range(3))

    def forward(self, hidden_T: Tensor, layout: Layout) -> Tensor:
        if not isinstance(layout, GlobalLayout):
            return super().forward(hidden_T, layout)
        chosen = layout.global_tokens
        probability = self.dropout if self.training else 0.0
        near = local_attention(self.projected(hidden_T, layout), layout, probability)
        whole = global_attention(self.global_projected(hidden_T, chosen), layout, probability)
        gathered = torch.where(chosen.is_global_T[:, None, None], whole, near)
        return self.output(gathered.reshape(hidden_T.shape))

    def global_projected(self, hidden_T: Tensor, chosen: GlobalTokens) -> Tensor:
        """Return the queries, keys and values (T, 3, H, D) of global tokens' attention; other tokens' queries are 0."""
        q, k, v = self.global_query(hidden_T[chosen.indices]), self.global_key(hidden_T), self.global_value(hidden_T)
        # Adding zeros for missing tokens, instead of leaving them out, avoids waiting for the device.
        q = (q * chosen.exists[:, :, None]).flatten(0, 1)
        q_T = torch.zeros_like(k).index_add(0, chosen.indices.flatten(), q)
        return torch.stack((q_T, k, v), 1).unflatten(-1, (self.heads, -1))

    @torch.no_grad()
    def copy_to_global(self) -> None:
        """Copy query, key and value to the projections of global tokens."""
        for part, weight, bias in zip(self.global_parts, self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True):
            part.weight.copy_(weight)
            part.bias.copy_(bias)

    @property
    def global_parts(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        """The projections of global tokens: query, key and value."""
        return self.global_query, self.global_key, self.global_value


ATTENTION: dict[type, Callable[[Model], nn.Module]] = {
    FullAttention: SelfAttention,
    LocalAttention: SelfAttention,
    GlobalLocalAttention: GlobalLocalSelfAttention,
    DisentangledAttention: DisentangledSelfAttention,
    BucketedAttention: BucketedSelfAttention,
    BlockSparseAttention: SelfAttention,
}
"""Settings of attention -> module. In a layer with local attention, the layout has a band; in a layer with block-sparse
attention, it has blocks if a sequence is long enough.
"""


class FeedForward(nn.Module):
    """Apply a two-layer network to every token (T, width); with geglu, its inner units are gated."""

    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[settings.activation]
        self.gated = settings.inner == "geglu"
        self.inner = nn.Linear(settings.width, settings.inner_rows, bias=settings.bias)
        self.outer = nn.Linear(settings.feed_forward, settings.width, bias=settings.bias)

    def forward(self, hidden_T: Tensor) -> Tensor:
        if not self.gated:
            return self.outer(self.activation(self.inner(hidden_T)))
        units_T, gates_T = self.inner(hidden_T).chunk(2, -1)
        return self.outer(self.activation(units_T) * gates_T)


class Layer(nn.Module):
    """Map hidden states (T, width) to (T, width) by attention and feed-forward, each with a residual connection and a
    LayerNorm.
    """

    def __init__(self, settings: Model, number: int) -> None:
        super().__init__()
        self.normalises_first = settings.block == "pre-norm"
        self.attention = ATTENTION[type(settings.attention)](settings)
        # The embeddings have a LayerNorm of their own, so the first layer's attention has none before it.
        self.attention_norm = nn.Identity() if self.normalises_first and number == 0 else _layer_norm(settings)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_norm = _layer_norm(settings)
        self.dropout = settings.hidden_dropout
        # Placeholders: fine-tuning may put a bottleneck here (pipeline.model.adapters).
        self.attention_adapter: nn.Module = nn.Identity()
        self.feed_forward_adapter: nn.Module = nn.Identity()

    def forward(self, hidden_T: Tensor, layout: Layout, queries_T: Tensor | None = None) -> Tensor:
        """Return the layer's output. With `queries_T` (T, width), disentangled attention and the residual connection
        take them for queries, and keys and values still come from `hidden_T`.
        """
        # Under autocast, the residual sums and LayerNorm's output stay in the number format of the layer's input.
        if self.normalises_first:
            assert queries_T is None, "layers with pre-norm take no other queries"
            hidden_T = hidden_T + self._attended(self.attention_input(hidden_T), layout)
            return hidden_T + self._fed_forward(self.feed_forward_norm(hidden_T))
        others = () if queries_T is None else (queries_T,)
        attended_T = self._attended(hidden_T, layout, *others)
        hidden_T = self.attention_norm((hidden_T if queries_T is None else queries_T) + attended_T)
        return self.feed_forward_norm(hidden_T + self._fed_forward(hidden_T))

    def attention_input(self, hidden_T: Tensor) -> Tensor:
        """Return the input of the layer's attention (T, width) for the layer's input."""
        return self.attention_norm(hidden_T) if self.normalises_first else hidden_T

    def _attended(self, hidden_T: Tensor, *others: Layout | Tensor) -> Tensor:
        attended_T = self.attention(hidden_T, *others)
        return self.attention_adapter(dropout(attended_T, self.dropout if self.training else 0.0))

    def _fed_forward(self, hidden_T: Tensor) -> Tensor:
        return self.feed_forward_adapter(dropout(self.feed_forward(hidden_T), self.dropout if self.training else 0.0))


class Encoder(nn.Module):
    """Map a flat batch to hidden states (T, width). With a pooler, `pool` maps hidden to pooled states (N, width)."""

    def __init__(self, settings: Model, vocabulary_size: int, embeddings: Embeddings | None = None) -> None:
        """Create the modules. `embeddings` of another encoder are shared with it; None: create new embeddings."""
        super().__init__()
        self.settings = settings
        self.embeddings = embeddings or Embeddings(settings, vocabulary_size)
        self.projection = (
            nn.Linear(settings.embedded_width, settings.width, bias=settings.bias)
            if settings.projects
            else nn.Identity()
        )
        distances = distances_of(settings)
        self.relative = None if distances is None else RelativeEmbeddings(settings, distances)
        self.layers = nn.ModuleList(Layer(settings, number) for number in range(settings.distinct_layers))
        """Layers with their own weights: all layers, or one layer if all layers share their weights."""
        self.final_norm = _layer_norm(settings) if settings.block == "pre-norm" else nn.Identity()
        pooled = isinstance(settings.pooler, EncoderPooler)
        self.pooler: nn.Linear | None = (
            nn.Linear(settings.width, settings.width, bias=settings.bias) if pooled else None
        )
        self.recompute = False
        """Whether to use activation checkpointing in training: layers then store only their input, and recompute the
        rest in the backward pass. Losses and gradients do not change.
        """
        self.recompute_products = True
        """Whether recomputed layers repeat also matrix products and attention without dropout, instead of storing their
        results.
        """
        self.narrow_residual = False
        """Whether the residual sums between layers have the number format of autocast, instead of float32."""
        self.compiles_layers = False
        """Whether each layer is compiled by itself."""
        self.global_use: GlobalUse = "none"
        """Global tokens of attention that has them; see `choose_global_tokens`."""
        self.choose_global_tokens("none")

    def forward(self, batch: Batch) -> Tensor:
        """Return hidden states (T, width) of the last layer, after the final LayerNorm if the settings have one.

        Raises DataError for a sequence longer than model.maximum_positions.
        """
        hidden_T, last, layout = self.before_last(batch)
        return self.final_norm(self.apply_layer(last, hidden_T, layout))

    def before_last(self, batch: Batch) -> tuple[Tensor, nn.Module, Layout]:
        """Return the input of the last layer (T, width), this layer, and its layout.

        Raises DataError for a sequence longer than model.maximum_positions.
        """
        if batch.maximum_length > self.settings.maximum_positions:
            raise DataError(
                f"a sequence of {batch.maximum_length} tokens is longer than model.maximum_positions "
                f"({self.settings.maximum_positions}): "
                "cut sequences at that length"
            )
        hidden_T = self.embed(batch)
        *others, (last, layout) = zip(self.applied_layers, self.layouts(batch), strict=True)
        for layer, own in others:
            hidden_T = self.apply_layer(layer, hidden_T, own)
        return hidden_T, last, layout

    def apply_layer(self, layer: nn.Module, *inputs: Tensor | Layout) -> Tensor:
        """Return a layer's output for its inputs, with activation checkpointing if `recompute` is set."""
        if not (self.recompute and self.training):
            return layer(*inputs)
        if self.recompute_products:
            return checkpoint(layer, *inputs, use_reentrant=False)
        # A layer that is applied again finds its weights in autocast's cache, but not when it is recomputed, and the
        # stored results belong to a sequence of operators. So there is no cache here.
        device = next(layer.parameters()).device.type
        enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=False):
            return checkpoint(layer, *inputs, use_reentrant=False, context_fn=_keep_products)

    @property
    def applied_layers(self) -> list[nn.Module]:
        """The layers in the order in which they are applied; a shared layer occurs several times."""
        return [*self.layers] * (self.settings.layers if self.settings.shares_layers else 1)

    def layouts(self, batch: Batch) -> list[Layout]:
        """Return the layout of a batch for each applied layer: with its rotation, and its band or its blocks if the
        layer is local or block-sparse.
        """
        layout, model = layout_of(batch, for_compiled=self.compiles_layers), self.settings
        if self.relative is not None:
            layout = replace(layout, relative_R=self.relative(batch.maximum_length))
        if isinstance(model.attention, GlobalLocalAttention):
            layout = with_global_tokens(layout, batch, self.global_use, model.attention.reach)
        reaches = [model.reach(number) for number in range(model.layers)]
        layouts = {reach: _of_layer(layout, batch, model, reach) for reach in set(reaches)}
        return block_layouts([layouts[reach] for reach in reaches], batch, model)

    def choose_global_tokens(self, use: GlobalUse) -> None:
        """Choose the global tokens; attention without global tokens ignores the choice.

        Without global tokens, the projections of global tokens are not used, so they are not trained.
        """
        self.global_use = use
        for part in self._global_attentions():
            for projection in part.global_parts:
                projection.requires_grad_(use != "none")

    @torch.no_grad()
    def copy_to_unused(self) -> None:
        """Copy query, key and value to the projections of global tokens if training does not use these.

        So a task with global tokens starts from projections that fit the others (Beltagy et al. 2020, section 5).
        """
        if self.global_use == "none":
            for part in self._global_attentions():
                part.copy_to_global()

    def _global_attentions(self) -> list[GlobalLocalSelfAttention]:
        return [part for part in self.modules() if isinstance(part, GlobalLocalSelfAttention)]

    def embed(self, batch: Batch) -> Tensor:
        """Return the first layer's input (T, width)."""
        embedded_T = self.embeddings(batch)
        device = embedded_T.device.type
        narrow = self.narrow_residual and torch.is_autocast_enabled(device)
        return self.projection(embedded_T).to(torch.get_autocast_dtype(device) if narrow else embedded_T.dtype)

    def pool(self, hidden_T: Tensor, batch: Batch) -> Tensor:
        """Return one state per sequence (N, width): a tanh layer on the hidden state of the first token."""
        assert self.pooler is not None, "pooled states need an encoder with a pooler"
        return torch.tanh(self.pooler(hidden_T[batch.offsets[:-1]]))

    def drop_pooler(self) -> None:
        """Remove the pooler, for an objective that does not use it.

        The pooler is removed only after initialisation, so that all other weights are the same as with a pooler.
        """
        self.pooler = None


def _keep_products() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the contexts of activation checkpointing that store the results of matrix products and attention."""
    return create_selective_checkpoint_contexts(
        lambda _, operator, *args, **kwargs: (
            CheckpointPolicy.MUST_SAVE if operator.name() in KEPT else CheckpointPolicy.PREFER_RECOMPUTE
        )
    )


def _layer_norm(settings: Model) -> nn.LayerNorm:
    """Return the norm of a layer, which adds to the residual sums in their number format."""
    return make_norm(settings, settings.width, keeps_format=True)


def _of_layer(layout: Layout, batch: Batch, model: Model, reach: int | None) -> Layout:
    """Return a layout with the rotation and the band of layers whose tokens attend to `reach` tokens on each side."""
    if isinstance(model.positions, RotaryPositions):
        local = model.positions.local_theta if reach is not None else None
        theta = model.positions.theta if local is None else local
        layout = replace(layout, rotation=rotation(batch.positions_T, model.width // model.heads, theta))
    return (
        layout
        if reach is None or isinstance(layout, GlobalLayout)
        else replace(layout, band=band(layout, batch.tokens, reach))
    )


def encoders_in(module: nn.Module) -> list[Encoder]:
    """Return all encoders in a module; an objective may have several."""
    return [part for part in module.modules() if isinstance(part, Encoder)]


def initialize(module: nn.Module, deviation: float, generator: torch.Generator | None = None) -> None:
    """Initialise weights from a normal distribution of standard deviation `deviation`, truncated at two deviations.

    Biases become 0, and LayerNorm's weights become 1 (google-research/bert: create_initializer). The same state of
    `generator` gives the same weights; None: torch's global generator.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=deviation, a=-2 * deviation, b=2 * deviation, generator=generator)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
        if isinstance(part, nn.Linear | nn.LayerNorm) and part.bias is not None:
            nn.init.zeros_(part.bias)
    for encoder in encoders_in(module):
        if encoder.settings.block == "pre-norm":
            _shrink_outputs(encoder)


@torch.no_grad()
def _shrink_outputs(encoder: Encoder) -> None:
    """Divide the weights that write to the residual sum by sqrt(2 * layers), so that its variance does not grow with
    the number of layers (transformers: ModernBertPreTrainedModel; Shoeybi et al. 2019).
    """
    for layer in encoder.layers:
        for output in (layer.attention.output, layer.feed_forward.outer):
            output.weight /= math.sqrt(2 * encoder.settings.layers)
