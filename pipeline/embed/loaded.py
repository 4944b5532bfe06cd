"""An encoder on one device: its tokens, hidden states, vectors and guesses at [MASK]; `pipeline.api` adds the rest."""

import copy
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeVar, overload

import numpy as np
import torch
from tokenizers import Tokenizer, normalizers
from torch import nn

from pipeline.batch import Batch, MaskedBatch
from pipeline.config.model import Model
from pipeline.errors import CheckpointError, ConfigError, DataError, PipelineError, shown
from pipeline.export.inference import TEXTS_AT_ONCE, batch_of, batches_by_length, fill_masks, pooled_by
from pipeline.files import storage
from pipeline.files.locations import absolute, is_url
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import AttentionPooling
from pipeline.model.host_copies import finish_copies, start_copy
from pipeline.model.states import Layers, attention_weights, layer_numbers, layer_states
from pipeline.saved.checkpoints import GENERATOR, TASK, find_checkpoint
from pipeline.saved.files import require_owner
from pipeline.saved.model import open_saved
from pipeline.saved.pretrained import Pretrained, load_published
from pipeline.saved.recipe import VectorRecipe, read_recipe, stated_recipe
from pipeline.saved.run import RUN
from pipeline.saved.task_heads import has_task
from pipeline.tables.content import SURROGATE
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary_as_published
from pipeline.text.vocabulary_saving import published_tokenizer

if TYPE_CHECKING:
    from pipeline.fine_tuned.tuned import TunedModel

