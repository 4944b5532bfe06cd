"""Load a fine-tuned model as transformers writes it, from a folder, URL or hf://OWNER/NAME; config.json names head and
labels.
"""

import hashlib
from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pipeline import storage
from pipeline.config.finetune import Cutting
from pipeline.config.model import Model
from pipeline.errors import CheckpointError, PipelineError, listed, shown
from pipeline.model.families.table import FAMILIES, family_of
from pipeline.model.published import (
    CONFIGS,
    MOST_CONFIG,
    fingerprint,
    json_object,
    published_folder,
    read_config,
    read_weights,
)
from pipeline.model.weights import model_settings, require_sizes, take, to_published, vocabulary_size
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.tasks.prepared import resolved_cutting
from pipeline.tasks.task import Kind, Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_files import tokenizer_config
from pipeline.text.vocabulary_loading import load_vocabulary_as_published
from pipeline.train.checkpoint import CONFIG
from pipeline.train.initial import errors_with_location, padding_rows, tensors_named
from pipeline.train.tuned import PROBLEMS, TASK, About, TunedModel, load_tuned

ANSWERS = ("classification", "tags", "spans")
"""Uses of Family.architectures whose heads can be asked."""
METRICS: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1"),
    "multilabel": ("micro_f1", "macro_f1", "subset_accuracy"),
    "regression": ("pearson", "spearman", "mean_absolute_error"),
    "tags": ("f1", "precision", "recall", "accuracy"),
    "spans": ("f1", "exact"),
}
QUESTION_LENGTH = 384
"""Tokens of a question with its context, as in transformers' scripts and pipeline; other texts use all positions."""
LEAST_LENGTH = 8
"""Minimum length limit in tokens."""
DIGEST = "digest"
"""Lineage key of published models only: digest of their files."""


def load_tuned_or_published(location: str) -> TunedModel:
    """Load a fine-tuned model, ours or published by others.

    Raises CheckpointError where it is none, damaged, or has an unsupported head.
    """
    return load_published(location) if is_published(location) else load_tuned(location)


def is_published(location: str) -> bool:
    """Return whether this is a model published by others: no task.json, and a supported head or no manifest of ours.

    Raises CheckpointError where its storage cannot be reached.
    """
    try:
        if storage.exists(storage.join(location, TASK)) or not any(
            storage.exists(storage.join(location, name)) for name in CONFIGS
        ):
            return False
        return not storage.exists(storage.join(location, storage.MANIFEST)) or is_task_head(head_named(location))
    except PipelineError:
        raise
    except Exception as error:  # file systems and web clients raise kinds of their own
        raise CheckpointError(f"checkpoint {location} cannot be read: {storage.first_line(error)}") from error


def head_named(location: str) -> str | None:
    """Return the head that a folder's config.json names; None without one."""
    path = storage.join(location, CONFIG)
    if not storage.exists(path):
        return None
    try:
        return _head_of(json_object(storage.read_at_most(path, MOST_CONFIG)))
    except ValueError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {storage.first_line(error)}") from error


def is_task_head(head: str | None) -> bool:
    """Return whether a published class answers a task."""
    return head in _task_heads()


def _task_heads() -> list[str]:
    """Return the published classes that answer a task, of all families."""
    return [family.architectures[use] for family in FAMILIES.values() for use in ANSWERS]


def _head_of(config: dict[str, Any]) -> str | None:
    """Return the first of a config's architectures; None without one."""
    named = config.get("architectures")
    first = named[0] if isinstance(named, list) and named else named
    return first if isinstance(first, str) else None


