"""Cases of the step benchmarks: a model of a size, and its batches.

Shapes: N sequences, T tokens in all sequences, M masked positions.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from pipeline.batch import Batch, MaskedBatch, NextSentenceBatch, SentenceOrderBatch
from pipeline.config import training
from pipeline.config.data import NextSentence, SentenceOrder
from pipeline.config.jobs import Pretrain
from pipeline.config.model import FamilyName, Model
from pipeline.config.objective import Masked
from pipeline.config.phases import OnePhase
from pipeline.model.flops import TokenCounts
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.presets.table import PRESETS
from pipeline.train.automatic import FreeMemory, Where, chosen_rows, free_memory
from pipeline.train.slot_size import BUSY_TOKENS

VOCABULARY_SIZE = 30_522
USUAL_LENGTH = 128
MASKED_SHARE = 0.15
BATCHES = 4  # distinct batches, used in rotation
DECILES = {128: (9, 73, 114, *[128] * 8), 512: (10, 72, 189, 314, 494, *[512] * 6)}
"""Maximum length -> deciles (0% to 100%) of the row lengths of next-sentence examples from English Wikipedia."""
ARTICLES = (6, 69, 444, 873, 1365, 1972, 2755, 3762, 5023, 7759, 32171)
"""Deciles (0% to 100%) of the lengths of 673 articles of English Wikipedia, in WordPiece tokens."""
Lengths = Literal["full", "ragged", "articles"]
"""Lengths of rows: all at the maximum length; as next-sentence examples; as articles, cut at the maximum length, with
rows of similar length in the same batch.
"""
SIZES = ("tiny", "mini", "small", "medium", "base", "large")
PREFIXES = {"deberta-v2": "deberta-v3"}
"""Family -> first words of its presets' names, where they are not the family's name."""
ROWS = {"base": 8, "large": 4}
"""Size -> rows per batch on a CPU. A GPU's are chosen as by batch.rows_per_slot auto."""
ROWS_OTHERWISE = 32
"""Rows per batch on a CPU for all sizes that are not in ROWS."""
PLAIN_MASKED = ("deberta", "deberta-v2")
"""Families that are measured with masked tokens and the plain head, although their presets have other objectives."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A measured case: a model size and its batches."""

    size: str
    rows: int
    """Rows per batch."""
    length: int
    """Maximum length in tokens."""
    lengths: Lengths
    attention_dropout: bool
    family: FamilyName = "bert"
    vocabulary_size: int = VOCABULARY_SIZE

    @property
    def preset(self) -> Pretrain:
        """The preset of this family and size; if there is none, the family's base preset with BERT's shape of this
        size.
        """
        prefix = PREFIXES.get(self.family, self.family)
        preset = PRESETS.get(f"{prefix}-{self.size}")
        if preset is None:
            shape, preset = PRESETS[f"bert-{self.size}"].model, PRESETS[f"{prefix}-base"]
            sizes = {name: getattr(shape, name) for name in ("layers", "width", "heads", "feed_forward")}
            preset = replace(preset, model=replace(preset.model, **sizes))
        return replace(preset, objective=Masked()) if self.family in PLAIN_MASKED else preset

    @property
    def model(self) -> Model:
        model = self.preset.model
        return model if self.attention_dropout else replace(model, attention_dropout=0.0)

    @property
    def module(self) -> Pretraining:
        """A new module of the preset's objective for this model, with random weights."""
        return build_objective(self.preset.objective, self.preset.sampling, self.model, self.vocabulary_size)

    @property
    def name(self) -> str:
        return f"{self.size}, {self.lengths} {self.length}"

    @property
    def ratio(self) -> str:
        """Name of the case's ratio, which is also its key in step.FLOORS."""
        family = "" if self.family == "bert" else f"{self.family} "
        return f"{family}{self.size} {self.lengths}" + (f" {self.length}" if self.length != USUAL_LENGTH else "")

    @property
    def batches(self) -> list[MaskedBatch]:
        """The case's BATCHES batches, on the CPU."""
        generators = [np.random.default_rng(seed) for seed in range(BATCHES)]
        lengths = [_lengths_of(self, rng) for rng in generators]
        if self.lengths == "articles":
            lengths = np.split(np.sort(np.concatenate(lengths)), BATCHES)
        return [_batch(self, some, rng) for some, rng in zip(lengths, generators, strict=True)]


