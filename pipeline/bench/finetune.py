"""Compare fine-tuning with transformers' Trainer, with dynamic padding and grouping by length: same rows, weights,
rates and precision.
"""

import logging
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pipeline.config.command import Command
from pipeline.config.finetune import Finetune, Recipe
from pipeline.config.locations import Location, with_absolute_locations
from pipeline.errors import ConfigError
from pipeline.finetune.encoder import read_encoder
from pipeline.finetune.problems import Problem, read_problems
from pipeline.finetune.trials import autocast_for, build, precision_of
from pipeline.tasks.metrics import METRICS
from pipeline.train.hardware import cores, device_of
from pipeline.train.initial import Initial
from pipeline.train.trial import run_trial, sample_rows
from pipeline.train.tuned import About, save_tuned

AIM, FLOOR = 1.5, 1.2
NEAR = 0.02
"""Largest shortfall of our accuracy that still counts as chance."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Compare fine-tuning with transformers' Trainer, in turns."""

    checkpoint: Location
    """As in jobs/finetune.py."""
    data: Location | None = None
    """Folder of GLUE; default: the built-in task."""
    task: str = "sst2"
    """A classification task."""
    rows: int = 8_000
    """Training rows; one epoch."""
    rows_per_step: int = 32
    learning_rate: float = 3e-4
    repetitions: int = 3
    """Trainings per side, in turns."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """Result of one training."""

    seconds: float
    accuracy: float
    tokens: int
    """Tokens without padding."""


def main(arguments: Sequence[str]) -> int:
    """Measure and print; return 0 where ratio and accuracy pass, 1 where not.

    Raises PipelineError for what the user can fix.
    """
    command = Command(prog="jobs/bench.py finetune", about=str(Settings.__doc__), settings=Settings)
    return _measure(with_absolute_locations(command.read(arguments)))


def _measure(wanted: Settings) -> int:
    """Train both sides in turns."""
    task = wanted.task if wanted.data else "builtin"
    recipe = Recipe(epochs=1, rows_per_step=wanted.rows_per_step, training_rows=wanted.rows)
    with tempfile.TemporaryDirectory(prefix="bertstream-bench-") as folder:
        config = Finetune(checkpoint=wanted.checkpoint, data=wanted.data, task=(task,), output=folder, recipe=recipe)
        config = replace(config, optimizer=replace(config.optimizer, learning_rate=wanted.learning_rate))
        initial = read_encoder(config, config.checkpoint, print)
        (problem,) = read_problems(config, initial, print)
        if problem.task.kind != "classification":
            raise ConfigError(
                f"task ({task}) is of the kind {problem.task.kind}: choose a classification task, such as sst2 or mrpc"
            )
        torch.set_num_threads(cores())
        device = device_of(config.placement, config.trials.gpus)
        print(
            f"{initial.model.layers} layers of width {initial.model.width}, {cores()} CPU threads, "
            f"{precision_of(config.placement, initial.model.width, device)} on both sides"
        )
        sides: dict[str, list[Side]] = {"ours": [], "Trainer": []}
        for seed in range(wanted.repetitions):
            sides["ours"].append(_ours(config, problem, initial, seed))
            sides["Trainer"].append(_theirs(config, problem, initial, seed, Path(folder, str(seed))))
            for name, ones in sides.items():
                print(
                    f"seed {seed}  {name:<8} {ones[-1].seconds:6.1f} s  {ones[-1].tokens / ones[-1].seconds:8,.0f} "
                    f"tokens/s  accuracy {100 * ones[-1].accuracy:.1f}%",
                    flush=True,
                )
    return _verdict(sides)


def _verdict(sides: dict[str, list[Side]]) -> int:
    """Print medians and the ratio of the turns; return 1 where it is below its floor, or our accuracy clearly below
    theirs.
    """
    ratio = statistics.median(b.seconds / a.seconds for a, b in zip(sides["ours"], sides["Trainer"], strict=True))
    mine, other = (statistics.median(side.accuracy for side in sides[name]) for name in ("ours", "Trainer"))
    print(
        f"ours / transformers' Trainer: {ratio:.2f} times as fast (aim {AIM:g}); "
        f"median accuracy {100 * mine:.1f}% and {100 * other:.1f}%"
    )
    low = [f"the ratio {ratio:.2f}, floor {FLOOR:g}"] * (ratio < FLOOR) + [
        f"accuracy, by {100 * (other - mine):.1f}"
    ] * (mine < other - NEAR)
    for line in low:
        print(f"below its floor: {line}")
    return 1 if low else 0


def _ours(config: Finetune, problem: Problem, initial: Initial, seed: int) -> Side:
    """Train once with our code, timed without evaluation."""
    device = device_of(config.placement, config.trials.gpus)
    autocast = autocast_for(config.placement, initial.model.width, device)
    module = build(config, problem, initial, seed).to(device)
    result = run_trial(
        config,
        problem.task,
        problem.cutting,
        module,
        problem.train,
        problem.splits,
        seed=seed,
        device=device,
        autocast=autocast,
    )
    return Side(seconds=result.seconds, accuracy=_accuracy(problem, result.scores), tokens=result.tokens)


def _accuracy(problem: Problem, scores: dict[str, dict[str, float]]) -> float:
    """Return the selection metric on the development split."""
    return scores[next(iter(problem.splits))][problem.task.metrics[0]]


def _theirs(config: Finetune, problem: Problem, initial: Initial, seed: int, folder: Path) -> Side:
    """Train once with the Trainer, from the same weights including the head, timed without evaluation."""
    _prepare_transformers()
    about = About(task=problem.task, cutting=problem.cutting, pooling="cls", tuned={}, lineage={})
    save_tuned(str(folder / "model"), build(config, problem, initial, seed), about, initial.model, initial.vocabulary)
    rows = sample_rows(problem.train.rows, config.recipe.training_rows, seed)
    trainer = _trainer(config, initial.model.width, rows, next(iter(problem.splits.values())).rows, seed, folder)
    begun = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - begun
    predictions = trainer.predict(trainer.eval_dataset)  # ordered by length, with labels in the same order
    accuracy = METRICS[problem.task.metrics[0]](
        np.asarray(predictions.predictions, np.float32).argmax(-1), np.asarray(predictions.label_ids)
    )
    return Side(seconds=seconds, accuracy=accuracy, tokens=len(rows["ids"].combine_chunks().flatten()))


def _prepare_transformers() -> None:
    """Silence transformers. Raises ConfigError if it or accelerate, which the Trainer needs, is not installed."""
    try:
        import accelerate  # noqa: F401  (without it, the Trainer's own error has many lines)
        from transformers.utils import logging as transformers_logging
    except ImportError as error:
        raise ConfigError(
            f"bench finetune needs transformers and accelerate ({error}): pip install 'bertstream[bench]'"
        ) from error
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _trainer(config: Finetune, width: int, rows: pa.Table, dev: pa.Table, seed: int, folder: Path) -> Any:
    """Return a Trainer of the model in `folder`/model, in its fastest settings for ragged rows."""
    from transformers import (
        AutoModelForSequenceClassification,
        DataCollatorWithPadding,
        PreTrainedTokenizerFast,
        Trainer,
        TrainingArguments,
    )

    device = device_of(config.placement, config.trials.gpus)
    settings = TrainingArguments(
        output_dir=str(folder / "out"),
        num_train_epochs=1,
        per_device_train_batch_size=config.recipe.rows_per_step,
        per_device_eval_batch_size=64,
        learning_rate=config.optimizer.learning_rate,
        weight_decay=config.optimizer.weight_decay,
        warmup_steps=config.schedule.warmup_share,
        lr_scheduler_type="linear",
        bf16=precision_of(config.placement, width, device) == "bfloat16",
        train_sampling_strategy="group_by_length",
        optim="adamw_torch_fused",
        seed=seed,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=device.type == "cpu",
        dataloader_pin_memory=False,
    )
    return Trainer(
        model=AutoModelForSequenceClassification.from_pretrained(folder / "model", attn_implementation="sdpa"),
        args=settings,
        train_dataset=_examples(rows),
        eval_dataset=_examples(dev),
        data_collator=DataCollatorWithPadding(PreTrainedTokenizerFast.from_pretrained(folder / "model")),
    )


def _examples(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows in the Trainer's format."""
    columns = zip(rows["ids"].to_pylist(), rows["first_length"].to_pylist(), rows["label"].to_pylist())
    return [
        {
            "input_ids": ids,
            "token_type_ids": [int(position >= first) for position in range(len(ids))],
            "attention_mask": [1] * len(ids),
            "labels": int(label),
        }
        for ids, first, label in columns
    ]
