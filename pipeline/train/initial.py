"""A published model as the start of a run: read, checked, copied once into the output folder, loaded there by every
worker.

OUTPUT/initial/FINGERPRINT/
    model.safetensors config.json     the tensors used, under the published names
    manifest.json                     the source, and what was missing or left out
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from pipeline import storage
from pipeline.config.data import VocabularySettings
from pipeline.config.model import Model
from pipeline.corpus.given_vocabulary import given_vocabulary
from pipeline.errors import CheckpointError, ConfigError, PipelineError, listed
from pipeline.local_files import scratch_folder
from pipeline.locks import locked_name
from pipeline.model.published import Files, fingerprint, published_folder, read_config, read_weights
from pipeline.model.weights import (
    CONFIG_FIELDS,
    Taken,
    model_settings,
    pretraining_parts,
    published_config,
    require_sizes,
    take,
    to_published,
    vocabulary_size,
)
from pipeline.objectives.pretraining import BertPretraining
from pipeline.reporting import Report
from pipeline.text.extension import pieces_of_new_words
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.checkpoint import CONFIG, WEIGHTS, read_tensors

POOLER = "bert.pooler."
HEADS = (POOLER, "cls.predictions.", "cls.seq_relationship.")
"""Heads of a BertForPreTraining that a checkpoint may lack, each as a whole: bare encoders and MLM-only models do."""
OTHER_HEADS = ("classifier.", "qa_outputs.", "attention_pooling.")
"""Heads of fine-tuned models, which are left out."""
FREE = ("hidden_dropout", "attention_dropout", "initializer_deviation")
"""Settings in config.json that training may override."""
VOCABULARY_ROWS = ("encoder.embeddings.words.weight", "masked_token_head.bias")
PADDED_TO = (8, 16, 32, 64, 128)
MOST_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class Initial:
    """A published model in the output folder, with its vocabulary."""

    folder: str
    fingerprint: str
    """SHA-256 of the config and weights as they were published."""
    model: Model
    vocabulary: Vocabulary


def read_initial(
    location: str,
    vocabulary: VocabularySettings,
    output: str,
    report: Report,
    *,
    setting: str = "init",
    used: tuple[str, ...] = HEADS,
) -> Initial:
    """Read a published model and copy it into the output folder, unless it is there.

    Reports which of the heads in `used` it lacks. `setting` names the model in messages. Raises CheckpointError, and
    ConfigError for a vocabulary that contradicts it, in one line.
    """
    try:
        with published_folder(location) as (folder, files):
            model = errors_with_location(
                location, model_settings, errors_with_location(location, read_config, folder, files)
            )
            chosen = replace(vocabulary, path=vocabulary.path or location)
            entries = given_vocabulary(chosen)
            assert entries is not None  # since its path is set
            found = Initial(
                folder=storage.join(
                    output,
                    "initial",
                    (digest := errors_with_location(location, fingerprint, folder, files))[:16],
                ),
                fingerprint=digest,
                model=model,
                vocabulary=entries,
            )
            with locked_name(found.folder, wait=True):  # two runs may want the same one at once
                if storage.damage(found.folder):
                    errors_with_location(location, _publish_initial, found, location, folder, files)
        about = storage.read_json(storage.join(found.folder, storage.MANIFEST))
        require_fitting_vocabulary(location, str(chosen.path), about["vocabulary_size"], entries)
    except CheckpointError as error:
        raise CheckpointError(f"{setting} {error}") from error
    report(f"{setting}: {_description(location, about, used)}")
    return found


def errors_with_location(location: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of `read`; its errors are prefixed with the model's location."""
    try:
        return read(*arguments)
    except PipelineError as error:
        raise CheckpointError(f"{location}: {error}") from error


def _publish_initial(found: Initial, location: str, folder: Path, files: Files) -> None:
    """Publish the usable part of a checkpoint in our folder, in float32.

    Raises CheckpointError where it cannot be used.
    """
    taken, rows, padded = load_usable(found.model, found.vocabulary.size, folder, files)
    about = {
        "source": location,
        "fingerprint": found.fingerprint,
        "vocabulary_size": rows,
        "missing": taken.missing,
        "left_out": sorted(taken.surplus),
        "padding": padded,
    }
    with scratch_folder("initial") as temporary:
        save_file(to_published(taken.state), f"{temporary}/{WEIGHTS}", metadata={"format": "pt"})
        (temporary / CONFIG).write_text(
            json.dumps(published_config(found.model, rows, found.vocabulary.pad_id), indent=2) + "\n"
        )
        storage.publish(temporary, found.folder, about)


def load_usable(model: Model, entries: int, folder: Path, files: Files) -> tuple[Taken, int, int]:
    """Return a checkpoint's usable tensors in float32, its rows of word embeddings, and its padding rows.

    `entries` is the size of the vocabulary. Raises CheckpointError where it cannot be used.
    """
    tensors = {
        name: tensor.float() for name, tensor in read_weights(folder, files).items() if tensor.is_floating_point()
    }
    if not (rows := vocabulary_size(tensors)):
        raise CheckpointError(
            "tensor bert.embeddings.word_embeddings.weight is missing: "
            "without word embeddings there is no BERT to start from"
        )
    require_sizes(model, tensors)
    taken = take(tensors, pretraining_parts(model, rows))
    _require_usable(taken)
    if not (padded := padding_rows(rows, entries)):
        return taken, rows, 0
    state = {name: tensor[:entries] if name in VOCABULARY_ROWS else tensor for name, tensor in taken.state.items()}
    return replace(taken, state=state), entries, padded


