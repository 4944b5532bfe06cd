"""Start a run from a published model: read and check the model, copy it once into the output folder, and load the copy
in every worker.

OUTPUT/initial/FINGERPRINT/
    model.safetensors config.json     the tensors used, under the published names; word embeddings with padding rows
    generator/                        the same two files of ELECTRA's generator, if the run uses one
    manifest.json                     the source, and the names of missing and unused tensors
"""

import hashlib
import json
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.config.data import VocabularySettings
from pipeline.config.model import Model
from pipeline.config.model_parts import LearnedPositions
from pipeline.config.needs import TEACHERS_VOCABULARY
from pipeline.config.objective import Objective
from pipeline.corpus.given_vocabulary import given_vocabulary
from pipeline.errors import CheckpointError, ConfigError
from pipeline.files import storage
from pipeline.files.encoder_folder import lowercases_first
from pipeline.files.local_files import scratch_folder
from pipeline.files.locks import locked_name
from pipeline.model.families.table import family_of
from pipeline.model.weights import (
    Taken,
    pretrained_parts,
    published_config,
    published_names,
    to_published,
)
from pipeline.objectives.replaced import GENERATOR_PART
from pipeline.objectives.table import Pretraining
from pipeline.reporting import Report
from pipeline.saved.checkpoints import CONFIG, GENERATOR, WEIGHTS
from pipeline.saved.model import SavedModel, errors_of, open_saved
from pipeline.saved.tensors import write_tensors
from pipeline.saved.weights import VOCABULARY_ROWS, Usable, padding_rows, read_usable, require_fitting_vocabulary
from pipeline.text.extension import pad_vocabulary, pieces_of_new_words
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.longer import longer_model, longer_weights

POOLER = "encoder.pooler."
"""Prefix of the names of the pooler's parameters in our modules."""
FREE = ("hidden_dropout", "attention_dropout", "initializer_deviation")
"""Model settings of a run whose values may differ from those in config.json."""


@dataclass(frozen=True, kw_only=True)
class Initial:
    """A published model in the output folder, with its vocabulary."""

    folder: str
    fingerprint: str
    """SHA-256 of the published config and weight files."""
    model: Model
    vocabulary: Vocabulary
    generator: Model | None = None
    """Settings of the model's generator; None if the run uses no generator or the model has none."""
    missing: tuple[str, ...] = ()
    """Published names of the tensors that the model's files lack."""


@contextmanager
def _opened(location: str, used: tuple[str, ...]) -> Generator[tuple[SavedModel, SavedModel | None]]:
    """Yield a model, and its generator, with their files in local folders.

    The generator is None if `used` does not name it or the model has none.
    """
    with ExitStack() as stack:
        saved = open_saved(location)
        generator = saved.generator if GENERATOR_PART in used else None
        yield stack.enter_context(saved.fetched()), generator and stack.enter_context(generator.fetched())


def _digest_of(saved: SavedModel, generator: SavedModel | None) -> str:
    """Return the SHA-256 of the config and weights of a model and its generator, in hexadecimal."""
    if generator is None:
        return saved.digest()
    return hashlib.sha256(f"{saved.digest()}{generator.digest()}".encode()).hexdigest()