Device = Literal["auto", "cpu", "cuda"]
Text = str | tuple[str, str]
"""A text, or a pair of texts."""
Guesses = list[list[dict[str, str | float]]]
"""For each [MASK] of a text: the guesses, best first."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The T tokens of a text as the model reads it, including [CLS] and [SEP]."""

    ids: np.ndarray
    """int64 (T,)."""
    pieces: tuple[str, ...]
    """Vocabulary entry of each token; in WordPiece, ## marks an entry that continues a word."""
    spans: np.ndarray
    """int64 (T, 2): start and end (exclusive) of each token in its text, in characters; both 0 for special tokens."""
    segments: np.ndarray
    """int64 (T,): 1 in the second text of a pair if the model has two segments, else 0."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LoadedEncoder:
    """An encoder in evaluation mode; it computes in float32.

    A text is a string; a pair of texts is a tuple of two strings. `embed` truncates texts to `embedding_length` tokens.
    All other methods truncate texts to settings.maximum_positions tokens. "[MASK]" in a text is read as the mask token.
    """

    location: str
    settings: Model
    vocabulary: Vocabulary
    encoder: Encoder
    device: torch.device
    lacks: tuple[str, ...] = ()
    """Modules whose weights are missing in the model's files, such as encoder.pooler."""
    recipe: VectorRecipe = VectorRecipe()
    """Pooling, scaling, prompts and maximum length of `embed`."""
    pretrained: Pretrained | None = None
    tuned: "TunedModel | None" = None

    def __repr__(self) -> str:
        sizes = f"{self.settings.layers} layers, width {self.settings.width}, {self.vocabulary.size:,} entries"
        return f"{type(self).__name__}({self.location}: {sizes}, on {self.device})"

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, which truncates texts to settings.maximum_positions tokens."""
        tokenizer = Tokenizer.from_str(json.dumps(published_tokenizer(self.vocabulary, self.settings.segments)))
        tokenizer.enable_truncation(self.settings.maximum_positions)
        if self.recipe.lowercase and not self.vocabulary.lowercase:
            own = [tokenizer.normalizer] if tokenizer.normalizer else []
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
        return tokenizer

    @cached_property
    def embedding_tokenizer(self) -> Tokenizer:
        """The model's tokenizer, which truncates texts to `embedding_length` tokens."""
        tokenizer = Tokenizer.from_str(self.tokenizer.to_str())
        tokenizer.enable_truncation(self.embedding_length)
        return tokenizer

    @property
    def embedding_length(self) -> int:
        """Maximum tokens of a text that `embed` reads; longer texts are truncated."""
        return min(self.recipe.maximum_length or self.settings.maximum_positions, self.settings.maximum_positions)

    @property
    def dimension(self) -> int:
        """Numbers per vector of `embed`."""
        return self.settings.width if self.recipe.projection is None else self.recipe.projection.out_features

    @cached_property
    def _layers(self) -> tuple[AttentionPooling | None, nn.Linear | None]:
        """The recipe's attention pooling and projection on the model's device."""
        attention, projection = copy.deepcopy((self.recipe.attention, self.recipe.projection))
        return attention and attention.to(self.device), projection and projection.to(self.device)

    def tokenize(self, text: Text) -> Tokens:
        """Return the tokens of a text or pair of texts."""
        (encoding,) = self.tokenizer.encode_batch(_checked([text]))
        return Tokens(
            ids=np.array(encoding.ids, np.int64),
            pieces=tuple(encoding.tokens),
            spans=np.array(encoding.offsets, np.int64).reshape(-1, 2),
            segments=np.array(encoding.type_ids, np.int64),
        )

    def hidden(self, texts: Sequence[Text], layers: Layers = -1) -> list[np.ndarray]:
        """Return hidden states of each text, float32 (T, width), for the T tokens that `tokenize` returns.

        `layers` is 0 for the embeddings, 1 for the first layer, -1 for the last layer, or "mean of last four". If
        `layers` is a sequence of numbers, the states of each text have the shape (layers, T, width), in the order of
        the numbers. Raises ConfigError for a layer that the model does not have.
        """
        wanted = layer_numbers(layers, self.settings.layers)
        hidden: list[np.ndarray] = []
        for batch in self.batches(texts):
            states = layer_states(self.encoder, batch)
            stacked = torch.stack([states[number] for number in wanted])
            if isinstance(layers, str):
                stacked = stacked.mean(0)
            elif isinstance(layers, int):
                stacked = stacked[0]
            hidden += np.split(stacked.cpu().numpy(), batch.offsets[1:-1].cpu().numpy(), axis=-2)
        return hidden

    def cls(self, texts: Sequence[Text]) -> np.ndarray:
        """Return the last hidden state of each text's [CLS], float32 (texts, width)."""
        return self.vectors(texts, lambda hidden_T, batch: hidden_T[batch.offsets[:-1]])

    def pooled(self, texts: Sequence[Text]) -> np.ndarray:
        """Return the output of the pooler, a tanh layer on the last state of [CLS], float32 (texts, width).

        Raises CheckpointError if the model was saved without a pooler.
        """
        if "encoder.pooler" in self.lacks:
            raise CheckpointError(f"{self.location} has no pooler: use .cls or .embed")
        return self.vectors(texts, self.encoder.pool)

    def embed(self, texts: str | Sequence[Text], prompt: str | None = None) -> np.ndarray:
        """Return one vector per text, float32 (texts, dimension), as the model's `recipe` says.

        If `texts` is one string, return its vector, float32 (dimension,).

        The recipe comes from the model's sentence-transformers files, or from its fine-tuning for similarity. A model
        without such a recipe gives the mean of the last hidden states of all tokens, including [CLS] and [SEP] (Reimers
        & Gurevych 2019, MEAN), scaled to length 1.

        `prompt` is the name of one of the model's prompts, or a text such as "query: " that is put before each text.
        None: the model's default prompt.
        """
        if isinstance(texts, str):
            return self.embed([texts], prompt)[0]
        before = self.recipe.prompt(prompt)
        prompted = [
            (before + text[0], text[1]) if isinstance(text, tuple) else before + text for text in _checked(texts)
        ]
        attention, projection = self._layers
        pool = pooled_by(attention or self.recipe.pooling, self.recipe.normalized, projection)
        return self.vectors(prompted, pool, self.embedding_tokenizer, self.dimension)

    @overload
    def attentions(self, text: Text) -> np.ndarray: ...
    @overload
    def attentions(self, text: list[Text]) -> list[np.ndarray]: ...
    def attentions(self, text: Text | list[Text]) -> np.ndarray | list[np.ndarray]:
        """Return attention weights, float32 (layers, heads, T, T); entry [..., i, j]: token i attends to token j.

        For a list of texts, return a list with the weights of each.
        """
        if isinstance(text, list):
            return [self.attentions(one) for one in _checked(text)]
        (batch,) = self.batches([text])
        return attention_weights(self.encoder, batch).cpu().numpy()

    @overload
    def fill(self, text: Text, top: int = 5) -> Guesses: ...
    @overload
    def fill(self, text: list[Text], top: int = 5) -> list[Guesses]: ...
    def fill(self, text: Text | list[Text], top: int = 5) -> Guesses | list[Guesses]:
        """Return the `top` most likely entries for each [MASK] in the text, best first.

        Each is {"token", "word", "probability"}: the vocabulary's entry, and the text that it stands for. For a list of
        texts, return a list with the guesses of each. Raises DataError for a text without [MASK], and CheckpointError
        for a model without a head for masked tokens.
        """
        if self.pretrained is None or "masked_token_head" in self.lacks:
            raise CheckpointError(
                f"{self.location} has no head for masked tokens: load a pretrained model, such as a run's export"
            )
        if isinstance(text, list):
            return [self.fill(one, top) for one in _checked(text)]
        (batch,) = self.batches([text])
        if not batch.masked:
            mask = self.vocabulary.tokens[self.vocabulary.mask_id]
            raise DataError(
                f"text {shown(text)} has no {mask} among its {batch.tokens} tokens: "
                f"write one {mask} for each missing word"
            )
        return fill_masks(self.pretrained, batch, self.vocabulary, top)[0]

    def batches(self, texts: Sequence[Text]) -> Iterator[MaskedBatch]:
        """Yield batches of at most TEXTS_AT_ONCE texts on the model's device, in the order of the texts."""
        checked = _checked(texts)
        for start in range(0, len(checked), TEXTS_AT_ONCE):
            encodings = self.tokenizer.encode_batch(checked[start : start + TEXTS_AT_ONCE])
            yield batch_of(encodings, self.vocabulary.mask_id).to(self.device)

    @torch.inference_mode()
    def vectors(
        self,
        texts: Sequence[Text],
        pool: Callable[[torch.Tensor, Batch], torch.Tensor],
        tokenizer: Tokenizer | None = None,
        dimension: int | None = None,
    ) -> np.ndarray:
        """Return one vector per text, float32 (texts, dimension).

        `pool` maps the last hidden states (T, width) of a batch of N texts to vectors (N, dimension). `tokenizer` None:
        the model's tokenizer. `dimension` None: the model's width.
        """
        vectors = np.zeros((len(texts), dimension or self.settings.width), np.float32)
        copies: list[tuple[list[int], torch.Tensor]] = []
        for rows, host_batch in batches_by_length(
            _checked(texts), tokenizer or self.tokenizer, self.vocabulary.mask_id
        ):
            batch = host_batch.to(self.device)
            copies.append((rows, start_copy(pool(self.encoder(batch), batch).float())))
        finish_copies(self.device)
        for rows, vectors_N in copies:
            vectors[rows] = vectors_N.numpy()
        return vectors