def padding_rows(rows: int, entries: int) -> int:
    """Return the number of padding rows after the vocabulary's last entry (30,522 to 30,528); 0 where the excess is no
    padding.
    """
    return (
        rows - entries
        if rows > entries and any(rows == -(-entries // multiple) * multiple for multiple in PADDED_TO)
        else 0
    )


def _require_usable(taken: Taken) -> None:
    """Raise CheckpointError for tensors that are missing beyond whole heads, unexpected, or not finite."""
    there = set(to_published({name: torch.empty(3) for name in taken.state}))
    replaced = tuple(head for head in HEADS if not any(name.startswith(head) for name in there))
    if missing := [name for name in taken.missing if not name.startswith(replaced)]:
        raise CheckpointError(
            f"{tensors_named(missing)} missing: only whole heads may be "
            f"({', '.join(head.rstrip('.') for head in HEADS)})"
        )
    if surplus := [name for name in taken.surplus if not name.startswith(OTHER_HEADS)]:
        raise CheckpointError(
            f"{tensors_named(surplus)} unexpected: a BERT of the layers and heads that config.json says has none of "
            "that name"
        )
    if broken := [name for name, tensor in to_published(taken.state).items() if not _is_finite(tensor)]:
        raise CheckpointError(f"{tensors_named(broken)} not finite: NaN or infinity among the weights")


def _is_finite(tensor: Tensor) -> bool:
    """Return whether no value is NaN or infinite; checking the extremes is much faster than `isfinite` on each."""
    return not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())


def tensors_named(names: list[str]) -> str:
    """Return the first few tensor names and the number of others, followed by is or are."""
    return f"tensor{'s' * (len(names) > 1)} {listed(names, MOST_NAMED)} {'are' if len(names) > 1 else 'is'}"


def require_fitting_vocabulary(location: str, path: str, rows: int, vocabulary: Vocabulary) -> None:
    """Raise CheckpointError unless the vocabulary has an entry for each row of the word embeddings."""
    if rows != vocabulary.size:
        raise CheckpointError(
            f"{location}: the weights have {rows} word embeddings and the vocabulary in {path} has {vocabulary.size} "
            "entries: set vocabulary.path to the one that it was trained with"
        )


def _description(location: str, about: dict[str, Any], used: tuple[str, ...]) -> str:
    """Describe on one line what was taken from a model and what was not."""
    missing = [head.rstrip(".") for head in used if any(name.startswith(head) for name in about["missing"])]
    parts = [f"weights of {location}, {about['vocabulary_size']:,} word embeddings"]
    parts += [f"{' and '.join(missing)} not in it and initialised at random"] * bool(missing)
    parts += [f"{about['padding']} rows that only fill them up left out"] * bool(about["padding"])
    return "; ".join(parts + [f"{', '.join(about['left_out'])} left out"] * bool(about["left_out"]))


def agreed_model(chosen: Model, initial: Initial, location: str) -> Model:
    """Return the settings of config.json, with dropout and initializer deviation overridden where set.

    Raises ConfigError with both values for another setting that differs from both the default and config.json.
    """
    values = {}
    for name, field in CONFIG_FIELDS.items():
        mine, theirs = getattr(chosen, name), getattr(initial.model, name)
        said = mine != getattr(Model(), name)
        if said and mine != theirs and name not in FREE:
            raise ConfigError(
                f"model.{name} ({mine}) differs from {field} ({theirs}) in the config.json of init {location}: "
                "leave it out (preset continue sets none), or choose another init"
            )
        values[name] = mine if said else theirs
    return replace(chosen, **values)


def build_initial_module(initial: Initial, model: Model) -> BertPretraining:
    """Return the published model on the CPU; heads that it lacks are initialised from torch's global generator."""
    module = BertPretraining(model, initial.vocabulary.size)
    taken = take(read_tensors(storage.join(initial.folder, WEIGHTS)), module)
    module.load_state_dict(taken.state, strict=False)
    return module


@torch.no_grad()
def set_word_embeddings(module: BertPretraining, words: Tensor) -> None:
    """Set a model's word embeddings (V, width); rows that are zero keep their own values."""
    table = module.encoder.embeddings.words.weight
    words = words.to(table)
    table.copy_(torch.where(words.any(1, keepdim=True), words, table))


def extended_state(state: dict[str, Tensor], vocabulary: Vocabulary, longer: Vocabulary) -> dict[str, Tensor]:
    """Return the state of a BertPretraining for an extended vocabulary: new words are the mean of their pieces."""
    rows = pieces_of_new_words(vocabulary, longer)
    words, bias = "encoder.embeddings.words.weight", "masked_token_head.bias"
    return state | {name: _extend_rows(state[name], rows, longer.size) for name in (words, bias)}


def _extend_rows(table: Tensor, rows: dict[int, list[int]], size: int) -> Tensor:
    """Return a table extended to `size` rows, each new one the mean of its pieces' rows."""
    longer = table.new_empty(size, *table.shape[1:])
    longer[: len(table)] = table
    for entry, pieces in rows.items():
        longer[entry] = table[pieces].mean(0)
    return longer