def read_initial(
    location: str,
    vocabulary: VocabularySettings,
    output: str,
    report: Report,
    *,
    setting: str = "init",
    used: tuple[str, ...] = ("",),
    shares_embeddings: bool = True,
    keeps_padding: bool = False,
) -> Initial:
    """Read a published model, and copy it into the output folder unless an intact copy exists.

    The run uses the parameters whose names (in our modules) begin with a prefix in `used`. If the model lacks a head
    with such parameters, the head is reported. `setting` is the setting that holds `location`, for messages.
    `shares_embeddings` tells whether a model and its generator must have the same embeddings; `keeps_padding`, whether
    rows that only fill up the word embeddings become [unused] entries of the vocabulary or are left out. Raises
    CheckpointError for a model that cannot be used or does not fit the vocabulary, and ConfigError for vocabulary
    settings that contradict the files.
    """
    with errors_of(setting):
        with _opened(location, used) as (saved, generator):
            model, its = saved.settings, generator.settings if generator is not None else None
            chosen = replace(vocabulary, path=vocabulary.path or location)
            entries = given_vocabulary(chosen)
            assert entries is not None  # because chosen.path is set
            initial = Initial(
                folder=storage.join(output, "initial", (digest := _digest_of(saved, generator))[:16]),
                fingerprint=digest,
                model=model,
                vocabulary=entries,
                generator=its,
            )
            with locked_name(initial.folder, wait=True):  # two runs may copy the same model at once
                if storage.damage(initial.folder):
                    _publish_initial(initial, saved, generator)
        about = storage.read_json(storage.join(initial.folder, storage.MANIFEST))
        rows = about["vocabulary_size"]
        # No text gives the ids of surplus rows if the vocabulary is the model's own (multilingual E5 has 35 of them).
        surplus = max(0, rows - entries.size)
        padding = surplus if chosen.path == location else padding_rows(rows, entries.size)
        if padding and keeps_padding:
            entries = pad_vocabulary(entries, rows)
        elif padding:
            rows = entries.size
        about["padding"] = padding or about.get("padding", 0)  # copies of earlier versions say how many they left out
        about["padding_kept"] = bool(padding and keeps_padding)
        initial = replace(initial, vocabulary=entries, missing=tuple(about["missing"]))
        require_fitting_vocabulary(location, str(chosen.path), rows, entries)
        _require_fitting_padding(location, str(chosen.path), initial.model, entries)
        _require_shared_embeddings(location, about.get("unshared") if shares_embeddings else None)
    report(f"{setting}: {_description(location, about, initial, used)}")
    if not entries.lowercase and lowercases_first(location):
        report(
            f"warning: {setting} ({location}) has do_lower_case true before a cased vocabulary, which training does "
            "not follow: give texts in lower case"
        )
    return initial


def _publish_initial(initial: Initial, saved: SavedModel, generator: SavedModel | None) -> None:
    """Publish a model's usable tensors, in float32, in the folder of `initial`.

    Raises CheckpointError if the model cannot be used.
    """
    usable = read_usable(saved, None)
    about = {
        "source": saved.location,
        "fingerprint": initial.fingerprint,
        "vocabulary_size": usable.rows,
        "missing": usable.taken.missing,
        "left_out": sorted(usable.taken.surplus),
        "unshared": None,
    }
    with scratch_folder("initial") as temporary:
        _write_model(temporary, usable, saved.settings, initial.vocabulary)
        if generator is not None:
            its = read_usable(generator, None)
            about["unshared"] = _unshared_embeddings(usable.taken, its.taken)
            _write_model(temporary / GENERATOR, its, generator.settings, initial.vocabulary)
        storage.publish(temporary, initial.folder, about)


def _write_model(folder: Path, usable: Usable, model: Model, vocabulary: Vocabulary) -> None:
    """Write weights and config in the published format."""
    folder.mkdir(exist_ok=True)
    write_tensors(folder / WEIGHTS, to_published(usable.taken.state, family_of(model)), {"format": "pt"})
    config = published_config(model, usable.rows, vocabulary.pad_id, sep_id=vocabulary.sep_id)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _unshared_embeddings(taken: Taken, generator: Taken) -> str | None:
    """Return the name of an embedding tensor in which the generator differs from the model; None if there is none."""
    for name in (name for name in taken.state if name.startswith("encoder.embeddings.")):
        if name not in generator.state or not torch.equal(taken.state[name], generator.state[name]):
            return name
    return None


def _require_shared_embeddings(location: str, unshared: str | None) -> None:
    """Raise CheckpointError if the generator has an embedding tensor of its own, because training shares it."""
    if unshared is not None:
        raise CheckpointError(
            f"{location}: tensor {unshared} of the {GENERATOR} differs from the model's, but training shares it "
            "between both: set objective.embedding_sharing gradient-disentangled"
        )


def _require_fitting_padding(location: str, path: str, model: Model, vocabulary: Vocabulary) -> None:
    """Raise CheckpointError if the index of the model's first position does not fit the vocabulary's padding id."""
    if model.for_padding(vocabulary.pad_id) != model:
        raise CheckpointError(
            f"{location}: config.json: pad_token_id is {model.first_position - 1} (positions start after it), but "
            f"{vocabulary.specials[0]} is entry {vocabulary.pad_id} of the vocabulary in {path}: set vocabulary.path "
            "to the vocabulary that the model was trained with"
        )