Loaded = TypeVar("Loaded", bound=LoadedEncoder)
"""LoadedEncoder, or a class with more methods."""


def load(location: str, device: Device = "auto") -> LoadedEncoder:
    """Load an encoder, as `load_as`."""
    return load_as(LoadedEncoder, location, device)


def _checked(texts: Sequence[Text]) -> list[Text]:
    """Return texts as a list.

    Raises DataError for a single text instead of a list, for a value that is neither a text nor a pair of texts, and
    for a text with half of a surrogate pair, which is no character.
    """
    if isinstance(texts, str):
        raise DataError(f"texts is one text ({shown(texts)}): give a list of texts")
    if not isinstance(texts, Iterable):
        raise DataError(f"texts is {shown(texts)}: give a list of texts")
    checked = list(texts)
    for index, text in enumerate(checked):
        parts = text if isinstance(text, tuple) and len(text) == 2 else (text,)
        if not all(isinstance(part, str) for part in parts):
            raise DataError(f"texts[{index}] is {shown(text)}: a text is a string, and a pair of texts a tuple of two")
        if any(SURROGATE.search(part) for part in parts):
            raise DataError(f"texts[{index}] ({shown(text)}) has half of a surrogate pair: give valid Unicode")
    return checked


def load_as(made: type[Loaded], location: str, device: Device = "auto") -> Loaded:
    """Load an encoder from a folder, a run, or the hub (hf://OWNER/NAME), as an object of the class `made`.

    A folder holds an export, a fine-tuned model, or a model in the file layout of Hugging Face or google-research/bert.
    From a run, the newest undamaged checkpoint is loaded. `device` auto: a GPU if the process sees one, else the CPU.
    Raises ConfigError or CheckpointError, with a one-line message, if the location has no such model.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device ({device}) must be auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda needs a GPU, and this process sees none: use cpu")
    chosen = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    written, location = location, absolute(location)
    require_owner(location)
    _require_folder(written, location)
    try:
        if storage.exists(storage.join(location, RUN)):
            location = find_checkpoint(location, None, warnings.warn)
        tuned = has_task(location)
    except PipelineError:
        raise
    except Exception as error:  # file systems and web clients raise their own exception types
        raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error
    return _load_tuned(made, location, chosen) if tuned else _load_pretrained(made, location, chosen)


def _require_folder(written: str, location: str) -> None:
    """Raise ConfigError if a local folder does not exist, and CheckpointError if its subfolder `model` is the model.

    `written` is the location as the user wrote it. URLs are not checked.
    """
    if is_url(location):
        return
    if not storage.exists(location):
        is_hub_name = written.count("/") == 1 and not written.startswith((".", "/", "~"))
        hub = f"hf://{written}" if is_hub_name else "hf://OWNER/NAME"
        raise ConfigError(
            f"{location} does not exist: give the folder of a model or a run, or {hub} for a model of the Hugging Face "
            "hub"
        )
    if not storage.exists(storage.join(location, RUN)) and storage.exists(
        inside := storage.join(location, "model", TASK)
    ):
        raise CheckpointError(f"{location} is not a model: give {inside.rpartition('/')[0]}")


def _fitting(recipe: VectorRecipe, location: str, settings: Model) -> VectorRecipe:
    """Return the recipe. Raises CheckpointError if a layer of it reads states of another width than the model's."""
    for layer, name in ((recipe.attention, "AttentionPooling"), (recipe.projection, "Dense")):
        if layer is not None and layer.in_features != settings.width:
            raise CheckpointError(
                f"{location}: the {name} of modules.json reads states of width {layer.in_features}, but the encoder's "
                f"width is {settings.width}: restore the files that were saved together"
            )
    return recipe