def load_published(location: str) -> TunedModel:
    """Load a model published by others, in float32.

    Raises CheckpointError for an unsupported head, and PipelineError for unusable files.
    """
    try:
        with published_folder(location) as (folder, files):
            config = errors_with_location(location, read_config, folder, files)
            head = errors_with_location(location, _require_known_head, config)
            model = errors_with_location(location, model_settings, config)
            digest = errors_with_location(location, fingerprint, folder, files)
            tensors = {
                name: tensor.float()
                for name, tensor in errors_with_location(location, read_weights, folder, files).items()
                if tensor.is_floating_point()
            }
        vocabulary = load_vocabulary_as_published(location)
        errors_with_location(location, _require_entries, vocabulary_size(tensors, family_of(model)), vocabulary)
        errors_with_location(location, require_sizes, model, tensors)
        task = errors_with_location(location, _task_of, location, head, config, tensors, model)
        about = About(
            task=task,
            cutting=_cutting_of(location, task, model),
            pooling="cls",
            tuned={},
            lineage={"checkpoint": location, DIGEST: _digest_of(digest, vocabulary)},
        )
        return errors_with_location(location, _with_weights, about, model, vocabulary, tensors)
    except CheckpointError as error:
        raise CheckpointError(f"checkpoint {error}") from error


def _require_entries(rows: int, vocabulary: Vocabulary) -> None:
    """Raise CheckpointError unless the vocabulary has an entry for each word embedding, padding rows excepted."""
    if rows != vocabulary.size and not padding_rows(rows, vocabulary.size):
        raise CheckpointError(
            f"the weights have {rows:,} word embeddings and the vocabulary has {vocabulary.size:,} entries: "
            "put the vocabulary there that it was trained with"
        )


def _require_known_head(config: dict[str, Any]) -> str:
    """Return the head that a config names. Raises CheckpointError for an unsupported one."""
    head = _head_of(config)
    if head is None or not is_task_head(head):
        named = f"architectures is {shown(head)}" if head else "architectures is missing"
        raise CheckpointError(
            f"{CONFIG}: {named}, a head that cannot be asked: give a model with one of {listed(_task_heads())}, "
            "or fine-tune this one first (jobs/finetune.py)"
        )
    return head


def _task_of(location: str, head: str, config: dict[str, Any], tensors: dict[str, Tensor], model: Model) -> Task:
    """Return the task of a head, with the labels of config.json.

    Raises CheckpointError where they do not fit the head's weights.
    """
    name = _output_weight(head, model)
    if name not in tensors or tensors[name].dim() != 2:
        raise CheckpointError(f"tensor {name} is missing or no matrix: {head} has one")
    outputs = len(tensors[name])
    kind = _kind_of(head, config, outputs, model)
    labels = _labels_of(config, outputs) if kind not in ("spans", "regression") else ()
    if (wanted := {"spans": 2, "regression": 1}.get(kind, outputs)) != outputs:
        raise CheckpointError(f"tensor {name} gives {outputs} numbers, and {kind} is answered by {wanted}")
    length = min(QUESTION_LENGTH, model.maximum_positions) if kind == "spans" else model.maximum_positions
    return Task(
        name=location.rsplit("/", 1)[-1], kind=kind, labels=labels, metrics=METRICS[kind], maximum_length=length
    )


def _output_weight(head: str, model: Model) -> str:
    """Return the published name of the matrix that gives a head's outputs."""
    family = family_of(model)
    parts = {"classification": "classification_head", "tags": "tag_head", "spans": "answer_head"}
    use = next((use for use in ANSWERS if family.architectures[use] == head), None)
    if use is None:
        raise CheckpointError(f"{CONFIG}: architectures is {head!r}, which is no class of {family.title}")
    return f"{family.names[parts[use]]}.weight"


def _kind_of(head: str, config: dict[str, Any], outputs: int, model: Model) -> Kind:
    """Return the kind of task: by problem_type for sequences, else regression for one output and classification for
    several.

    Raises CheckpointError for another problem_type.
    """
    if (kinds := [kind for kind in METRICS if family_of(model).architectures[kind] == head]) in (["tags"], ["spans"]):
        return kinds[0]
    problem = config.get("problem_type")
    if problem is None:
        return "regression" if outputs == 1 else "classification"
    kind_of_problem = next((kind for kind, name in PROBLEMS.items() if name == problem), None)
    if kind_of_problem is None:
        raise CheckpointError(
            f"{CONFIG}: problem_type is {shown(problem)}, which is none of {listed(list(PROBLEMS.values()))}"
        )
    return kind_of_problem


