"""Sentences with an intent and a tag per word: intent detection and slot filling, learnt together.

As in Chen et al. 2019 (arXiv:1902.10909), one encoder gives the intent from the state of [CLS] and the slots from the
states of the words. Here one layer gives both, so that config.json can name all outputs: those of intents come last.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.config.cutting import Truncation
from pipeline.errors import DataError, listed, shown
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.content import existing_file, lines
from pipeline.tasks.prepared import outputs_of
from pipeline.tasks.tagging import PredictedTags, Sentence, TaggingWindow, Utterance, sentences_in
from pipeline.tasks.task import Task

INTENT_PREFIX = "intent:"
"""Beginning of the names of intents in config.json, so that they differ from tags."""
METRICS = ("frame_accuracy", "intent_accuracy")
"""Shares of sentences with the right intent and all tags right (Goo et al. 2018: sentence-level semantic frame
accuracy), and with the right intent.
"""


def read_utterances(location: str, tags_file: str, intents_file: str, bad: BadRows) -> list[Sentence]:
    """Return the sentences of three files with a line per sentence.

    `location` is the file of words; the files with these names of the tags and of the intents lie next to it. Words and
    tags are separated by spaces. Raises DataError for a missing file, and for files of unequal numbers of lines. A line
    without words, without an intent, or with more or fewer tags than words is bad: `bad` skips it or raises DataError.
    """
    files = (location, _beside(location, tags_file), _beside(location, intents_file))
    words, tags, intents = (list(lines(file)) for file in files)
    if not len(words) == len(tags) == len(intents):
        raise DataError(
            f"{location} has {len(words):,} lines, {tags_file} {len(tags):,} and {intents_file} {len(intents):,}: give "
            "one line per sentence in each"
        )
    rows = enumerate(zip(words, tags, intents, strict=True), 1)
    return sentences_in(location, rows, (location.rsplit("/", 1)[-1], tags_file), bad)


def _beside(location: str, name: str) -> str:
    """Return the location of a file next to `location`, plain or compressed. Raises DataError if it does not exist."""
    wanted = f"{location.rsplit('/', 1)[0]}/{name}"
    if (found := existing_file(wanted)) is None:
        raise DataError(f"{wanted} does not exist: words, tags and intents are three files in one folder")
    return found


def intents_of(items: Sequence[Sentence]) -> tuple[str, ...]:
    """Return all intents, sorted; empty if the sentences have none."""
    return tuple(sorted({item.intent for item in items if isinstance(item, Utterance)}))


def with_intents(
    task: Task, items: Sequence[Sentence], windows: list[list[TaggingWindow]], cutting: Truncation
) -> list[list[TaggingWindow]]:
    """Return the windows of each sentence, with the intent as the label of the first token of its first window.

    Raises DataError for sentences without intents, and for an intent that the task lacks.
    """
    if not task.intents:
        return windows
    start = outputs_of(task, cutting) - len(task.intents)
    numbers = {intent: start + number for number, intent in enumerate(task.intents)}
    labelled = []
    for item, (first, *others) in zip(items, windows, strict=True):
        if not isinstance(item, Utterance):
            raise DataError(f"the sentences have no intents, but {task.name} was learnt with intents: add their column")
        if item.intent not in numbers:
            raise DataError(
                f"intent {shown(item.intent)} is not among the {len(numbers)} intents learnt: "
                f"{listed(task.intents)}; correct the file, or train on a file with that intent"
            )
        labels = np.concatenate(([numbers[item.intent]], first.labels[1:]))
        labelled.append([replace(first, labels=labels), *others])
    return labelled


def intent_scores(true: Sequence[Utterance], predicted: Sequence[PredictedTags]) -> dict[str, float]:
    """Return METRICS as shares of 1."""
    pairs = list(zip(true, predicted, strict=True))
    intents = [item.intent == answer.intent for item, answer in pairs]
    frames = [right and item.tags == answer.tags for right, (item, answer) in zip(intents, pairs, strict=True)]
    return dict(zip(METRICS, (float(np.mean(frames)), float(np.mean(intents))), strict=True))


def commonest_intent(items: Sequence[Sentence]) -> str:
    """Return the most frequent intent; of equally frequent ones, the last in the alphabet."""
    counts = Counter(item.intent for item in items if isinstance(item, Utterance))
    return max(counts, key=lambda intent: (counts[intent], intent))