def _load_tuned(made: type[Loaded], location: str, device: torch.device) -> Loaded:
    """Load a fine-tuned model with its task. Raises CheckpointError if the files hold no such model."""
    from pipeline.fine_tuned.model import open_tuned  # tasks are loaded only for models that have one
    from pipeline.fine_tuned.tuned import trained_recipe

    model = open_tuned(location)
    recipe = _fitting(stated_recipe(location) or trained_recipe(model.about), location, model.model)
    return of_tuned(made, location, model, device, recipe)


def of_tuned(
    made: type[Loaded], location: str, tuned: "TunedModel", device: torch.device, recipe: VectorRecipe
) -> Loaded:
    """Return a fine-tuned model on a device, as an object of the class `made`."""
    tuned.module.to(device).eval()
    return made(
        location=location, settings=tuned.model, vocabulary=tuned.vocabulary, encoder=tuned.module.encoder,
        device=device, lacks=("encoder.pooler",) * (tuned.module.encoder.pooler is None), tuned=tuned, recipe=recipe,
    )  # fmt: skip


def _load_pretrained(made: type[Loaded], location: str, device: torch.device) -> Loaded:
    """Load a pretrained model with the heads in its files. Raises CheckpointError if the files hold no such model."""
    if storage.exists(storage.join(location, GENERATOR)):  # this project's ELECTRA: generator and discriminator
        from pipeline.export.trained import load_trained  # objectives are loaded only for a model with a generator

        trained = load_trained(location)
        return _of_trained(made, trained, load_vocabulary_as_published(location), device, ("encoder.pooler",))
    saved = open_saved(location)
    trained, lacks = load_published(saved, saved.vocabulary)
    pooler = trained.module.encoder.pooler
    if pooler is None:
        lacks.add("encoder.pooler")
    elif "encoder.pooler" in lacks:
        initialize(pooler, trained.model.initializer_deviation, torch.Generator().manual_seed(0))
    return _of_trained(made, trained, saved.vocabulary, device, tuple(sorted(lacks)))


def _of_trained(
    made: type[Loaded], trained: Pretrained, vocabulary: Vocabulary, device: torch.device, lacks: tuple[str, ...]
) -> Loaded:
    """Return a pretrained model on a device, as an object of the class `made`."""
    trained.module.to(device)
    return made(
        location=trained.checkpoint, settings=trained.model, vocabulary=vocabulary, encoder=trained.module.encoder,
        device=device, lacks=lacks, pretrained=trained,
        recipe=_fitting(read_recipe(trained.checkpoint), trained.checkpoint, trained.model),
    )  # fmt: skip
