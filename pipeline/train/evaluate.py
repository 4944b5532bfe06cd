"""Held-out losses on fixed examples, the unigram baseline on the same positions, and fill-in-the-blank."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist

from pipeline.batch import Batch, collate
from pipeline.config.data import Sampling
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.objectives.pretraining import BertPretraining, pair_labels
from pipeline.text.examples import make_examples, window_sentences
from pipeline.text.wordpiece import WordPiece

SEED = 0  # of held-out examples, whatever the run's: runs are compared on the same pairs and masks
PAIR_TERMS = ("nsp", "sop")
# All that BertPretraining.scores may give: a rank without held-out rows must know them too.
SCORES = tuple(f"{term}{kind}" for kind in ("", "_accuracy") for term in ("mlm", *PAIR_TERMS))
HELDOUT_WINDOWS = 64  # at most: each is split and encoded in full at every start
UNIGRAM_CHARACTERS = 2_000_000  # of training text that the baseline counts


def heldout_batches(
    corpus: Corpus, wordpiece: WordPiece, sampling: Sampling, *, rows: int, rows_per_batch: int, rank: int, world: int
) -> list[Batch]:
    """Return this rank's share (windows rank::world) of about `rows` held-out examples; the union is the same in every
    world.
    """
    windows = corpus.heldout[: min(rows, HELDOUT_WINDOWS)]
    if not windows:
        return []
    most = -(-rows // len(windows))
    batches = []
    for index in range(rank, len(windows), world):
        examples = make_examples(
            read_window(corpus, windows[index]), wordpiece, sampling, seed=SEED, epoch=0, window=index
        ).slice(0, most)
        batches += [
            collate(examples.slice(start, rows_per_batch)) for start in range(0, examples.num_rows, rows_per_batch)
        ]
    return batches


def evaluate(
    module: BertPretraining, batches: Sequence[Batch], *, world: int, device: torch.device, autocast: torch.autocast
) -> dict[str, float]:
    """Return means over all ranks' batches in evaluation mode: losses in nats, accuracies from 0 to 1.

    Empty without held-out rows. A pair task is left out where all rows have the same answer, since nothing can be
    measured.
    """
    was_training = module.training
    module.eval()
    totals = dict.fromkeys(SCORES, torch.zeros((), dtype=torch.float64, device=device))
    counts = dict.fromkeys(SCORES, torch.zeros((), dtype=torch.float64))
    with torch.inference_mode(), autocast:
        for batch in batches:
            for name, (total, count) in module.scores(batch.to(device)).items():
                totals[name] = totals[name] + total
                counts[name] = counts[name] + count
    module.train(was_training)
    scored = torch.stack([torch.stack(list(totals.values())).cpu(), torch.stack(list(counts.values()))], dim=1)
    answers = torch.tensor([_yes_and_rows(batches, term) for term in PAIR_TERMS], dtype=torch.float64)
    sums = torch.cat([scored, answers])
    if world > 1:
        dist.all_reduce(sums)
    for term, (ones, rows) in zip(PAIR_TERMS, sums[len(totals) :].tolist(), strict=True):
        if ones in (0, rows):
            sums[[SCORES.index(term), SCORES.index(f"{term}_accuracy")]] = 0
    names = {name: name if name.endswith("accuracy") else f"{name}_loss" for name in totals}
    return {
        f"heldout/{names[name]}": (total / count).item()
        for name, (total, count) in zip(totals, sums[: len(totals)], strict=True)
        if count > 0
    }


def unigram_counts(corpus: Corpus, wordpiece: WordPiece, size: int) -> np.ndarray:
    """Count each entry in the first training windows, (V,) int64."""
    counts = np.zeros(size, dtype=np.int64)
    characters = 0
    for window in corpus.train:
        sentences, _ = window_sentences(read_window(corpus, window))
        counts += np.bincount(wordpiece.encode(sentences)[0], minlength=size)
        characters += window.characters
        if characters >= UNIGRAM_CHARACTERS:
            break
    return counts


def baselines(batches: Sequence[Batch], counts: np.ndarray, world: int) -> dict[str, float]:
    """Return baselines on the positions that `evaluate` scores: the add-one unigram distribution for MLM, the majority
    label for pairs.
    """
    log_share = np.log(counts + 1.0) - np.log(counts.sum() + len(counts))
    labels = np.concatenate([batch.masked_labels_M.numpy() for batch in batches] or [np.zeros(0, dtype=np.int64)])
    pairs = [_yes_and_rows(batches, term) for term in PAIR_TERMS]
    sums = torch.tensor(
        [(-log_share[labels].sum(), len(labels)), ((labels == counts.argmax()).sum(), len(labels)), *pairs],
        dtype=torch.float64,
    )
    if world > 1:
        dist.all_reduce(sums)
    (loss, masked), (correct, _), *pairs = sums.tolist()
    if not masked:
        return {}
    majority = {
        f"baseline/majority_{term}_accuracy": max(ones, rows - ones) / rows
        for term, (ones, rows) in zip(PAIR_TERMS, pairs, strict=True)
        if rows
    }
    return {"baseline/unigram_mlm_loss": loss / masked, "baseline/unigram_mlm_accuracy": correct / masked} | majority


def baseline_metrics(beside: Mapping[str, float]) -> dict[str, float]:
    """Return baselines under their metric names: MLflow sorts chart groups by name, and measured values go first."""
    return {f"heldout_{name}": value for name, value in beside.items()}


def _yes_and_rows(batches: Sequence[Batch], term: str) -> tuple[int, int]:
    """Return how many rows of a pair task have label 1, and how many rows it has."""
    labels = _pair_labels_of(batches, term)
    return int(labels.sum()), len(labels)


def _pair_labels_of(batches: Sequence[Batch], term: str) -> torch.Tensor:
    """Return all labels of one pair task, 0 or 1; empty where the batches have other pairs or none."""
    return torch.cat(
        [
            torch.zeros(0, dtype=torch.int64),
            *(labels[term] for batch in batches if term in (labels := pair_labels(batch))),
        ]
    )
