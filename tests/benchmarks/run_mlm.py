"""Train a model as transformers' example run_mlm.py does, with the Trainer, for as many minutes as another run took.

The texts are those of a file of tokens, one after the other, cut into blocks of equal length. Encoding them is not
timed. The rate falls linearly to 0, and the steps that fit into the minutes are counted in a short run before.
"""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.bench.heldout import heldout_words_of
from pipeline.config.checks import require
from pipeline.corpus import token_file
from pipeline.errors import ConfigError
from pipeline.evaluation.heldout_words import word_metrics
from pipeline.files import storage
from pipeline.presets.table import PRESETS
from pipeline.reporting import Report, duration
from pipeline.saved.model import open_saved
from pipeline.saved.pretrained import load_published
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.train.hardware import autocast_of, cores
from pipeline.train.summary import BITS
from tests.benchmarks.settings import RunMlm

PROBE_WARM, PROBE_STEPS = 3, 20
"""Steps before the speed is measured, and measured steps."""


def run(config: RunMlm, report: Report) -> int:
    """Train, save the model to `output`, print what it saw, and return 0."""
    try:
        import accelerate  # noqa: F401  (check here: the Trainer's own error has many lines)
        from transformers.utils import logging
    except ImportError as error:
        raise ConfigError(f"run-mlm needs transformers and accelerate ({error}): pip install '.[bench]'") from error
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    require(not storage.exists(config.output), f"output ({config.output}) exists already: choose another folder")
    torch.set_num_threads(cores())
    tokens = token_file.read(config.token_file)
    rows = blocks(tokens, config.length)
    os.makedirs(config.output)
    save_vocabulary(tokens.vocabulary, Path(config.output), config.length)
    per_step = _train(config, rows, PROBE_WARM + PROBE_STEPS, measured=PROBE_STEPS)[1] / PROBE_STEPS
    steps = max(1, round(60 * config.minutes / per_step))
    report(f"{len(rows):,} blocks of {config.length} tokens; {steps:,} steps of {1000 * per_step:,.0f} ms")
    trained, seconds = _train(config, rows, steps, measured=steps)
    trained.save_pretrained(config.output)
    seen = steps * config.rows_per_step
    print(
        f"{config.family} {config.layers} x {config.width}, rate {config.learning_rate:g}, seed {config.seed}: "
        f"{steps:,} steps, {seen * config.length:,} tokens, {seen / len(rows):.1f} epochs in {duration(seconds)}; "
        f"{heldout_bits(config.output, tokens):.3f} bits per byte"
    )
    return 0


def heldout_bits(folder: str, tokens: token_file.TokenFile) -> float:
    """Return the bits per byte of a model on the held-out words on which `bench train quickstart` is evaluated."""
    trained, lacks = load_published(open_saved(folder), tokens.vocabulary)
    assert not any(part.startswith("masked_token_head") for part in lacks), lacks  # BERT's also lacks the pooler
    held = heldout_words_of(PRESETS["quickstart"], tokens, 0, 1)
    cpu = torch.device("cpu")
    return word_metrics(trained.module, held, world=1, device=cpu, autocast=autocast_of("float32", cpu))[BITS]


def blocks(tokens: token_file.TokenFile, length: int) -> np.ndarray:
    """Return the training texts in blocks, int32 (N, length). Texts are between special tokens; a rest is dropped."""
    vocabulary, parts = tokens.vocabulary, []
    for window in map(tokens.encoded_window, tokens.train):
        starts = window.sentence_offsets[window.document_offsets]
        for start, end in zip(starts, starts[1:]):
            parts += [[vocabulary.cls_id], window.tokens[start:end], [vocabulary.sep_id]]
    ids = np.concatenate(parts).astype(np.int32)
    return ids[: len(ids) // length * length].reshape(-1, length)


def model(config: RunMlm, vocabulary_size: int, special: dict[str, int]) -> Any:
    """Return a model of transformers with random weights, its config's defaults and these sizes."""
    from transformers import AutoModelForMaskedLM, BertConfig, ModernBertConfig

    kind = {"bert": BertConfig, "modernbert": ModernBertConfig}[config.family]
    return AutoModelForMaskedLM.from_config(
        kind(
            vocab_size=vocabulary_size,
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.width // 64,
            intermediate_size=config.feed_forward,
            **special,
        )
    )


def _train(config: RunMlm, rows: np.ndarray, steps: int, measured: int) -> tuple[Any, float]:
    """Train from random weights; return the model and the seconds of the last `measured` steps."""
    from transformers import (
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
    )

    class Clock(TrainerCallback):
        begun = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if state.global_step == steps - measured:
                self.begun = time.perf_counter()

    set_seed(config.seed)
    tokenizer = AutoTokenizer.from_pretrained(config.output)
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "cls", "sep")}
    trained, clock = model(config, len(tokenizer), special), Clock()
    Trainer(
        model=trained,
        args=TrainingArguments(
            output_dir=f"{config.output}/trainer",
            max_steps=steps,
            per_device_train_batch_size=config.rows_per_step,
            learning_rate=config.learning_rate,
            bf16=config.bf16,
            seed=config.seed,
            use_cpu=not torch.cuda.is_available(),
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=[{"input_ids": row} for row in rows],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=config.share),
        callbacks=[clock],
    ).train()
    return trained, time.perf_counter() - clock.begun
