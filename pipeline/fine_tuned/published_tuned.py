"""Load a fine-tuned model that transformers saved, from a folder, URL or hf://OWNER/NAME.

The model's config.json names its head and labels.
"""

import hashlib
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.config.task_kind import Kind
from pipeline.errors import CheckpointError, listed, shown
from pipeline.files import storage
from pipeline.fine_tuned.published import PUBLISHED
from pipeline.fine_tuned.tuned import About, TunedModel
from pipeline.model.families.table import family_of
from pipeline.model.weights import (
    require_sizes,
    shapes_of,
    take,
    to_published,
    uninitialized,
    vocabulary_size,
    words_name,
)
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.saved.checkpoints import CONFIG
from pipeline.saved.model import SavedModel, head_of
from pipeline.saved.task_heads import is_task_head, task_heads
from pipeline.saved.tensors import errors_with_location
from pipeline.saved.weights import tensors_named
from pipeline.tasks.labels import default_labels
from pipeline.tasks.prepared import resolved_cutting
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_files import tokenizer_config

OF_OTHERS = [kind for kind, published in PUBLISHED.items() if published.metrics]
"""Kinds of task of models that others publish."""
LEAST_LENGTH = 8
"""A model_max_length in tokenizer_config.json below this number of tokens is ignored."""
DIGEST = "digest"
"""Key in the lineage of models published by others: digest of the model's files and vocabulary."""


def of_published(saved: SavedModel) -> TunedModel:
    """Load a model published by others, in float32.

    Raises CheckpointError if its head is not supported, and PipelineError if its files cannot be used.
    """
    location, config = saved.location, saved.config
    head, model = errors_with_location(location, _require_known_head, config), saved.settings
    with saved.fetched() as local:
        digest, weights = local.digest(), local.tensors()
    tensors = {name: tensor.float() for name, tensor in weights.items() if tensor.is_floating_point()}
    vocabulary = saved.vocabulary
    errors_with_location(location, _require_entries, vocabulary_size(shapes_of(tensors), family_of(model)), vocabulary)
    errors_with_location(location, require_sizes, model, tensors)
    task = errors_with_location(location, _task_of, location, head, config, tensors, model)
    about = About(
        task=task,
        cutting=_cutting_of(location, task, model),
        pooling=errors_with_location(location, _pooling_of, config, model),
        thresholds={},
        lineage={"checkpoint": location, DIGEST: _digest_of(digest, vocabulary)},
    )
    return errors_with_location(location, _with_weights, about, model, vocabulary, tensors)


def _require_entries(rows: int, vocabulary: Vocabulary) -> None:
    """Raise CheckpointError if an entry of the model's own vocabulary has no word embedding; more rows are unused."""
    if rows < vocabulary.size:
        raise CheckpointError(
            f"the weights have {rows:,} word embeddings, but the vocabulary has {vocabulary.size:,} entries: "
            "put the vocabulary that the model was trained with into its folder"
        )


def _require_known_head(config: dict[str, Any]) -> str:
    """Return the head that a config names. Raises CheckpointError if this head answers no task."""
    head = head_of(config)
    if head is None or not is_task_head(head):
        named = f"architectures is {shown(head)}" if head else "architectures is missing"
        raise CheckpointError(
            f"{CONFIG}: {named}, so the model has no head for a task: give a model with one of "
            f"{listed(task_heads())}, or fine-tune this one first (jobs/finetune.py)"
        )
    return head


def _task_of(location: str, head: str, config: dict[str, Any], tensors: dict[str, Tensor], model: Model) -> Task:
    """Return the task of a head, with the labels of config.json.

    Raises CheckpointError if the labels or the kind of task do not fit the head's weights.
    """
    name = _output_weight(head, model)
    if name not in tensors or tensors[name].dim() != 2:
        raise CheckpointError(f"tensor {name} is missing or is not a matrix: {head} needs it")
    outputs = len(tensors[name])
    kind = _kind_of(head, config, outputs, model)
    published = PUBLISHED[kind]
    labels = _labels_of(config, outputs) if published.outputs is None else ()
    if (wanted := published.outputs or outputs) != outputs:
        raise CheckpointError(f"tensor {name} has {outputs} outputs, but a model for {kind} has {wanted}")
    return Task(
        name=location.rsplit("/", 1)[-1],
        kind=kind,
        labels=labels,
        metrics=published.metrics,
        maximum_length=min(published.most_tokens or model.maximum_positions, model.maximum_positions),
    )


def _output_weight(head: str, model: Model) -> str:
    """Return the published name of the weight matrix that computes a head's outputs."""
    family = family_of(model)
    kind = next((kind for kind in OF_OTHERS if family.architectures[PUBLISHED[kind].use] == head), None)
    if kind is None:
        raise CheckpointError(f"{CONFIG}: architectures is {head!r}, which is not a class of {family.title}")
    return f"{family.names[PUBLISHED[kind].head]}.weight"


