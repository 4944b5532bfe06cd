"""A cross-encoder: a model that reads a query and a text together and scores the pair (Nogueira and Cho 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from pipeline.config.placement import ModelPlacement
from pipeline.errors import ConfigError, listed
from pipeline.fine_tuned.answers import items_of
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.published_tuned import DIGEST
from pipeline.fine_tuned.tuned import TunedModel
from pipeline.objectives.logits import compute_logits
from pipeline.reporting import Report
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.known import takes_pairs
from pipeline.tasks.task import Task
from pipeline.train.hardware import answer_precision, autocast_of, required_device

PAIRS_AT_ONCE = 4_096
"""Maximum pairs that are encoded at a time, which limits memory."""
Pair = tuple[str, str]
"""A query and a text."""


@dataclass(frozen=True, kw_only=True)
class CrossEncoder:
    """A loaded model that scores pairs of a query and a text."""

    tuned: TunedModel
    label: str | None
    """Label whose logit is the score; None if the model predicts a number, which is the score."""
    device: torch.device
    precision: str


def load(location: str, label: str | None, placement: ModelPlacement) -> CrossEncoder:
    """Load the model of the setting `rerank` on this process's device; `label` is the setting `rerank_label`.

    Raises CheckpointError if there is no model, and ConfigError for a model that does not score pairs.
    """
    device, tuned = required_device(placement), open_tuned(location, "rerank")
    return CrossEncoder(
        tuned=replace(tuned, module=tuned.module.to(device)),
        label=_scored_label(location, label, tuned.about.task, published=DIGEST in tuned.about.lineage),
        device=device,
        precision=answer_precision(placement, tuned.about.lineage.get("precision"), device),
    )


def scores_pairs(task: Task, published: bool) -> bool:
    """Return whether a model of a task scores pairs of texts.

    The files of a model that others published do not say whether its rows are pairs.
    """
    most = KINDS[task.kind].most_scored_labels
    return most is not None and len(task.labels) <= most and (published or takes_pairs(task))


def _scored_label(location: str, asked: str | None, task: Task, published: bool) -> str | None:
    """Return the label whose logit is the score; None for a number. Raises ConfigError if there is no such label."""
    rerank = f"rerank ({location})"
    if not scores_pairs(task, published):
        labels = f" and has {len(task.labels)} labels" if KINDS[task.kind].most_scored_labels else ""
        texts = "" if published or takes_pairs(task) else ", of single texts,"
        raise ConfigError(
            f"{rerank} is of kind {task.kind}{texts}{labels}: give a model of pairs of texts, of kind ranking or "
            "regression, or of kind classification with 1 or 2 labels"
        )
    if asked is not None and asked not in task.labels:
        names = f"has the labels {listed(task.labels)}" if task.labels else "predicts a number and has no labels"
        raise ConfigError(f"rerank_label ({asked}): {rerank} {names}; name one of its labels, or none")
    return asked or (task.labels[-1] if task.labels else None)


def score_pairs(encoder: CrossEncoder, pairs: Sequence[Pair], report: Report) -> np.ndarray:
    """Return the score of each pair, float64 (pairs,), and report how the scores were computed.

    Equal pairs are computed once, so they have equal scores.
    """
    unique = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    scores, cut = _scores(encoder, list(unique))
    task, longest = encoder.tuned.about.task, encoder.tuned.about.cutting.maximum_length
    scored = f"the logit of {encoder.label}" if encoder.label is not None else "its number"
    truncated = f", {cut:,} of them truncated at {longest} tokens" if cut else ""
    report(f"reranked by {scored} of {task.name}: {len(unique):,} pairs{truncated}, computed in {encoder.precision}")
    return scores[[unique[pair] for pair in pairs]]


def _scores(encoder: CrossEncoder, pairs: Sequence[Pair]) -> tuple[np.ndarray, int]:
    """Return the score of each pair, float64 (pairs,), and the number of truncated pairs.

    The score is the number that the model predicts, or the logit of the label's probability: of two labels, the
    difference of their outputs.
    """
    tuned, scores, cut = encoder.tuned, [np.zeros(0)], 0
    task, cutting, handlers = tuned.about.task, tuned.about.cutting, KINDS[tuned.about.task.kind]
    for first in range(0, len(pairs), PAIRS_AT_ONCE):
        left, right = zip(*pairs[first : first + PAIRS_AT_ONCE])
        prepared = handlers.prepare(task, items_of(tuned, {"text": left, "second": right}), tuned.vocabulary, cutting)
        autocast = autocast_of(encoder.precision, encoder.device)
        logits = compute_logits(tuned.module, prepared.rows, encoder.device, autocast)
        outputs, cut = handlers.answers(task, prepared, logits, cutting), cut + prepared.cut
        label = task.labels.index(encoder.label) if encoder.label is not None else 0
        others = np.delete(outputs, label, axis=1).sum(axis=1)  # of the other label, or 0
        scores.append(np.asarray(outputs[:, label] - others, np.float64))
    return np.concatenate(scores), cut
