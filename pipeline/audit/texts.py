"""The texts that a run is asked about, in splits: the splits of benchmarks, and the user's files."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.audit import Audit
from pipeline.corpus.inputs import list_files
from pipeline.corpus.sources import Source
from pipeline.errors import ConfigError, DataError, listed
from pipeline.evaluation.minimal_pairs.paradigms import read_blimp, sentences_of
from pipeline.files import storage
from pipeline.reporting import Report
from pipeline.tables.squad import Question
from pipeline.tables.texts import texts_of
from pipeline.tasks.known import GLUE, TASKS, read_items, split_location
from pipeline.tasks.task import Task
from pipeline.text.ngrams import LEAST_WORDS, WordSpans

BLIMP = "blimp"
GROUPS: dict[str, Sequence[str]] = {"glue": GLUE, "squad": ("squad1", "squad2")}
"""Names of several tasks, as far as their files are there."""


@dataclass(frozen=True, kw_only=True)
class AuditTexts:
    """Distinct texts, and the splits in which they occur."""

    texts: list[str]
    splits: dict[str, np.ndarray]
    """{name of a split: the indices of its texts, int64}."""
    too_short: np.ndarray
    """bool (texts,): whether a text has too few words to be found."""


def read_texts(config: Audit, report: Report) -> AuditTexts:
    """Read all texts that the settings name.

    Raises ConfigError for an unknown benchmark or one without files, and DataError for a file that cannot be read.
    """
    numbers: dict[str, int] = {}
    splits = {}
    for name, texts in _splits(config, report):
        own = {numbers.setdefault(text, len(numbers)) for text in texts if text.strip()}
        splits[name] = np.array(sorted(own), np.int64)
    texts = list(numbers)
    return AuditTexts(texts=texts, splits=splits, too_short=WordSpans.of(texts).lengths < LEAST_WORDS)


def _splits(config: Audit, report: Report) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield (name, texts) of each split."""
    for name in config.benchmarks:
        assert config.data is not None
        own = storage.join(config.data, name)
        folder = own if storage.children(own) else config.data
        yield from _blimp(folder, report) if name == BLIMP else _tasks(name, folder)
    names = Counter[str]()
    for location in config.text:
        for file in list_files(Source(spec=location, location=location), "text"):
            names[file.name] += 1  # model cards show the names, and have no local paths
            own = file.name if names[file.name] == 1 else f"{file.name} ({names[file.name]})"
            yield own, texts_of(file.location)


def _blimp(folder: str, report: Report) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield BLiMP's sentences, which are one split. Raises ConfigError for a folder without files."""
    if not storage.children(folder):
        raise ConfigError(f"data ({folder}) has no files of {BLIMP}")
    yield BLIMP, sentences_of(read_blimp(folder, report, "data"))


def _tasks(name: str, folder: str) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the splits of a task, or of several, that have a file in the folder."""
    if name not in (*GROUPS, *TASKS):
        raise ConfigError(f"benchmark ({name}) is unknown; choose from {listed((BLIMP, *GROUPS, *TASKS))}")
    tasks = [TASKS[task] for task in GROUPS.get(name, (name,))]
    present = [(task, split) for task in tasks for split in task.splits if split_location(folder, split)]
    if not present:
        files = listed((split.file for task in tasks for split in task.splits), 3)
        raise ConfigError(f"data ({folder}) has no file of {name}, such as {files}")
    for task, split in present:
        for part, texts in _parts(task, folder, split.name):
            yield f"{task.name} {split.name}{part}", texts


def _parts(task: Task, folder: str, split: str) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the texts of a split. Questions and contexts are apart: contexts are often from Wikipedia."""
    items = read_items(task, folder, split, skip=True)[0]
    if isinstance(items, pa.Table):
        columns = [items[name] for name in ("first", "second")]
        columns += [pc.list_flatten(items[name]) for name in items.schema.names if name == "choices"]
        yield "", (text for column in columns for text in column.to_pylist() if text)
        return
    questions = [item for item in items if isinstance(item, Question)]
    if questions:
        yield ", questions", (item.question for item in questions)
        yield ", contexts", (item.context for item in questions)
    else:
        yield "", (" ".join(item.words) for item in items)


def require_findable(texts: AuditTexts) -> None:
    """Raise DataError if all texts are too short."""
    if texts.too_short.all():
        raise DataError(
            f"the {len(texts.texts):,} texts of {listed(texts.splits)} have fewer than {LEAST_WORDS} words, too few to "
            "tell from chance"
        )
