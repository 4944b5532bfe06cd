"""Fine-tune on lists of texts and labels, in this process, with the training code of the job `finetune`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch

from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.placement import TrialPlacement
from pipeline.config.recipe import Recipe
from pipeline.config.task_kind import Kind
from pipeline.config.training import TaskAdamW
from pipeline.errors import ConfigError, DataError, shown
from pipeline.fine_tuned.tuned import About, TunedModel
from pipeline.finetune.facts import training_facts
from pipeline.finetune.problems import Problem, cut
from pipeline.finetune.trial import run_trial
from pipeline.finetune.trials import autocast_for, build, precision_of
from pipeline.model.encoder import Encoder
from pipeline.model.watching import each_batch
from pipeline.objectives.tasks import TASK_MODULES
from pipeline.on_ray.answering import AnswerProgress
from pipeline.reporting import Report
from pipeline.tasks.files import label_text, labels_text, own_task, require_labels
from pipeline.tasks.tables import texts_table
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial

NAME = "lists"
"""Name of the task; messages show it in place of a file name."""


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Training rows, and optional development rows."""

    texts: Sequence[str | tuple[str, str]]
    """One text or pair of texts per row."""
    labels: Sequence[Any]
    """One label per row; for multilabel, one list of labels per row."""
    dev: tuple[Sequence[str | tuple[str, str]], Sequence[Any]] | None
    """Texts and labels of the development rows. If it is None, the model is scored on the training rows."""


def fit_lists(
    encoder: Encoder,
    model: Model,
    vocabulary: Vocabulary,
    given: Lists,
    *,
    kind: Literal["classification", "multilabel", "regression"],
    epochs: int,
    rows_per_step: int,
    learning_rate: float | None,
    seed: int,
    device: torch.device,
    report: Report,
    checkpoint: str,
) -> TunedModel:
    """Return a model fine-tuned from a copy of the encoder.

    `model` has the encoder's settings. `learning_rate` is the peak, or None for the default at the encoder's width.
    `checkpoint` is the encoder's name in messages and in the lineage. Raises DataError for invalid rows, and
    ConfigError for invalid settings.
    """
    _require_usable(kind, encoder, checkpoint)
    config = Finetune(
        checkpoint=checkpoint,
        train=NAME,
        kind=kind,
        recipe=Recipe(epochs=epochs, rows_per_step=rows_per_step).for_dropout(model),
        optimizer=TaskAdamW(learning_rate=learning_rate),
        placement=TrialPlacement(device="cuda" if device.type == "cuda" else "cpu"),
    ).for_model(model)
    initial = Initial(folder="", fingerprint="", model=model, vocabulary=vocabulary)  # the encoder is in memory
    report(f"encoding {len(given.texts):,} texts")
    problem = _problem(config, given, kind, initial)
    for name, split in {"train": problem.train, **problem.splits}.items():
        report(", ".join([f"{name}: {len(split.items):,} rows", *split.notes]))
    module = build(config, problem, initial, seed, encoder).to(device)
    autocast = autocast_for(config.placement, model.width, device)
    task, metric = problem.task, problem.task.metrics[0]

    def after_epoch(epoch: int, scores: dict[str, dict[str, float]]) -> None:
        report(
            f"epoch {epoch} of {epochs}: "
            + ", ".join(f"{split} {metric} {metrics[metric]:.3f}" for split, metrics in scores.items())
        )

    report(f"training {epochs} epochs of {len(problem.train.items):,} rows on {device.type}")
    trained = AnswerProgress(report, epochs * problem.train.rows.num_rows, done="rows trained")
    with each_batch(module.encoder, lambda batch: trained.add(batch.sequences * module.training)):  # not those scored
        result = run_trial(
            config, task, problem.cutting, module, problem.train, problem.splits or {"train": problem.train},
            seed=seed, device=device, autocast=autocast, after_epoch=after_epoch,
        )  # fmt: skip
    TASK_MODULES[task.kind].finish(module)
    precision = precision_of(config.placement, model.width, device)
    lineage = {"precision": precision} | training_facts(config, problem, seed, result)
    about = About(
        task=task, cutting=problem.cutting, pooling=config.recipe.pooling, thresholds=result.thresholds, lineage=lineage
    )
    return TunedModel(about=about, model=model, vocabulary=vocabulary, module=module.eval())


