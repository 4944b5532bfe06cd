"""A published model as the start of a run: read, checked, copied once into the output folder, loaded there by every
worker.

OUTPUT/initial/FINGERPRINT/
    model.safetensors config.json     the tensors used, under the published names
    generator/                        the same of ELECTRA's generator, where the model has one
    manifest.json                     the source, and what was missing or left out
"""

import hashlib
import json
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
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
from pipeline.model.families.table import family_of
from pipeline.model.family import Family
from pipeline.model.published import Files, fingerprint, published_folder, read_config, read_weights
from pipeline.model.weights import (
    Taken,
    model_settings,
    pretrained_parts,
    published_config,
    published_names,
    require_sizes,
    take,
    to_published,
    vocabulary_size,
    words_name,
)
from pipeline.objectives.replaced import GENERATOR, GENERATOR_PART
from pipeline.objectives.table import Pretraining
from pipeline.reporting import Report
from pipeline.text.extension import pieces_of_new_words
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.checkpoint import CONFIG, WEIGHTS, read_tensors

POOLER = "encoder.pooler."
"""Prefix of our names of the pooler's parameters."""
FREE = ("hidden_dropout", "attention_dropout", "initializer_deviation")
"""Settings in config.json that training may override."""
BROUGHT = ("positions",)
"""Settings that follow from the family and the vocabulary."""
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
    generator: Model | None = None
    """Settings of its generator, where the run wants one and the model has it."""


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Files of a published model, and its settings."""

    folder: Path
    files: Files
    model: Model


@contextmanager
def _sources(location: str, used: tuple[str, ...]) -> Generator[dict[str, _Source]]:
    """Yield the model under "", and its generator by its folder's name where that is used and exists."""
    with ExitStack() as stack:

        def source(location: str) -> _Source:
            folder, files = stack.enter_context(published_folder(location))
            config = errors_with_location(location, read_config, folder, files)
            return _Source(folder=folder, files=files, model=errors_with_location(location, model_settings, config))

        sources = {"": source(location)}
        if GENERATOR_PART in used and GENERATOR in storage.children(location):
            sources[GENERATOR] = source(storage.join(location, GENERATOR))
        yield sources


def _fingerprint_of(location: str, sources: dict[str, _Source]) -> str:
    """Return the SHA-256 of the config and weights of all sources."""
    each = [errors_with_location(location, fingerprint, part.folder, part.files) for part in sources.values()]
    return each[0] if len(each) == 1 else hashlib.sha256("".join(each).encode()).hexdigest()


def read_initial(
    location: str,
    vocabulary: VocabularySettings,
    output: str,
    report: Report,
    *,
    setting: str = "init",
    used: tuple[str, ...] = ("",),
) -> Initial:
    """Read a published model and copy it into the output folder, unless it is there.

    Reports which heads it lacks among those whose names, ours, begin with one of `used`. `setting` names the model in
    messages. Raises CheckpointError, and ConfigError for a vocabulary that contradicts it, in one line.
    """
    try:
        with _sources(location, used) as sources:
            chosen = replace(vocabulary, path=vocabulary.path or location)
            entries = given_vocabulary(chosen)
            assert entries is not None  # since its path is set
            initial = Initial(
                folder=storage.join(
                    output,
                    "initial",
                    (digest := _fingerprint_of(location, sources))[:16],
                ),
                fingerprint=digest,
                model=sources[""].model,
                vocabulary=entries,
                generator=sources[GENERATOR].model if GENERATOR in sources else None,
            )
            with locked_name(initial.folder, wait=True):  # two runs may want the same one at once
                if storage.damage(initial.folder):
                    errors_with_location(location, _publish_initial, initial, location, sources)
        about = storage.read_json(storage.join(initial.folder, storage.MANIFEST))
        require_fitting_vocabulary(location, str(chosen.path), about["vocabulary_size"], entries)
        _require_fitting_padding(location, str(chosen.path), initial.model, entries)
    except CheckpointError as error:
        raise CheckpointError(f"{setting} {error}") from error
    report(f"{setting}: {_description(location, about, initial, used)}")
    return initial


