"""Use an encoder in Python, on one device and without Ray: load, inspect, embed, fill blanks, fine-tune, predict.

from pipeline import api

model = api.load("output/runs/NAME")
model.embed(["a text", "another"])
"""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer

from pipeline import storage
from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.errors import CheckpointError, ConfigError, DataError, PipelineError, shown
from pipeline.export.inference import TEXTS_AT_ONCE, batch_of, fill_masks
from pipeline.export.trained import Trained, find_checkpoint, load_trained
from pipeline.export.tuned_card import tuned_files
from pipeline.locations import absolute, is_url
from pipeline.model.encoder import Encoder, initialize
from pipeline.model.heads import by_segment
from pipeline.model.published import published_folder, read_config, require_owner
from pipeline.model.states import attention_weights, layer_states
from pipeline.model.weights import model_settings, without_memory
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.replaced import GENERATOR
from pipeline.reporting import Report
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary_as_published
from pipeline.text.vocabulary_saving import published_tokenizer
from pipeline.train.initial import errors_with_location, load_usable, require_fitting_vocabulary
from pipeline.train.published_tuned import head_named, is_task_head, load_tuned_or_published
from pipeline.train.run import RUN
from pipeline.train.tuned import TASK, TunedModel, save_tuned

Device = Literal["auto", "cpu", "cuda"]
Text = str | tuple[str, str]
"""A text, or a pair of texts."""
Layers = int | Sequence[int] | Literal["mean of last four"]
Kind = Literal["classification", "multilabel", "regression"]
LAST = 4
"""Number of layers in the mean (Devlin et al. 2019, 5.3, take their sum)."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """A text as the model reads it, [CLS] and [SEP] with it; T tokens."""

    ids: np.ndarray
    """int64 (T,)."""
    pieces: tuple[str, ...]
    """The vocabulary's entries, ## before what continues a word."""
    spans: np.ndarray
    """int64 (T, 2): start and end of each token in its text, in characters; 0 and 0 of special tokens."""
    segments: np.ndarray
    """int64 (T,): 1 in the second text of a pair."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class LoadedModel:
    """An encoder in evaluation mode, which computes in float32.

    Texts are strings, or pairs as tuples of two; longer ones are cut at the model's positions. "[MASK]" in a text is
    the mask.
    """

    location: str
    settings: Model
    vocabulary: Vocabulary
    encoder: Encoder
    device: torch.device
    lacks: tuple[str, ...] = ()
    """Modules that the files lack, such as encoder.pooler."""
    pretrained: Trained | None = None
    tuned: TunedModel | None = None

    def __repr__(self) -> str:
        sizes = f"{self.settings.layers} layers, width {self.settings.width}, {self.vocabulary.size:,} entries"
        return f"LoadedModel({self.location}: {sizes}, on {self.device})"

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, which truncates at the model's positions."""
        tokenizer = Tokenizer.from_str(json.dumps(published_tokenizer(self.vocabulary, self.settings.segments)))
        tokenizer.enable_truncation(self.settings.maximum_positions)
        return tokenizer

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Split -> metric -> value, for a model that was fine-tuned here; else empty."""
        return self.tuned.about.lineage.get("scores", {}) if self.tuned else {}

    def tokenize(self, text: Text) -> Tokens:
        """Return a text's tokens."""
        (encoding,) = self.tokenizer.encode_batch(_checked([text]))
        return Tokens(
            ids=np.array(encoding.ids, np.int64),
            pieces=tuple(encoding.tokens),
            spans=np.array(encoding.offsets, np.int64).reshape(-1, 2),
            segments=np.array(encoding.type_ids, np.int64),
        )

    def hidden(self, texts: Sequence[Text], layers: Layers = -1) -> list[np.ndarray]:
        """Return hidden states of each text, float32 (T, width), T its tokens as `tokenize` returns them.

        `layers`: 0 for the embeddings, 1 for the first layer, -1 for the last; a sequence gives (layers, T, width), in
        that order; or "mean of last four". Raises ConfigError for a layer that the model does not have.
        """
        wanted = self.numbers(layers)
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
        """Return the pooler's output, a tanh layer on [CLS], float32 (texts, width).

        Raises CheckpointError where the model was saved without a pooler.
        """
        if "encoder.pooler" in self.lacks:
            raise CheckpointError(f"{self.location} has no pooler: use .cls or .embed")
        return self.vectors(texts, self.encoder.pool)

    def embed(self, texts: Sequence[Text]) -> np.ndarray:
        """Return one vector of length 1 for each text, float32 (texts, width).

        The mean of the last hidden states of its tokens, [CLS] and [SEP] among them (Reimers & Gurevych 2019, MEAN).
        """
        vectors = self.vectors(texts, lambda hidden_T, batch: by_segment(hidden_T, "mean", batch.offsets.diff().long()))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def attentions(self, text: Text) -> np.ndarray:
        """Return attention weights, float32 (layers, heads, T, T): row attends to column."""
        (batch,) = self.batches([text])
        return attention_weights(self.encoder, batch).cpu().numpy()

    def fill(self, text: str, top: int = 5) -> list[list[dict[str, str | float]]]:
        """Return the `top` likeliest entries for each [MASK] in the text, best first, as {"token", "probability"}.

        Raises DataError for a text without [MASK], CheckpointError for a model without a head for masked tokens.
        """
        if self.pretrained is None or "masked_token_head" in self.lacks:
            raise CheckpointError(
                f"{self.location} has no head for masked tokens: load a pretrained model, such as a run's export"
            )
        (batch,) = self.batches([text])
        if not batch.masked:
            mask = self.vocabulary.tokens[self.vocabulary.mask_id]
            raise DataError(
                f"text {shown(text)} has no {mask} among its {batch.tokens} tokens: write one for each missing word"
            )
        return fill_masks(self.pretrained, batch, self.vocabulary, top)[0]

    def predict(self, rows: Sequence[Text | Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return a fine-tuned model's answer to each row, as jobs/predict.py writes them; an empty text has None for
        all values.

        A row is a text; a pair; for questions (question, context); or a dictionary: text and second, question and
        context, or words. Classification gives label, probability and probabilities; multilabel labels and
        probabilities; regression score; tags words and tags; questions answer, start, end and probability. Raises
        ConfigError for a model that was not fine-tuned.
        """
        from pipeline.predict.rows import predict_rows  # brings scikit-learn along, a second that vectors do not need

        if self.tuned is None:
            raise ConfigError(
                f"{self.location} was not fine-tuned: .fit(texts, labels) gives one that predicts, and .fill answers "
                "[MASK]"
            )
        return predict_rows(self.tuned, rows, self.device)

    def fit(
        self,
        texts: Sequence[Text],
        labels: Sequence[Any],
        *,
        kind: Kind = "classification",
        dev: tuple[Sequence[Text], Sequence[Any]] | None = None,
        epochs: int = 3,
        rows_per_step: int = 32,
        learning_rate: float | None = None,
        seed: int = 0,
        report: Report = lambda line: None,
    ) -> "LoadedModel":
        """Return a new model, fine-tuned on texts and labels, that predicts; this one is unchanged.

        Labels are texts or numbers, or lists of them for multilabel; predictions are texts. `learning_rate` None: by
        the encoder's width. `scores` are measured on `dev`, (texts, labels), or without it on the training rows, where
        they say little. `report=print` shows progress.
        """
        from pipeline.finetune.lists import Lists, fit_lists  # the same second

        given = Lists(texts=texts, labels=labels, dev=dev)
        tuned = fit_lists(
            self.encoder, self.settings, self.vocabulary, given, kind=kind, epochs=epochs, rows_per_step=rows_per_step,
            learning_rate=learning_rate, seed=seed, device=self.device, report=report, checkpoint=self.location,
        )  # fmt: skip
        return _of_tuned(self.location, tuned, self.device)

    def save(self, folder: str) -> None:
        """Write a fine-tuned model to a new folder, which `load`, transformers and jobs/predict.py read.

        Raises ConfigError where the folder holds something, and for a model that was not fine-tuned.
        """
        target = absolute(folder)
        if self.tuned is None:
            raise ConfigError(
                f"{self.location} was not fine-tuned, so that there is nothing new to save: .fit(texts, labels) first"
            )
        if storage.exists(target):
            raise ConfigError(f"{target} exists already: give a new folder")
        beside = tuned_files(self.tuned.about, self.settings)
        save_tuned(target, self.tuned.module.cpu(), self.tuned.about, self.settings, self.vocabulary, beside=beside)
        self.tuned.module.to(self.device)

    def numbers(self, layers: Layers) -> list[int]:
        """Return the layer numbers. Raises ConfigError for one that the model does not have."""
        most = self.settings.layers
        if isinstance(layers, str):
            if layers != "mean of last four" or most < LAST:
                raise ConfigError(
                    f"layers ({layers}) must be numbers, or 'mean of last four' of at least {LAST} layers; this model "
                    f"has {most}"
                )
            return list(range(-LAST, 0))
        wanted = [layers] if isinstance(layers, int) else list(layers)
        if wrong := [number for number in wanted if not -most - 1 <= number <= most]:
            raise ConfigError(
                f"layers ({wrong[0]}) must be from {-most - 1} to {most}: this model has {most} layers, and 0 is the "
                "embeddings"
            )
        if not wanted:
            raise ConfigError("layers names none: give one or more numbers")
        return wanted

    def batches(self, texts: Sequence[Text]) -> Iterator[Batch]:
        """Yield texts as batches on the device, in order."""
        given = _checked(texts)
        for start in range(0, len(given), TEXTS_AT_ONCE):
            encodings = self.tokenizer.encode_batch(given[start : start + TEXTS_AT_ONCE])
            yield batch_of(encodings, self.vocabulary.mask_id).to(self.device)

    @torch.inference_mode()
    def vectors(self, texts: Sequence[Text], pool: Callable[[torch.Tensor, Batch], torch.Tensor]) -> np.ndarray:
        """Return one vector per text, from the last hidden states (T, width) of a batch."""
        vectors = [pool(self.encoder(batch), batch).cpu().numpy() for batch in self.batches(texts)]
        return np.concatenate([np.zeros((0, self.settings.width), np.float32), *vectors])


def _checked(texts: Sequence[Text]) -> list[Text]:
    """Return texts as a list.

    Raises DataError for a single text instead of a list, and for values that are not texts.
    """
    if isinstance(texts, str):
        raise DataError(f"texts is one text ({shown(texts)}): give a list of texts")
    checked = list(texts)
    for index, text in enumerate(checked):
        pair = isinstance(text, tuple) and len(text) == 2
        if not all(isinstance(part, str) for part in (text if pair else (text,))):
            raise DataError(f"texts[{index}] is {shown(text)}: a text is a string, and a pair of texts a tuple of two")
    return checked


def load(location: str, device: Device = "auto") -> LoadedModel:
    """Load an encoder from a folder, a run (its newest sound checkpoint), or the Hugging Face hub (hf://OWNER/NAME).

    A folder is an export, a fine-tuned model, or any in Hugging Face's or google-research's layout. Raises ConfigError
    or CheckpointError, in one line, if there is no such model.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device ({device}) must be auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda needs a GPU, and this process sees none: use cpu")
    chosen = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    given, location = location, absolute(location)
    require_owner(location)
    _require_folder(given, location)
    try:
        if storage.exists(storage.join(location, RUN)):
            location = find_checkpoint(location, None, warnings.warn)
        tuned = storage.exists(storage.join(location, TASK)) or is_task_head(head_named(location))
    except PipelineError:
        raise
    except Exception as error:  # file systems and web clients raise kinds of their own
        raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error
    return (
        _of_tuned(location, load_tuned_or_published(location), chosen) if tuned else _load_pretrained(location, chosen)
    )


def _require_folder(given: str, location: str) -> None:
    """Raise ConfigError if a local folder does not exist, and CheckpointError for the folder above a
    fine-tuned model.
    """
    if is_url(location):
        return
    if not storage.exists(location):
        hub = f"hf://{given}" if given.count("/") == 1 and not given.startswith((".", "/", "~")) else "hf://OWNER/NAME"
        raise ConfigError(
            f"{location} does not exist: give the folder of a model or a run, or {hub} for one of the Hugging Face hub"
        )
    if not storage.exists(storage.join(location, RUN)) and storage.exists(
        inside := storage.join(location, "model", TASK)
    ):
        raise CheckpointError(f"{location} is no model: {inside.rpartition('/')[0]} is one")


def _of_tuned(location: str, tuned: TunedModel, device: torch.device) -> LoadedModel:
    """Return a fine-tuned model on a device."""
    lacks = ("encoder.pooler",) if tuned.module.encoder.pooler is None else ()
    tuned.module.to(device).eval()
    return LoadedModel(
        location=location, settings=tuned.model, vocabulary=tuned.vocabulary, encoder=tuned.module.encoder,
        device=device, lacks=lacks, tuned=tuned,
    )  # fmt: skip


def _load_pretrained(location: str, device: torch.device) -> LoadedModel:
    """Load a pretrained model with the heads that its files have. Raises CheckpointError if it is not one."""
    if storage.exists(storage.join(location, GENERATOR)):  # our checkpoint or export of two models
        trained = load_trained(location)
        return _of_trained(trained, load_vocabulary_as_published(location), device, ("encoder.pooler",))
    with published_folder(location) as (folder, files):
        settings = errors_with_location(
            location, model_settings, errors_with_location(location, read_config, folder, files)
        )
        vocabulary = load_vocabulary_as_published(location)
        taken, rows, _ = errors_with_location(location, load_usable, settings, vocabulary.size, folder, files)
    require_fitting_vocabulary(location, location, rows, vocabulary)
    with without_memory():  # no time for weights that are replaced
        module = MaskedTokens(settings, rows)
    own = module.state_dict()
    absent = {name: torch.empty(tensor.shape) for name, tensor in own.items() if name not in taken.state}
    given = {name: tensor for name, tensor in taken.state.items() if name in own}
    module.load_state_dict(absent | given, assign=True)  # without a copy
    lacks = {name.rpartition(".")[0] for name in absent}
    if module.encoder.pooler is None:
        lacks.add("encoder.pooler")
    elif "encoder.pooler" in lacks:
        initialize(module.encoder.pooler, settings.initializer_deviation, torch.Generator().manual_seed(0))
    trained = Trained(checkpoint=location, model=settings, vocabulary_size=rows, module=module.eval())
    return _of_trained(trained, vocabulary, device, tuple(sorted(lacks)))


def _of_trained(trained: Trained, vocabulary: Vocabulary, device: torch.device, lacks: tuple[str, ...]) -> LoadedModel:
    """Return a pretrained model on a device."""
    trained.module.to(device)
    return LoadedModel(
        location=trained.checkpoint, settings=trained.model, vocabulary=vocabulary, encoder=trained.module.encoder,
        device=device, lacks=lacks, pretrained=trained,
    )  # fmt: skip
