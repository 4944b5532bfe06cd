"""A fine-tuned model on disk, in the published format, with its task's data.

FOLDER/
    model.safetensors config.json vocab.txt      for transformers
    tokenizer.json tokenizer_config.json         for transformers
    task.json                                    kind, labels, truncation, pooling, thresholds
    adapters.safetensors                         bottleneck adapter, if the model has one; not known to transformers
    README.md                                    model card
    modules.json sentence_bert_config.json       for sentence-transformers, if it can load the model
    1_Pooling/config.json                        for sentence-transformers, if it can load the model
    manifest.json                                size and SHA-256 of every file, written last
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from pipeline.config.adapters import Adapter, Bottleneck, NoAdapter
from pipeline.config.cutting import Truncation
from pipeline.config.flat import unflatten
from pipeline.config.model import Model
from pipeline.errors import CheckpointError, ConfigError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.fine_tuned.about import About, TunedModel
from pipeline.fine_tuned.published import PUBLISHED
from pipeline.fine_tuned.record import task_of
from pipeline.model.adapters import adapter_state, add_adapter, load_adapter_state, merge, plain_state
from pipeline.model.families.table import family_of
from pipeline.model.weights import Taken, published_config, require_sizes, take, to_published, uninitialized
from pipeline.objectives.tasks import OBJECTIVES, TASK_MODULES, TaskObjective
from pipeline.saved.checkpoints import CONFIG, TASK, WEIGHTS
from pipeline.saved.model import SavedModel, unusable_record
from pipeline.saved.naming import ADDED
from pipeline.saved.recipe import VectorRecipe
from pipeline.saved.tensors import errors_with_location, read_tensors, write_tensors
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import outputs_of
from pipeline.tasks.tag_schemes import scheme_of
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

ADAPTERS = "adapters.safetensors"
CUTTING_BEFORE = {name.removeprefix("cutting."): value for name, value in ADDED.items() if name.startswith("cutting.")}
"""Settings of Truncation that task.json of earlier versions lacks -> the value that their models had."""


def save_tuned(
    target: str,
    module: TaskObjective,
    about: About,
    model: Model,
    vocabulary: Vocabulary,
    adapter: Adapter = NoAdapter(),  # noqa: B008  (frozen, so sharing it is safe)
    beside: Mapping[str, str] | None = None,
) -> None:
    """Publish a module with its task's data.

    First, low-rank adapters and the scaling of regression labels are merged into the module's weights. `beside` maps
    the names of further files, such as a model card, to their content.
    """
    merge(module)
    TASK_MODULES[about.task.kind].finish(module)
    carried = adapter_state(module)
    weights = to_published(plain_state(module), family_of(model))
    with scratch_folder("tuned") as folder:
        write_tensors(folder / WEIGHTS, weights, {"format": "pt"})
        if carried:
            write_tensors(folder / ADAPTERS, carried)
        (folder / CONFIG).write_text(json.dumps(_config_of(about, model, vocabulary), indent=2) + "\n")
        (folder / TASK).write_text(json.dumps(_task_file(about, adapter), indent=1) + "\n")
        longest = about.cutting.maximum_length or model.maximum_positions
        save_vocabulary(vocabulary, folder, longest, model.segments)
        for name, content in (beside or {}).items():
            storage.write_bytes(str(folder / name), content.encode())
        storage.publish(folder, target, {"task": about.task.name})


def _config_of(about: About, model: Model, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the contents of config.json, with the names of the labels and the pooling of families that state it."""
    task, family, published = about.task, family_of(model), PUBLISHED[about.task.kind]
    labels = published.labels(task, about.cutting)
    named = (
        {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}
        if labels
        else {}
    )
    problem = {"problem_type": published.problem_type} if published.problem_type else {}
    pooling = {family.pooling_field: about.pooling} if family.pooling_field and about.pooling in family.poolings else {}
    config = published_config(model, vocabulary.size, vocabulary.pad_id, published.use, vocabulary.sep_id)
    return config | named | problem | pooling | ({"crf": True} if about.crf else {})