def make_batch(case: Case, seed: int) -> MaskedBatch:
    """Return a batch on the CPU: random ids, with 15% of each sequence masked. Equal seeds give equal batches.

    Articles are not sorted here; `Case.batches` sorts them.
    """
    rng = np.random.default_rng(seed)
    return _batch(case, _lengths_of(case, rng), rng)


def _lengths_of(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Return the lengths (N,) of a batch's sequences."""
    if case.lengths == "full":
        return np.full(case.rows, case.length)
    if case.lengths == "articles":
        return _drawn(ARTICLES, case.rows, rng).clip(max=case.length)
    known = 128 if case.length < 512 else 512
    return _drawn(np.array(DECILES[known]) * case.length / known, case.rows, rng).clip(5)


def _drawn(deciles: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw lengths (count,) with these deciles."""
    return np.interp(rng.random(count), np.linspace(0, 1, len(deciles)), deciles).astype(int)


def _batch(case: Case, lengths_N: np.ndarray, rng: np.random.Generator) -> MaskedBatch:
    """Return a batch of random sequences with these lengths (N,)."""
    offsets = np.concatenate([[0], lengths_N.cumsum()])
    positions_T = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths_N)
    masked = [
        start + np.sort(rng.choice(n, max(1, round(MASKED_SHARE * n)), replace=False))
        for start, n in zip(offsets, lengths_N, strict=False)
    ]
    masked_positions_M = np.concatenate(masked)
    tokens: dict[str, Any] = {
        "ids_T": torch.from_numpy(rng.integers(1, case.vocabulary_size, offsets[-1])),
        "segments_T": torch.from_numpy((positions_T >= np.repeat(lengths_N // 2, lengths_N)).astype(np.int64)),
        "positions_T": torch.from_numpy(positions_T),
        "offsets": torch.from_numpy(offsets.astype(np.int32)),
        "maximum_length": int(lengths_N.max()),
        "masked_positions_M": torch.from_numpy(masked_positions_M),
        "masked_labels_M": torch.from_numpy(rng.integers(1, case.vocabulary_size, len(masked_positions_M))),
    }
    pairs = type(case.preset.sampling.pairs)
    if pairs is NextSentence:
        return NextSentenceBatch(**tokens, not_next_N=torch.from_numpy(rng.integers(0, 2, case.rows)))
    if pairs is SentenceOrder:
        return SentenceOrderBatch(**tokens, swapped_N=torch.from_numpy(rng.integers(0, 2, case.rows)))
    return MaskedBatch(**tokens)


def counted(batch: Batch) -> TokenCounts:
    """Return a batch's token counts for the model FLOPs formula."""
    return TokenCounts(
        tokens=batch.tokens, squares=int(batch.offsets.diff().long().square().sum()), masked=batch.masked
    )


def case_of(size: str, family: FamilyName, length: int) -> Case:
    """Return a case with one full row, to read its model's settings."""
    return Case(size=size, rows=1, length=length, lengths="full", attention_dropout=True, family=family)


def rows_of(case: Case, device: torch.device) -> int:
    """Return the rows per batch of a case."""
    if device.type == "cpu":
        return ROWS.get(case.size, ROWS_OTHERWISE)
    return automatic_rows(case, free_memory(device))


def automatic_rows(case: Case, memory: FreeMemory) -> int:
    """Return the rows per slot that `auto` means for a case's model, with rows of its length, on a GPU."""
    preset, model = case.preset, case.model
    config = replace(
        preset,
        model=replace(model, maximum_positions=max(case.length, model.maximum_positions)),
        sampling=replace(preset.sampling, maximum_length=case.length),
        batch=training.Batch(rows_per_step=in_slots(max(1, BUSY_TOKENS // case.length))),
        phases=OnePhase(),
        vocabulary=replace(preset.vocabulary, size=case.vocabulary_size),
    )
    return chosen_rows(config, config.all_phases[0], Where(on_gpus=True, memory=memory))


def in_slots(rows: int) -> int:
    """Return the rows of the whole slots of USUAL_ROWS in `rows`; `rows` itself if there is none."""
    return rows if rows < training.USUAL_ROWS else rows - rows % training.USUAL_ROWS