def _description(location: str, about: dict[str, Any], initial: Initial, used: tuple[str, ...]) -> str:
    """Return one line: the model that the weights come from, its missing heads, and the tensors that were left out."""
    missing = missing_heads(initial, used)
    if GENERATOR_PART in used and initial.generator is None:
        missing.append(GENERATOR)
    generator = " and its generator" if initial.generator else ""
    parts = [f"weights of {location}{generator}, {initial.vocabulary.size:,} word embeddings"]
    parts += [random_heads(missing)] * bool(missing)
    kept = "kept as [unused] entries" if about["padding_kept"] else "left out"
    parts += [f"{about['padding']} padding rows of the word embeddings {kept}"] * bool(about["padding"])
    return "; ".join(parts + [f"{', '.join(about['left_out'])} left out"] * bool(about["left_out"]))


def missing_heads(initial: Initial, used: tuple[str, ...]) -> list[str]:
    """Return the published names of the heads that a model's files lack and that have a parameter in `used`.

    `used` holds prefixes of the names in our modules.
    """
    family = family_of(initial.model)
    wanted = {
        published
        for name in pretrained_parts(initial.model, 1).state_dict()
        if name.startswith(used)
        for published in published_names(name, family)
    }
    lacking = wanted & set(initial.missing)
    return [head.rstrip(".") for head in family.heads if any(name.startswith(head) for name in lacking)]


def random_heads(missing: Sequence[str]) -> str:
    """Return the text that names missing heads."""
    heads = " and ".join(filter(None, (", ".join(missing[:-1]), *missing[-1:])))
    return f"{heads} not in the model, so initialised at random"


def agreed_model(chosen: Model, initial: Initial, location: str) -> Model:
    """Return the settings of config.json, with dropout and initializer deviation replaced where `chosen` sets them.

    A setting counts as set if it differs from its default. A model may be continued with more positions and by another
    family as `longer_model` says. Raises ConfigError, naming both values, if another setting
    is set and differs from config.json.
    """
    names, values = {"family": "model_type"} | dict(family_of(initial.model).config), {}
    longer = longer_model(chosen, initial.model)
    for name in sorted(vars(chosen), key=lambda name: name != "family"):
        mine, theirs, field = getattr(chosen, name), getattr(longer, name), names.get(name, name)
        if isinstance(mine, LearnedPositions) and isinstance(theirs, LearnedPositions):
            mine = theirs  # the first position follows from the family and the vocabulary
        is_set = mine != getattr(Model(), name)
        if is_set and mine != theirs and name not in FREE:
            raise ConfigError(
                f"model.{name} ({mine}) differs from {field} ({theirs}) in the config.json of init {location}: "
                f"leave model.{name} out (preset continue sets no model settings), or choose another init"
            )
        values[name] = mine if is_set else theirs
    return replace(chosen, **values)


def pads_vocabulary(objective: Objective) -> bool:
    """Return whether a run keeps the padding rows of its initial model: not if a teacher has the same vocabulary."""
    return TEACHERS_VOCABULARY not in objective.needs


def load_initial(initial: Initial, module: Pretraining) -> None:
    """Load the weights in the folder of `initial` into a module on the CPU; other parameters do not change.

    If the module has more positions, or a family that continues the initial model's, weights are copied as
    `longer_weights` says.
    """
    saved = open_saved(initial.folder, verify=False)  # verified when it was read
    state: dict[str, Tensor] = module.state_dict()
    for model in module.models():
        given = saved.generator if model.folder == GENERATOR else saved
        if given is not None:
            weights = longer_weights(given.tensors(), model.own(state), given.settings, model.settings)
            state |= model.in_module(weights)
    for model in module.models():
        state = model.without_added(state)
    module.load_state_dict(state)


def extended_state(state: dict[str, Tensor], vocabulary: Vocabulary, longer: Vocabulary) -> dict[str, Tensor]:
    """Return the state of a pretraining module for the extended vocabulary `longer`.

    The row of a new word is the mean of the rows of its pieces in `vocabulary`.
    """
    rows = pieces_of_new_words(vocabulary, longer)
    names = [name for name in state if name.endswith(VOCABULARY_ROWS)]
    return state | {name: _extend_rows(state[name], rows, longer.size) for name in names}


def _extend_rows(table: Tensor, rows: dict[int, list[int]], size: int) -> Tensor:
    """Return a table extended to `size` rows.

    `rows` maps the index of each new row to the indices of old rows; the new row is the mean of these old rows.
    """
    longer = table.new_empty(size, *table.shape[1:])
    longer[: len(table)] = table
    for entry, pieces in rows.items():
        longer[entry] = table[pieces].mean(0)
    return longer
