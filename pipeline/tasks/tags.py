"""Word tagging as a kind of task: the input is sentences, the answers are one tag per word."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.errors import DataError, shown
from pipeline.tasks import tagging
from pipeline.tasks.intents import METRICS, commonest_intent, intent_scores, intents_of, with_intents
from pipeline.tasks.metrics.entities import (
    OUTSIDE,
    as_iob,
    begun_inside,
    iob2,
    is_chunk_tag,
    is_span_tag,
    respelled,
    score_entities,
)
from pipeline.tasks.pieces import Tokenization
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.schema import ENCODED
from pipeline.tasks.tagging import PredictedTags, Sentence, Tagging
from pipeline.tasks.task import FEW_CLASSES, ROWS_PER_CLASS, Task
from pipeline.text.vocabulary import Vocabulary


def prepare(task: Task, items: Sequence[Sentence], vocabulary: Vocabulary, cutting: Truncation) -> Prepared:
    """Encode each sentence as windows of at most cutting.maximum_length tokens, in order, with a label per token.

    Raises DataError for an unknown tag or intent.
    """
    assert cutting.maximum_length is not None and cutting.stride is not None
    settings = Tagging(
        maximum_length=cutting.maximum_length,
        stride=cutting.stride,
        label_all_pieces=cutting.label_all_pieces,
        continuation=cutting.continuation,
    )
    by_sentence = tagging.encode(Tokenization(vocabulary), items, task.labels, settings)
    by_sentence = with_intents(task, items, by_sentence, cutting)
    flat = [(index, window) for index, group in enumerate(by_sentence) for window in group]
    columns = {
        "ids": pa.array([window.ids for _, window in flat], ENCODED.field("ids").type),
        "first_length": pa.array([len(window.ids) for _, window in flat], pa.int32()),
        "label": pa.nulls(len(flat), pa.float32()),
        "labels": pa.array([window.labels.astype(np.float32) for _, window in flat], ENCODED.field("labels").type),
        "row": pa.array([index for index, _ in flat], pa.int64()),
    }
    longer = sum(len(group) > 1 for group in by_sentence)
    notes = (f"{longer:,} sentences in several windows of {cutting.maximum_length} tokens",) if longer else ()
    return Prepared(items=items, rows=pa.table(columns, schema=ENCODED), windows=by_sentence, notes=notes)


def answers(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> list[PredictedTags]:
    """Return the likeliest tag of each word, and the likeliest intent if the task has intents.

    `logits` has one array (L, outputs) per window.
    """
    tags, predicted = len(task.labels), []
    for sentence, windows, of_windows in _by_sentence(prepared, logits):
        likeliest = [window[:, :tags].argmax(-1) for window in of_windows]
        predicted.append(tagging.predicted_tags(len(sentence.words), windows, likeliest, task.labels))
    return _with_intents(task, prepared, logits, predicted)


def chain_answers(
    task: Task,
    prepared: Prepared,
    logits: Logits,
    best_paths: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]],
) -> list[PredictedTags]:
    """Return the best tag sequence of each sentence, whole sentences at once, however many windows they have.

    `logits` is as in `answers`. `best_paths` maps the scores of each sentence (words, tags) to tag indices (words,).
    """
    scored = [
        tagging.word_scores(len(sentence.words), windows, of_windows, task.labels)
        for sentence, windows, of_windows in _by_sentence(prepared, logits)
    ]
    paths = best_paths([scores for scores, _ in scored])
    predicted = [
        PredictedTags(tags=tuple(task.labels[number] for number in path), unseen=unseen)
        for path, (_, unseen) in zip(paths, scored, strict=True)
    ]
    return _with_intents(task, prepared, logits, predicted)


def _with_intents(
    task: Task, prepared: Prepared, logits: Logits, predicted: Sequence[PredictedTags]
) -> list[PredictedTags]:
    """Return the answers, with the likeliest intent of each sentence if the task has intents."""
    if not task.intents:
        return list(predicted)
    likeliest = intent_logits(task, prepared, logits).argmax(axis=1)
    return [replace(answer, intent=task.intents[number]) for answer, number in zip(predicted, likeliest, strict=True)]


def intent_logits(task: Task, prepared: Prepared, logits: Logits) -> np.ndarray:
    """Return the logits of the task's intents for each sentence, (sentences, intents)."""
    firsts = [of_windows[0][0] for _, _, of_windows in _by_sentence(prepared, logits)]
    return np.array(firsts)[:, -len(task.intents) :]


def tag_probabilities(
    task: Task,
    prepared: Prepared,
    logits: Logits,
    predicted: Sequence[PredictedTags],
    of_tags: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] | None = None,
) -> list[list[float | None]]:
    """Return the probability of each word's predicted tag, per sentence; None for a word without a token in any window.

    `logits` is as in `answers`. `of_tags` maps the scores of each sentence (words, tags) to probabilities of the same
    shape; None: a softmax over the tags.
    """
    scored = [
        (windows, tagging.word_scores(len(sentence.words), windows, of_windows, task.labels)[0])
        for sentence, windows, of_windows in _by_sentence(prepared, logits)
    ]
    shares = (of_tags or _softmax)([scores for _, scores in scored])
    numbers, found = {tag: number for number, tag in enumerate(task.labels)}, []
    for (windows, _), of_words, answer in zip(scored, shares, predicted, strict=True):
        seen = {word for window in windows for word in window.words[window.first].tolist()}
        found.append(
            [float(of_words[word, numbers[tag]]) if word in seen else None for word, tag in enumerate(answer.tags)]
        )
    return found