def _task_file(about: About, adapter: Adapter) -> dict[str, Any]:
    """Return the contents of task.json."""
    kept = {name: value for name, value in asdict(about.task).items() if name != "splits"}
    if not about.task.typed_labels:
        del kept["typed_labels"]  # earlier versions, which do not know this field, can read the other models
    carried = asdict(adapter) if isinstance(adapter, Bottleneck) else None
    return {
        "task": kept,
        "cutting": asdict(about.cutting),
        "pooling": about.pooling,
        "crf": about.crf,
        "tuned": about.thresholds,
        "bottleneck": carried,
        "lineage": about.lineage,
    }


def of_record(saved: SavedModel) -> TunedModel:
    """Load a fine-tuned model of this package. Raises CheckpointError if its settings do not fit its tensors."""
    about, bottleneck = about_of(saved)
    model, vocabulary, tensors = saved.settings, saved.vocabulary, saved.tensors()
    errors_with_location(saved.location, require_sizes, model, tensors)
    outputs = outputs_of(about.task, about.cutting)
    module = uninitialized(
        lambda: OBJECTIVES[about.task.kind](model, vocabulary.size, outputs, None, about.pooling, None).eval()
    )
    TASK_MODULES[about.task.kind].add_parts(module, about.task, about.cutting, about.crf, None)
    taken: Taken = errors_with_location(saved.location, take, tensors, module.state_dict(), family_of(model))
    if taken.missing:
        raise CheckpointError(f"{saved.location}: tensor {taken.missing[0]} is missing")
    if bottleneck is not None:
        adapters = read_tensors(storage.join(saved.location, ADAPTERS))
        if bottleneck.width > max((size for tensor in adapters.values() for size in tensor.shape), default=0):
            raise CheckpointError(
                f"{saved.location}: {TASK} has a bottleneck of width {bottleneck.width}, "
                f"but no tensor of {ADAPTERS} is that large"
            )
        add_adapter(module, bottleneck, torch.Generator().manual_seed(0))
        load_adapter_state(module, adapters)
    module.load_state_dict(taken.state, strict=False)
    return TunedModel(about=about, model=model, vocabulary=vocabulary, module=module, bottleneck=bottleneck)


def about_of(saved: SavedModel) -> tuple[About, Bottleneck | None]:
    """Return the description in a model's task.json, and the settings of the model's bottleneck adapter.

    The settings are None if the model has no bottleneck adapter. Raises CheckpointError if the file cannot be used.
    """
    content = saved.record
    try:
        task = task_of(content)
        if task.kind not in KINDS or KINDS[task.kind].saved_as is not None:
            raise ValueError(f"kind is {task.kind!r}")
        about = About(
            task=task,
            cutting=unflatten(Truncation, CUTTING_BEFORE | content["cutting"]),
            pooling=content["pooling"],
            thresholds=content["tuned"],
            lineage=content["lineage"],
            crf=content.get("crf", False),
        )
        if task.typed_labels and not all(isinstance(json.loads(label), int | float) for label in task.labels):
            raise ValueError("typed_labels is true, but the labels are no numbers or truth values")
        if about.crf and (TASK_MODULES[task.kind].chain is None or scheme_of(task.labels) is None):
            raise ValueError("crf is true, but the labels are no tags of the schemes IOB2 or BIOES")
        return about, Bottleneck(**content["bottleneck"]) if content["bottleneck"] else None
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise unusable_record(saved.location, error) from error


def trained_recipe(about: About) -> VectorRecipe:
    """Return the recipe of a fine-tuned model without modules.json, such as one with bottleneck adapters.

    For a kind that trains vectors, it is the recipe that was used in training. For other kinds, it is the default.
    """
    if not KINDS[about.task.kind].makes_vectors:
        return VectorRecipe()
    pooling = "cls" if about.pooling == "cls" else "mean"
    return VectorRecipe(pooling=pooling, maximum_length=about.cutting.maximum_length)


def has_vectors(about: About, plain: bool = True) -> bool:
    """Return whether the model was trained to make text vectors that other libraries can compute."""
    of_means = about.pooling == "mean" and PUBLISHED[about.task.kind].pools
    return plain and (of_means or KINDS[about.task.kind].makes_vectors)