def _labels_of(config: dict[str, Any], outputs: int) -> tuple[str, ...]:
    """Return the labels by number; LABEL_0, LABEL_1, … where config.json names none, as in transformers.

    Raises CheckpointError for labels that do not fit.
    """
    named = config.get("id2label")
    if not named:
        return _default_labels(outputs)
    try:
        by_number = {int(number): str(label) for number, label in named.items()}
    except (AttributeError, ValueError) as error:
        raise CheckpointError(
            f"{CONFIG}: id2label is no object of numbers and labels ({storage.first_line(error)})"
        ) from error
    if sorted(by_number) != list(range(outputs)):
        raise CheckpointError(
            f"{CONFIG}: id2label names {len(by_number)} labels, {listed(sorted(by_number))}, "
            f"and the head gives {outputs}, from 0 to {outputs - 1}"
        )
    labels = tuple(by_number[number] for number in range(outputs))
    label, times = Counter(labels).most_common(1)[0]
    if times > 1:
        raise CheckpointError(f"{CONFIG}: id2label names {shown(label)} {times} times: give each label its own name")
    return labels


def _default_labels(outputs: int) -> tuple[str, ...]:
    """Return default labels, as in transformers."""
    return tuple(f"LABEL_{number}" for number in range(outputs))


def _cutting_of(location: str, task: Task, model: Model) -> Cutting:
    """Return the truncation settings: the model's positions, or the tokenizer's length where that is less.

    Raises DataError for an unreadable tokenizer_config.json.
    """
    said = tokenizer_config(storage.join(location, "tokenizer_config.json")).get("model_max_length")
    limit = int(said) if isinstance(said, int | float) and said >= LEAST_LENGTH else model.maximum_positions
    return resolved_cutting(Cutting(maximum_length=min(limit, task.maximum_length)), task, model.maximum_positions)


def _digest_of(files: str, vocabulary: Vocabulary) -> str:
    """Return the digest of a model's files and vocabulary, in hexadecimal."""
    return hashlib.sha256(f"{files} {vocabulary.fingerprint}".encode()).hexdigest()


def _with_weights(about: About, model: Model, vocabulary: Vocabulary, tensors: dict[str, Tensor]) -> TunedModel:
    """Return the model with its weights.

    Raises CheckpointError for tensors that are missing, not finite, or do not fit config.json.
    """
    family = family_of(model)
    rows, outputs = vocabulary_size(tensors, family), len(about.task.labels)
    module = OBJECTIVES[about.task.kind](
        model, rows, outputs, torch.Generator().manual_seed(0), about.pooling, None
    ).eval()
    taken = take(tensors, module.state_dict(), family)
    if taken.missing:
        raise CheckpointError(f"{tensors_named(list(taken.missing))} missing")
    unused = (family.pooler, *family.other_heads)
    if surplus := [name for name in taken.surplus if name.startswith(family.encoder) and not name.startswith(unused)]:
        raise CheckpointError(
            f"{tensors_named(surplus)} unexpected: the encoder that config.json describes has none of that name"
        )
    if broken := [
        name for name, tensor in to_published(taken.state, family).items() if not torch.isfinite(tensor).all()
    ]:
        raise CheckpointError(f"{tensors_named(broken)} not finite: NaN or infinity among the weights")
    module.load_state_dict(taken.state, strict=False)
    return TunedModel(about=about, model=model, vocabulary=vocabulary, module=module)


def with_number_labels(task: Task, labels: set[str]) -> Task:
    """Return the task with default labels replaced by 0, 1, … where the data to score has numbers."""
    numbers = tuple(str(number) for number in range(len(task.labels)))
    has_number_labels = labels & set(numbers) and not labels & set(task.labels)
    return replace(task, labels=numbers) if has_number_labels and task.labels == _default_labels(len(numbers)) else task