def _softmax(sentences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the softmax of each sentence's scores over the tags, float32 (words, tags)."""
    powers = [np.exp(scores - scores.max(axis=1, keepdims=True)) for scores in sentences]
    return [of_words / of_words.sum(axis=1, keepdims=True) for of_words in powers]


def _by_sentence(prepared: Prepared, logits: Logits) -> Iterator[tuple[Sentence, Sequence[Any], Logits]]:
    """Yield each sentence with its windows and their logits."""
    start = 0
    for sentence, windows in zip(prepared.items, prepared.windows, strict=True):
        yield sentence, windows, logits[start : start + len(windows)]
        start += len(windows)


def chunks(task: Task) -> bool:
    """Return whether the tags are chunk tags of IOB2, BIOES or BILOU, so that entities can be scored."""
    return all(map(is_span_tag, task.labels))


def _tag_scores(task: Task, true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return scores as shares of 1.

    For chunk tags: accuracy, and the scores of entities, overall and by type. For other tags: accuracy alone. Chunk
    tags are compared in IOB2, as files are read.
    """
    if chunks(task):
        true, predicted = ([tuple(map(as_iob, tags)) for tags in sentences] for sentences in (true, predicted))
        if begun_inside(task.labels):
            predicted = list(map(iob2, predicted))
    scores = score_entities(true, predicted)
    shares = {name: value / 100 for name, value in scores.items() if not name.endswith("entities")}
    return shares if chunks(task) else {"accuracy": shares["accuracy"]}


def score(
    task: Task, prepared: Prepared, predicted: Sequence[PredictedTags], thresholds: Thresholds
) -> dict[str, float]:
    """Return `_tag_scores` of the most likely tags; with intents, `intent_scores` come first."""
    scores = _tag_scores(task, [item.tags for item in prepared.items], [answer.tags for answer in predicted])
    return (intent_scores(prepared.items, predicted) if task.intents else {}) | scores


def baseline(task: Task, train: Prepared, prepared: Prepared) -> dict[str, float]:
    """Return the scores of tagging each word with its most frequent training tag.

    Words that do not occur in training get the overall most frequent tag. Each sentence gets the most frequent intent.
    """
    counts: dict[str, dict[str, int]] = {}
    for sentence in train.items:
        for word, tag in zip(sentence.words, sentence.tags):
            counts.setdefault(word, {})[tag] = counts.setdefault(word, {}).get(tag, 0) + 1
    best = {word: max(tags, key=lambda tag: (tags[tag], tag)) for word, tags in counts.items()}
    overall: dict[str, int] = {}
    for tags in counts.values():
        for tag, times in tags.items():
            overall[tag] = overall.get(tag, 0) + times
    common = max(overall, key=lambda tag: (overall[tag], tag))
    intent = commonest_intent(train.items) if task.intents else None
    predicted = [
        PredictedTags(tags=tuple(best.get(word, common) for word in item.words), unseen=0, intent=intent)
        for item in prepared.items
    ]
    return score(task, prepared, predicted, {})


def tune(task: Task, prepared: Prepared, predicted: Sequence[PredictedTags]) -> Thresholds:
    """Return an empty dict, because tagging has no values to tune."""
    return {}


def collapsed(task: Task, prepared: Prepared, predicted: Sequence[PredictedTags]) -> bool:
    """Return whether all words have the same tag."""
    return len({tag for answer in predicted for tag in answer.tags}) < 2


def details(
    task: Task, prepared: Prepared, predicted: Sequence[PredictedTags], thresholds: Thresholds
) -> dict[str, Any]:
    """Return an empty dict, because `score` already has the scores of each type."""
    return {}


def in_standard_spelling(task: Task) -> Task:
    """Return the task with labels spelled as files are read, such as B-PER for B_PER, if all are then chunk tags."""
    labels = tuple(map(respelled, task.labels))
    return replace(task, labels=labels) if len(set(labels)) == len(labels) and all(map(is_span_tag, labels)) else task


def own_task(name: str, location: str, items: Sequence[Sentence]) -> Task:
    """Return the task that a file's tags and intents define.

    Raises DataError for a single tag or too few words per tag.
    """
    names = tagging.tag_names(items)
    if len(names) < 2:
        raise DataError(
            f"{location}: all words have the tag {names[0]}; training needs at least two different tags: is another "
            "column that of the tags? Name it with --label"
        )
    words = sum(len(item.tags) for item in items)
    if len(names) > FEW_CLASSES and ROWS_PER_CLASS * len(names) > words:
        raise DataError(
            f"{location}: {len(names):,} different tags (the first: {shown(items[0].tags[0])}) on {words:,} words are "
            f"fewer than {ROWS_PER_CLASS} words per tag; name the column of the tags with --label"
        )
    metrics = (
        ("f1", "precision", "recall", "accuracy")
        if all(map(is_chunk_tag, names)) and names != (OUTSIDE,)
        else ("accuracy",)
    )
    intents = intents_of(items)
    return Task(
        name=name, kind="tags", labels=names, intents=intents, metrics=(*(METRICS if intents else ()), *metrics)
    )
