"""Tags of words as a kind of task: sentences in, a tag for every word out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.finetune import Cutting
from pipeline.errors import DataError, shown
from pipeline.tasks import tagging
from pipeline.tasks.entities import OUTSIDE, is_chunk_tag, score_entities
from pipeline.tasks.pieces import Tokenization
from pipeline.tasks.prepared import Logits, Prepared, Tuned
from pipeline.tasks.schema import ENCODED
from pipeline.tasks.tagging import PredictedTags, Sentence, Tagging
from pipeline.tasks.task import FEW_CLASSES, ROWS_PER_CLASS, Task
from pipeline.text.vocabulary import Vocabulary


def prepare(task: Task, items: Sequence[Sentence], vocabulary: Vocabulary, cutting: Cutting) -> Prepared:
    """The windows of each sentence, in order, with a label for each token. Raises DataError for a tag that is none of the task's."""
    assert cutting.maximum_length is not None and cutting.stride is not None
    how = Tagging(
        maximum_length=cutting.maximum_length, stride=cutting.stride, label_all_pieces=cutting.label_all_pieces
    )
    found = tagging.encode(Tokenization(vocabulary), items, task.labels, how)
    flat = [(place, window) for place, ones in enumerate(found) for window in ones]
    columns = {
        "ids": pa.array([window.ids for _, window in flat], ENCODED.field("ids").type),
        "first_length": pa.array([len(window.ids) for _, window in flat], pa.int32()),
        "label": pa.nulls(len(flat), pa.float32()),
        "labels": pa.array([window.labels.astype(np.float32) for _, window in flat], ENCODED.field("labels").type),
        "row": pa.array([place for place, _ in flat], pa.int64()),
    }
    longer = sum(len(ones) > 1 for ones in found)
    notes = (f"{longer:,} sentences in several windows of {cutting.maximum_length} tokens",) if longer else ()
    return Prepared(items=items, rows=pa.table(columns, schema=ENCODED), windows=found, notes=notes)


def answers(task: Task, prepared: Prepared, logits: Logits, cutting: Cutting) -> list[PredictedTags]:
    """The tags of each sentence; logits (L, tags) of each window."""
    found, start = [], 0
    for sentence, ones in zip(prepared.items, prepared.windows, strict=True):
        likeliest = [window.argmax(-1) for window in logits[start : start + len(ones)]]
        start += len(ones)
        found.append(tagging.predicted_tags(len(sentence.words), ones, likeliest, task.labels))
    return found


def chunks(task: Task) -> bool:
    """Whether the tags are those of chunks, and entities can be scored."""
    return all(map(is_chunk_tag, task.labels))


def tag_scores(task: Task, true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Scores as shares of 1: of entities with their types', or of words alone."""
    found = score_entities(true, predicted)
    shares = {name: value / 100 for name, value in found.items() if not name.endswith("entities")}
    return shares if chunks(task) else {"accuracy": shares["accuracy"]}


def score(task: Task, prepared: Prepared, found: Sequence[PredictedTags], tuned: Tuned) -> dict[str, float]:
    """As `figures`, of the likeliest tags."""
    return tag_scores(task, [item.tags for item in prepared.items], [one.tags for one in found])


def baseline(task: Task, train: Prepared, prepared: Prepared) -> dict[str, float]:
    """Scores of each word's commonest tag in the training sentences, and the commonest tag of all for words that are not in them."""
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
    return tag_scores(
        task,
        [item.tags for item in prepared.items],
        [[best.get(word, common) for word in item.words] for item in prepared.items],
    )


def tune(task: Task, prepared: Prepared, found: Sequence[PredictedTags]) -> Tuned:
    """Nothing."""
    return {}


def collapsed(task: Task, prepared: Prepared, found: Sequence[PredictedTags]) -> bool:
    """Whether all words have the same tag, or none an entity."""
    return len({tag for one in found for tag in one.tags}) < 2


def details(task: Task, prepared: Prepared, found: Sequence[PredictedTags], tuned: Tuned) -> dict[str, Any]:
    """Nothing: types have their figures among the scores."""
    return {}


def own_task(name: str, location: str, items: Sequence[Sentence]) -> Task:
    """The task that a file's tags make. Raises DataError where there is one tag only, or nearly one for each word."""
    names = tagging.tag_names(items)
    if len(names) < 2:
        raise DataError(f"{location}: all words have the tag {names[0]}; training needs two different ones at least")
    words = sum(len(item.tags) for item in items)
    if len(names) > FEW_CLASSES and ROWS_PER_CLASS * len(names) > words:
        raise DataError(
            f"{location}: {len(names):,} different tags on {words:,} words, the first {shown(items[0].tags[0])}: fewer than {ROWS_PER_CLASS} words for each; name the column of the tags with --label"
        )
    metrics = (
        ("f1", "precision", "recall", "accuracy")
        if all(map(is_chunk_tag, names)) and names != (OUTSIDE,)
        else ("accuracy",)
    )
    return Task(name=name, kind="tags", labels=names, metrics=metrics)