def errors_with_location(location: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of `read`; its errors are prefixed with the model's location."""
    try:
        return read(*arguments)
    except PipelineError as error:
        raise CheckpointError(f"{location}: {error}") from error


def _publish_initial(initial: Initial, location: str, sources: dict[str, _Source]) -> None:
    """Publish the usable part of a checkpoint in our folder, in float32.

    Raises CheckpointError where it cannot be used.
    """
    main = sources[""]
    taken, rows, padded = load_usable(main.model, initial.vocabulary.size, main.folder, main.files)
    about = {
        "source": location,
        "fingerprint": initial.fingerprint,
        "vocabulary_size": rows,
        "missing": taken.missing,
        "left_out": sorted(taken.surplus),
        "padding": padded,
    }
    with scratch_folder("initial") as temporary:
        _write_model(temporary, taken, main.model, rows, initial.vocabulary)
        if GENERATOR in sources:
            part = sources[GENERATOR]
            its, own_rows, _ = load_usable(part.model, initial.vocabulary.size, part.folder, part.files)
            _require_shared_embeddings(taken, its)
            _write_model(temporary / GENERATOR, its, part.model, own_rows, initial.vocabulary)
        storage.publish(temporary, initial.folder, about)


def _write_model(folder: Path, taken: Taken, model: Model, rows: int, vocabulary: Vocabulary) -> None:
    """Write weights and config in the published format."""
    folder.mkdir(exist_ok=True)
    save_file(to_published(taken.state, family_of(model)), folder / WEIGHTS, metadata={"format": "pt"})
    config = published_config(model, rows, vocabulary.pad_id)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _require_shared_embeddings(taken: Taken, its: Taken) -> None:
    """Raise CheckpointError for a generator whose embeddings are not the model's own: training shares them."""
    for name in (name for name in taken.state if name.startswith("encoder.embeddings.")):
        if name not in its.state or not torch.equal(taken.state[name], its.state[name]):
            raise CheckpointError(f"the {GENERATOR}'s {name} differs from the model's own, and training shares them")


def load_usable(model: Model, entries: int, folder: Path, files: Files) -> tuple[Taken, int, int]:
    """Return a checkpoint's usable tensors in float32, its rows of word embeddings, and its padding rows.

    `entries` is the size of the vocabulary. Raises CheckpointError where it cannot be used.
    """
    tensors = {
        name: tensor.float() for name, tensor in read_weights(folder, files).items() if tensor.is_floating_point()
    }
    family = family_of(model)
    if not (rows := vocabulary_size(tensors, family)):
        raise CheckpointError(
            f"tensor {words_name(family)} is missing: without word embeddings there is no {family.title} to start from"
        )
    require_sizes(model, tensors)
    taken = take(tensors, pretrained_parts(model, rows).state_dict(), family)
    _require_usable(taken, family)
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


def _require_usable(taken: Taken, family: Family) -> None:
    """Raise CheckpointError for tensors that are missing beyond whole heads, unexpected, or not finite."""
    there = {published for name in taken.state for published in published_names(name, family)}
    replaced = tuple(head for head in family.heads if not any(name.startswith(head) for name in there))
    if missing := [name for name in taken.missing if not name.startswith(replaced)]:
        raise CheckpointError(
            f"{tensors_named(missing)} missing: only whole heads may be "
            f"({', '.join(head.rstrip('.') for head in family.heads)})"
        )
    if surplus := [name for name in taken.surplus if not name.startswith(family.other_heads)]:
        raise CheckpointError(
            f"{tensors_named(surplus)} unexpected: {family.article} {family.title} of the layers and heads that "
            "config.json says has none of that name"
        )
    if broken := [name for name, tensor in to_published(taken.state, family).items() if not _is_finite(tensor)]:
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


def _require_fitting_padding(location: str, path: str, model: Model, vocabulary: Vocabulary) -> None:
    """Raise CheckpointError where positions start after another entry than the vocabulary's padding."""
    if model.for_padding(vocabulary.pad_id) != model:
        raise CheckpointError(
            f"{location}: config.json: pad_token_id is {model.positions.first - 1}, after which positions start, and "
            f"{vocabulary.specials[0]} in the vocabulary in {path} is entry {vocabulary.pad_id}: set vocabulary.path "
            "to the one that it was trained with"
        )


def _description(location: str, about: dict[str, Any], initial: Initial, used: tuple[str, ...]) -> str:
    """Describe on one line what was taken from a model and what was not."""
    family = family_of(initial.model)
    wanted = {
        published
        for name in pretrained_parts(initial.model, 1).state_dict()
        if name.startswith(used)
        for published in published_names(name, family)
    }
    lacking = wanted & set(about["missing"])
    missing = [head.rstrip(".") for head in family.heads if any(name.startswith(head) for name in lacking)]
    if GENERATOR_PART in used and initial.generator is None:
        missing.append(GENERATOR)
    its = " and its generator" if initial.generator else ""
    parts = [f"weights of {location}{its}, {about['vocabulary_size']:,} word embeddings"]
    parts += [f"{' and '.join(missing)} not in it and initialised at random"] * bool(missing)
    parts += [f"{about['padding']} rows that only fill them up left out"] * bool(about["padding"])
    return "; ".join(parts + [f"{', '.join(about['left_out'])} left out"] * bool(about["left_out"]))


def agreed_model(chosen: Model, initial: Initial, location: str) -> Model:
    """Return the settings of config.json, with dropout and initializer deviation overridden where set.

    Raises ConfigError with both values for another setting that differs from both the default and config.json.
    """
    names, values = {"family": "model_type"} | dict(family_of(initial.model).config), {}
    for name in sorted(vars(chosen), key=lambda name: name != "family"):
        mine, theirs, field = getattr(chosen, name), getattr(initial.model, name), names.get(name, name)
        if name in BROUGHT:
            values[name] = theirs
            continue
        said = mine != getattr(Model(), name)
        if said and mine != theirs and name not in FREE:
            raise ConfigError(
                f"model.{name} ({mine}) differs from {field} ({theirs}) in the config.json of init {location}: "
                "leave it out (preset continue sets none), or choose another init"
            )
        values[name] = mine if said else theirs
    return replace(chosen, **values)


def load_initial(initial: Initial, module: Pretraining) -> None:
    """Load the published models' weights into a module on the CPU; parts that they lack stay as they are."""
    for model in module.models():
        if model.folder == GENERATOR and initial.generator is None:
            continue
        tensors = read_tensors(storage.join(initial.folder, model.path(WEIGHTS)))
        taken = take(tensors, model.own(module.state_dict()), family_of(model.settings))
        module.load_state_dict(model.in_module(taken.state), strict=False)


@torch.no_grad()
def set_word_embeddings(module: Pretraining, words: Tensor) -> None:
    """Set a model's word embeddings (V, width); rows that are zero keep their own values."""
    table = module.encoder.embeddings.words.weight
    words = words.to(table)
    table.copy_(torch.where(words.any(1, keepdim=True), words, table))


def extended_state(state: dict[str, Tensor], vocabulary: Vocabulary, longer: Vocabulary) -> dict[str, Tensor]:
    """Return the state of a pretraining module for an extended vocabulary: new words are the mean of their pieces."""
    rows = pieces_of_new_words(vocabulary, longer)
    names = [name for name in state if name.endswith(VOCABULARY_ROWS)]
    return state | {name: _extend_rows(state[name], rows, longer.size) for name in names}


def _extend_rows(table: Tensor, rows: dict[int, list[int]], size: int) -> Tensor:
    """Return a table extended to `size` rows, each new one the mean of its pieces' rows."""
    longer = table.new_empty(size, *table.shape[1:])
    longer[: len(table)] = table
    for entry, pieces in rows.items():
        longer[entry] = table[pieces].mean(0)
    return longer