def _require_usable(kind: str, encoder: Encoder, checkpoint: str) -> None:
    """Raise ConfigError for an unknown kind, and for an encoder with trainable bottleneck adapters."""
    if kind not in ("classification", "multilabel", "regression"):
        raise ConfigError(f"kind ({kind}) must be classification, multilabel or regression")
    if any(parameter.requires_grad for name, parameter in encoder.named_parameters() if "_adapter." in name):
        raise ConfigError(
            f"{checkpoint} has bottleneck adapters, which cannot be fine-tuned again: "
            f"fit the checkpoint from which {checkpoint} was fine-tuned"
        )


def _problem(config: Finetune, given: Lists, kind: Kind, initial: Initial) -> Problem:
    """Return the lists as a problem: a task, and its rows as token ids. Raises DataError for invalid rows."""
    values = [*_label_values(given.labels, kind), *(_label_values(given.dev[1], kind) if given.dev else ())]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    floats = numbers and any(isinstance(value, float) for value in values)  # then 1 and 1.0 are one label
    train = _table(NAME, given.texts, given.labels, kind, floats)
    task = own_task(NAME, train, kind)
    train = require_labels(task, NAME, train)
    typed = kind != "regression" and (numbers or all(isinstance(value, bool) for value in values))
    task = replace(task, paired=train["second"].null_count < train.num_rows, typed_labels=typed)
    dev = {"dev": require_labels(task, "dev", _table("dev", *given.dev, kind, floats))} if given.dev else {}
    return cut(task, config.cutting, {"train": train} | dev, initial)


def _label_values(labels: Sequence[Any], kind: Kind) -> list[Any]:
    """Return all labels of all rows, with NumPy's scalars as Python's."""
    rows = labels if kind == "multilabel" else [labels]
    return [_plain(label) for row in rows if isinstance(row, Iterable) for label in row]


def _table(name: str, texts: Sequence[Any], labels: Sequence[Any], kind: str, floats: bool) -> pa.Table:
    """Return a table with schema TEXTS; `floats`: whether the labels are numbers that become floats.

    Raises DataError for lists of different lengths and invalid texts or labels.
    """
    if isinstance(texts, str) or isinstance(labels, str):
        raise DataError(f"{name}: give a list of texts and a list of labels, not a single text")
    if len(texts) != len(labels):
        raise DataError(f"{name}: {len(texts):,} texts and {len(labels):,} labels: give one label for each text")
    rows = []
    for row, (text, label) in enumerate(zip(texts, labels)):
        pair = text if isinstance(text, tuple) and len(text) == 2 else (text, None)
        if not isinstance(pair[0], str) or not isinstance(pair[1], str | None):
            raise DataError(f"{name}:{row}: {shown(text)} is neither a text nor a pair of texts")
        if not all(part.strip() for part in pair if part is not None):
            raise DataError(f"{name}:{row}: the text is empty: leave the row out")
        rows.append((str(row), *pair, _label_cell(name, row, label, kind, float if floats else _plain)))
    return texts_table(name, rows)


def _label_cell(name: str, row: int, label: Any, kind: str, value_of: Callable[[Any], Any]) -> str:
    """Return a label as text; for multilabel, return the labels as a JSON list. Raises DataError for invalid labels.

    `value_of` converts a given label to a Python value.
    """
    if kind == "multilabel":
        if isinstance(label, str) or not isinstance(label, Sequence | np.ndarray | set | frozenset):
            raise DataError(
                f"{name}:{row}: label {shown(label)} is not a list: kind multilabel needs a list of labels per text"
            )
        return labels_text(label_text(name, row, "label", value_of(member)) for member in label)
    return label_text(name, row, "label", value_of(label))


def _plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python value; return other values unchanged."""
    return value.item() if isinstance(value, np.generic) else value
