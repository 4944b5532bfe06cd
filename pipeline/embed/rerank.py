"""Rerank the texts that a search found: a cross-encoder reads a query and a text together, and its score decides.

A cross-encoder is a model of pairs of texts (Nogueira and Cho 2019): it is more exact than the vectors' similarity, and
too slow for all texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from pipeline.config.embed import Search
from pipeline.embed.queries import Query
from pipeline.embed.search import Found
from pipeline.embed.vectors import Vectors
from pipeline.errors import ConfigError, DataError, listed
from pipeline.finetune.trials import answer_precision
from pipeline.predict.answers import items_of
from pipeline.reporting import Report
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.known import takes_pairs
from pipeline.tasks.task import Task
from pipeline.train.hardware import autocast_of, required_device
from pipeline.train.published_tuned import DIGEST, load_tuned_or_published
from pipeline.train.trial import compute_logits
from pipeline.train.tuned import TunedModel

PAIRS_AT_ONCE = 4_096
"""Maximum pairs that are encoded at a time, which limits memory."""
MOST_LABELS = 2


@dataclass(frozen=True, kw_only=True)
class CrossEncoder:
    """A loaded model that scores pairs of a query and a text."""

    tuned: TunedModel
    label: str | None
    """Label whose logit is the score; None if the model predicts a number, which is the score."""
    device: torch.device
    precision: str


def load_cross_encoder(config: Search, vectors: Vectors) -> CrossEncoder:
    """Load the model of `rerank` on this process's device.

    Raises DataError if the vectors have no texts, CheckpointError if there is no model, and ConfigError for a model
    that does not score pairs.
    """
    assert config.rerank is not None
    if not vectors.keeps_texts:
        raise DataError(
            f"rerank ({config.rerank}) reads texts, and vectors ({config.vectors}) has none: embed them again without "
            "--no-keep-text, or leave --rerank out"
        )
    device, tuned = required_device(config.placement), load_tuned_or_published(config.rerank)
    return CrossEncoder(
        tuned=replace(tuned, module=tuned.module.to(device)),
        label=_scored_label(config, tuned.about.task, published=DIGEST in tuned.about.lineage),
        device=device,
        precision=answer_precision(config.placement, tuned.about.lineage.get("precision"), device),
    )


def _scored_label(config: Search, task: Task, published: bool) -> str | None:
    """Return the label whose logit is the score; None for a number. Raises ConfigError if there is no such label.

    The files of a model that others published do not say whether its rows are pairs.
    """
    rerank = f"rerank ({config.rerank})"
    fits = task.kind == "regression" or (task.kind == "classification" and len(task.labels) <= MOST_LABELS)
    if not fits or not (published or takes_pairs(task)):
        labels = f" and has {len(task.labels)} labels" if task.kind == "classification" else ""
        texts = "" if published or takes_pairs(task) else ", of single texts,"
        raise ConfigError(
            f"{rerank} is of kind {task.kind}{texts}{labels}: give a model of pairs of texts, of kind regression or of "
            "kind classification with 1 or 2 labels"
        )
    if config.rerank_label is not None and config.rerank_label not in task.labels:
        names = f"has the labels {listed(task.labels)}" if task.labels else "predicts a number and has no labels"
        raise ConfigError(f"rerank_label ({config.rerank_label}): {rerank} {names}; name one of its labels, or none")
    return config.rerank_label or (task.labels[-1] if task.labels else None)


def reranked(
    encoder: CrossEncoder, queries: Sequence[Query], found: Sequence[Sequence[Found]], top: int, report: Report
) -> list[list[Found]]:
    """Return the `top` texts of each query with the highest scores of the cross-encoder.

    Texts with equal scores keep their order.
    """
    pairs = [(query.text, one.text or "") for query, of_query in zip(queries, found, strict=True) for one in of_query]
    unique = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}  # equal pairs have equal scores
    scores, cut = pair_scores(encoder, list(unique))
    task, longest = encoder.tuned.about.task, encoder.tuned.about.cutting.maximum_length
    scored = f"the logit of {encoder.label}" if encoder.label is not None else "its number"
    truncated = f", {cut:,} of them truncated at {longest} tokens" if cut else ""
    report(f"reranked by {scored} of {task.name}: {len(unique):,} pairs{truncated}, computed in {encoder.precision}")
    of_pairs = iter(scores[[unique[pair] for pair in pairs]].tolist())
    rescored = [[replace(one, rerank_score=next(of_pairs)) for one in of_query] for of_query in found]
    return [sorted(of_query, key=_by_rerank_score)[:top] for of_query in rescored]


def _by_rerank_score(found: Found) -> float:
    """Return the key that sorts the highest score first."""
    assert found.rerank_score is not None
    return -found.rerank_score


def pair_scores(encoder: CrossEncoder, pairs: Sequence[tuple[str, str]]) -> tuple[np.ndarray, int]:
    """Return the score of each pair (query, text), float64 (pairs,), and the number of truncated pairs.

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
