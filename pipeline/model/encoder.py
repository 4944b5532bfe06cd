"""Build the encoder from the parts that its settings choose, run it on flat batches, and initialise its weights.

Shapes: T tokens of the batch, N sequences, H heads, D width of a head.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pipeline.batch import Batch
from pipeline.config.model import EncoderPooler, Model
from pipeline.errors import DataError
from pipeline.model.activations import ACTIVATIONS
from pipeline.model.attention import Layout, attention, layout
from pipeline.model.dropout import dropout
from pipeline.model.embeddings import Embeddings


class SelfAttention(nn.Module):
    """Map hidden states (T, width) to attention outputs (T, width)."""

    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.heads = settings.heads
        self.dropout = settings.attention_dropout
        self.qkv = nn.Linear(settings.width, 3 * settings.width)
        self.output = nn.Linear(settings.width, settings.width)

    def forward(self, hidden_T: Tensor, where: Layout) -> Tensor:
        T, width = hidden_T.shape
        qkv = self.qkv(hidden_T).view(T, 3, self.heads, width // self.heads)
        gathered = attention(qkv, where, self.dropout if self.training else 0.0)
        return self.output(gathered.reshape(T, width))


class FeedForward(nn.Module):
    """Apply a two-layer network to every token (T, width)."""

    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[settings.activation]
        self.inner = nn.Linear(settings.width, settings.feed_forward)
        self.outer = nn.Linear(settings.feed_forward, settings.width)

    def forward(self, hidden_T: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(hidden_T)))


class Layer(nn.Module):
    """Map hidden states (T, width) to (T, width) by attention and feed-forward, each with a residual connection and
    post-LayerNorm.
    """

    def __init__(self, settings: Model) -> None:
        super().__init__()
        self.attention = SelfAttention(settings)
        self.attention_norm = nn.LayerNorm(settings.width, eps=settings.layer_norm_epsilon)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_norm = nn.LayerNorm(settings.width, eps=settings.layer_norm_epsilon)
        self.dropout = settings.hidden_dropout
        # Placeholders: fine-tuning may put a bottleneck here (pipeline.model.adapters).
        self.attention_adapter: nn.Module = nn.Identity()
        self.feed_forward_adapter: nn.Module = nn.Identity()

    def forward(self, hidden_T: Tensor, where: Layout) -> Tensor:
        probability = self.dropout if self.training else 0.0
        # Under autocast, the residual sums and LayerNorm's output stay in float32.
        hidden_T = self.attention_norm(
            hidden_T + self.attention_adapter(dropout(self.attention(hidden_T, where), probability))
        )
        return self.feed_forward_norm(
            hidden_T + self.feed_forward_adapter(dropout(self.feed_forward(hidden_T), probability))
        )


class Encoder(nn.Module):
    """Map a flat batch to hidden states (T, width). With a pooler, `pool` maps hidden to pooled states (N, width)."""

    def __init__(self, settings: Model, vocabulary_size: int, embeddings: Embeddings | None = None) -> None:
        """Create the modules. `embeddings` of another encoder are shared with it; None: create new embeddings."""
        super().__init__()
        self.settings = settings
        self.embeddings = embeddings or Embeddings(settings, vocabulary_size)
        self.projection = nn.Linear(settings.embedded_width, settings.width) if settings.projects else nn.Identity()
        self.layers = nn.ModuleList(Layer(settings) for _ in range(settings.distinct_layers))
        """Layers with their own weights: all layers, or one layer if all layers share their weights."""
        pooled = isinstance(settings.pooler, EncoderPooler)
        self.pooler: nn.Linear | None = nn.Linear(settings.width, settings.width) if pooled else None
        self.recompute = False
        """Whether to use activation checkpointing in training: layers then store only their input, and recompute the
        rest in the backward pass. Losses and gradients do not change.
        """

    def forward(self, batch: Batch) -> Tensor:
        """Return hidden states (T, width) of the last layer.

        Raises DataError for a sequence longer than the learned positions.
        """
        if batch.maximum_length > self.settings.maximum_positions:
            raise DataError(
                f"a sequence of {batch.maximum_length} tokens is longer than model.maximum_positions "
                f"({self.settings.maximum_positions}): "
                "cut sequences at that length"
            )
        hidden_T = self.embed(batch)
        where = layout(batch)
        for layer in self.applied_layers:
            hidden_T = (
                checkpoint(layer, hidden_T, where, use_reentrant=False)
                if self.recompute and self.training
                else layer(hidden_T, where)
            )
        return hidden_T

    @property
    def applied_layers(self) -> list[nn.Module]:
        """The layers in the order in which they are applied; a shared layer occurs several times."""
        return [*self.layers] * (self.settings.layers if self.settings.shares_layers else 1)

    def embed(self, batch: Batch) -> Tensor:
        """Return the first layer's input (T, width)."""
        embedded_T = self.embeddings(batch)
        return self.projection(embedded_T).to(embedded_T.dtype)  # float32 under autocast, for the residual sums

    def pool(self, hidden_T: Tensor, batch: Batch) -> Tensor:
        """Return one state per sequence (N, width): a tanh layer on the hidden state of the first token."""
        assert self.pooler is not None, "pooled states need an encoder with a pooler"
        return torch.tanh(self.pooler(hidden_T[batch.offsets[:-1]]))

    def drop_pooler(self) -> None:
        """Remove the pooler, for an objective that does not use it.

        The pooler is removed only after initialisation, so that all other weights are the same as with a pooler.
        """
        self.pooler = None


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
        if isinstance(part, nn.Linear | nn.LayerNorm):
            nn.init.zeros_(part.bias)