def _kind_of(head: str, config: dict[str, Any], outputs: int, model: Model) -> Kind:
    """Return the kind of task that a head answers.

    For a head over whole texts, problem_type decides; without it, one output means regression, and several mean
    classification. Raises CheckpointError for an unknown problem_type.
    """
    kinds = [kind for kind in OF_OTHERS if family_of(model).architectures[PUBLISHED[kind].use] == head]
    if len(kinds) == 1:
        return kinds[0]
    problem = config.get("problem_type")
    if problem is None:
        return "regression" if outputs == 1 else "classification"
    kind_of_problem = next((kind for kind in kinds if PUBLISHED[kind].problem_type == problem), None)
    if kind_of_problem is None:
        known = listed([PUBLISHED[kind].problem_type for kind in kinds])
        raise CheckpointError(f"{CONFIG}: problem_type is {shown(problem)}, which is not one of {known}")
    return kind_of_problem


def _labels_of(config: dict[str, Any], outputs: int) -> tuple[str, ...]:
    """Return the labels in the order of their numbers; LABEL_0, LABEL_1, … if config.json has none, as in transformers.

    Raises CheckpointError if the labels do not fit the number of outputs, or if a label appears twice.
    """
    named = config.get("id2label")
    if not named:
        return default_labels(outputs)
    try:
        by_number = {int(number): str(label) for number, label in named.items()}
    except (AttributeError, ValueError) as error:
        raise CheckpointError(
            f"{CONFIG}: id2label is not an object of numbers and labels ({storage.first_line(error)})"
        ) from error
    if sorted(by_number) != list(range(outputs)):
        raise CheckpointError(
            f"{CONFIG}: id2label names {len(by_number)} labels, {listed(sorted(by_number))}, "
            f"but the head has {outputs} outputs, from 0 to {outputs - 1}"
        )
    labels = tuple(by_number[number] for number in range(outputs))
    label, times = Counter(labels).most_common(1)[0]
    if times > 1:
        raise CheckpointError(f"{CONFIG}: id2label names {shown(label)} {times} times: give each label its own name")
    return labels


def _cutting_of(location: str, task: Task, model: Model) -> Truncation:
    """Return the truncation settings; their maximum length is the smaller of the task's and the tokenizer's.

    Raises DataError if tokenizer_config.json cannot be read.
    """
    length = tokenizer_config(storage.join(location, "tokenizer_config.json")).get("model_max_length")
    limit = int(length) if isinstance(length, int | float) and length >= LEAST_LENGTH else model.maximum_positions
    return resolved_cutting(Truncation(maximum_length=min(limit, task.maximum_length)), task, model.maximum_positions)


def _pooling_of(config: dict[str, Any], model: Model) -> str:
    """Return the pooling of a text classifier. Raises CheckpointError for a pooling that the family does not have."""
    family = family_of(model)
    field, poolings = family.pooling_field, family.poolings
    pooling = config.get(field, "cls") if field else "cls"
    if pooling not in poolings:
        raise CheckpointError(f"{CONFIG}: {field} is {pooling!r}, but only {listed(poolings)} can be loaded")
    return pooling


def _digest_of(files: str, vocabulary: Vocabulary) -> str:
    """Return the SHA-256 of a model's files and vocabulary, in hexadecimal; `files` is the digest of the files."""
    return hashlib.sha256(f"{files} {vocabulary.fingerprint}".encode()).hexdigest()


def _with_weights(about: About, model: Model, vocabulary: Vocabulary, tensors: dict[str, Tensor]) -> TunedModel:
    """Build the model, with one word embedding per entry of the vocabulary, load its weights and return it.

    Raises CheckpointError if a tensor is missing, is not finite, or does not fit config.json.
    """
    family = family_of(model)
    words, entries, outputs = words_name(family), vocabulary.size, len(about.task.labels)
    tensors = tensors | {words: tensors[words][:entries]}  # without the rows of padding
    module = uninitialized(
        lambda: OBJECTIVES[about.task.kind](model, entries, outputs, None, about.pooling, None).eval()
    )
    taken = take(tensors, module.state_dict(), family)
    if taken.missing:
        raise CheckpointError(f"{tensors_named(list(taken.missing))} missing")
    unused = (family.pooler, *family.other_heads)
    if surplus := [name for name in taken.surplus if name.startswith(family.encoder) and not name.startswith(unused)]:
        raise CheckpointError(
            f"{tensors_named(surplus)} unexpected: the encoder that config.json describes has no tensor of that name"
        )
    if broken := [
        name for name, tensor in to_published(taken.state, family).items() if not torch.isfinite(tensor).all()
    ]:
        raise CheckpointError(f"{tensors_named(broken)} not finite: NaN or infinity among the weights")
    module.load_state_dict(taken.state, strict=False)
    return TunedModel(about=about, model=model, vocabulary=vocabulary, module=module)
