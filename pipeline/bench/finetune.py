"""Compare our fine-tuning with transformers' Trainer, which groups rows by length and pads each batch.

Both sides use the same rows, initial weights, learning rates and precision.
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

from pipeline.command_line.command import Command
from pipeline.config.checks import require_at_least
from pipeline.config.finetune import Finetune
from pipeline.config.locations import Location, with_absolute_locations
from pipeline.config.recipe import Recipe
from pipeline.errors import ConfigError
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.finetune.encoder import read_encoder
from pipeline.finetune.problems import Problem, read_problems
from pipeline.finetune.trial import run_trial
from pipeline.finetune.trial_rows import sample_rows
from pipeline.finetune.trials import autocast_for, build, precision_of
from pipeline.tasks.metrics.label_metrics import METRICS
from pipeline.train.hardware import cores, device_of
from pipeline.train.initial import Initial

AIM, FLOOR = 1.5, 1.2
"""Ratio to aim for, and ratio below which the bench fails. The ratio is the Trainer's seconds divided by ours."""
NEAR = 0.02
"""Maximum by which our accuracy (0 to 1) may be below the Trainer's; a smaller difference may be chance."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Compare our fine-tuning with transformers' Trainer; the two train in turns."""

    checkpoint: Location
    """Folder, URL or hf://OWNER/NAME of a published model, such as a run's export."""
    data: Location | None = None
    """Folder of GLUE; default: fine-tune on the built-in task instead."""
    task: str = "sst2"
    """Classification task whose files are in data; this setting is ignored if data is not given."""
    rows: int = 8_000
    """Training rows, each used once."""
    rows_per_step: int = 32
    learning_rate: float = 3e-4
    repetitions: int = 3
    """Trainings per side, each with another seed."""

    def __post_init__(self) -> None:
        require_at_least("rows", self.rows, 1)
        require_at_least("repetitions", self.repetitions, 1)


@dataclass(frozen=True, kw_only=True)
class Side:
    """Result of one training."""

    seconds: float
    """Seconds of training, without evaluation."""
    accuracy: float
    """Selection metric of the task on the development set (0 to 1)."""
    tokens: int
    """Tokens without padding."""


def main(arguments: Sequence[str]) -> int:
    """Read the command line and compare; return 0 if speed and accuracy pass, else 1.

    Raises PipelineError for errors that the user can fix.
    """
    command = Command(prog="jobs/bench.py finetune", about=str(Settings.__doc__), settings=Settings)
    return _measure(with_absolute_locations(command.read(arguments)))


def _measure(wanted: Settings) -> int:
    """Train both sides in turns and print each result; return the exit code."""
    task = wanted.task if wanted.data else "builtin"
    recipe = Recipe(epochs=1, rows_per_step=wanted.rows_per_step, training_rows=wanted.rows)
    with tempfile.TemporaryDirectory(prefix="bertstream-bench-") as folder:
        config = Finetune(checkpoint=wanted.checkpoint, data=wanted.data, task=(task,), output=folder, recipe=recipe)
        config = replace(config, optimizer=replace(config.optimizer, learning_rate=wanted.learning_rate))
        initial = read_encoder(config, config.checkpoint, print)
        (problem,) = read_problems(config, initial, print)
        if problem.task.kind != "classification":
            raise ConfigError(
                f"task ({task}) is of kind {problem.task.kind}: choose a classification task, such as sst2 or mrpc"
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
            for name, results in sides.items():
                last = results[-1]
                print(
                    f"seed {seed}  {name:<8} {last.seconds:6.1f} s  {last.tokens / last.seconds:8,.0f} "
                    f"tokens/s  accuracy {100 * last.accuracy:.1f}%",
                    flush=True,
                )
    return _verdict(sides)


def _verdict(sides: dict[str, list[Side]]) -> int:
    """Print the median ratio of seconds and the median accuracies; return 0 if both pass, else 1.

    The ratio must reach FLOOR, and our accuracy may be at most NEAR below the Trainer's.
    """
    pairs = zip(sides["ours"], sides["Trainer"], strict=True)
    ratio = statistics.median(theirs.seconds / ours.seconds for ours, theirs in pairs)
    our_accuracy, their_accuracy = (
        statistics.median(side.accuracy for side in sides[name]) for name in ("ours", "Trainer")
    )
    print(
        f"ours / transformers' Trainer: {ratio:.2f} times as fast (aim {AIM:g}); "
        f"median accuracy {100 * our_accuracy:.1f}% and {100 * their_accuracy:.1f}%"
    )
    slow, inaccurate = ratio < FLOOR, our_accuracy < their_accuracy - NEAR
    if slow:
        print(f"below its floor: the ratio {ratio:.2f}, floor {FLOOR:g}")
    if inaccurate:
        print(f"our accuracy is {100 * (their_accuracy - our_accuracy):.1f} points below the Trainer's")
    return 1 if slow or inaccurate else 0


def _ours(config: Finetune, problem: Problem, initial: Initial, seed: int) -> Side:
    """Train once with our code."""
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
    """Return the task's selection metric on its first development split."""
    return scores[next(iter(problem.splits))][problem.task.metrics[0]]


def _theirs(config: Finetune, problem: Problem, initial: Initial, seed: int, folder: Path) -> Side:
    """Train once with the Trainer, from the same initial weights of encoder and head."""
    _prepare_transformers()
    about = About(task=problem.task, cutting=problem.cutting, pooling="cls", thresholds={}, lineage={})
    save_tuned(str(folder / "model"), build(config, problem, initial, seed), about, initial.model, initial.vocabulary)
    rows = sample_rows(problem.train.rows, config.recipe.training_rows, seed)
    trainer = _trainer(config, initial.model.width, rows, next(iter(problem.splits.values())).rows, seed, folder)
    begun = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - begun
    # The Trainer orders the rows by length, so the labels are taken from the same output as the predictions.
    predictions = trainer.predict(trainer.eval_dataset)
    accuracy = METRICS[problem.task.metrics[0]](
        np.asarray(predictions.predictions, np.float32).argmax(-1), np.asarray(predictions.label_ids)
    )
    return Side(seconds=seconds, accuracy=accuracy, tokens=len(rows["ids"].combine_chunks().flatten()))


def _prepare_transformers() -> None:
    """Silence transformers. Raises ConfigError if transformers or accelerate, which the Trainer needs, is missing."""
    try:
        import accelerate  # noqa: F401  (check here: the Trainer's own error has many lines)
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
    """Return a Trainer for the model in `folder`/model, with its fastest settings for rows of unequal length."""
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
    """Return the rows as the Trainer takes them, one dict per row."""
    columns = zip(rows["ids"].to_pylist(), rows["first_length"].to_pylist(), rows["label"].to_pylist())
    return [
        {
            "input_ids": ids,
            "token_type_ids": [int(position >= first_length) for position in range(len(ids))],
            "attention_mask": [1] * len(ids),
            "labels": int(label),
        }
        for ids, first_length, label in columns
    ]
