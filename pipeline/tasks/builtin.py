"""A task without a download: which package a documentation string comes from.

Logistic regression on the TF-IDF weights of a text's words (scikit-learn, C=10, sublinear) is right on 0.89 of the development rows, on plain
counts (C=1) on 0.86, and one answer to everything on 1/8; other versions of the installed packages give other figures.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable

import pyarrow as pa

from pipeline.errors import DataError
from pipeline.tasks.tables import Row, texts_table
from pipeline.tasks.task import Task

PACKAGES = 8
TRAIN_ROWS, DEV_ROWS = 600, 100
"""Of each package, at most; of fewer texts the same share is development."""
LONGEST_CHARACTERS = 600
MASK = "package"
"""Stands where a text has the name of its own package as a word."""


def builtin_task(documents: Iterable[tuple[str, str]]) -> tuple[Task, pa.Table, pa.Table]:
    """The task, its training and its development rows (schema TEXTS) of (package, text) pairs: those of the packages with the most texts.

    Every package has as many rows. A text's name of its own package is masked, what is longer than 600 characters is cut, and of what is the
    same then one is kept, or none where packages share it. Which texts are taken, where and in which order depends on their hashes alone.
    Raises DataError for fewer than two packages of two texts each.
    """
    texts = distinct_texts(documents)
    counts = Counter(texts.values())
    packages = sorted(sorted(counts, key=lambda package: (-counts[package], package))[:PACKAGES])
    least = min((counts[package] for package in packages), default=0)
    if len(packages) < 2 or least < 2:
        raise DataError(
            f"the built-in task needs at least 2 packages of at least 2 different texts each, and there are {len(packages)}, the least of {least}"
        )
    dev = max(1, min(DEV_ROWS, least * DEV_ROWS // (TRAIN_ROWS + DEV_ROWS)))
    by_package: dict[str, list[Row]] = defaultdict(list)
    for digest, text in sorted((hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), text) for text in texts):
        by_package[texts[text]].append((digest, text, None, texts[text]))
    task = Task(name="builtin", kind="classification", labels=tuple(packages), metrics=("accuracy", "macro_f1"))
    return task, rows(by_package, packages, dev, min(TRAIN_ROWS + dev, least)), rows(by_package, packages, 0, dev)


def rows(by_package: dict[str, list[Row]], packages: list[str], start: int, end: int) -> pa.Table:
    """These rows of each package, in the order of their hashes, which are their ids."""
    return texts_table(
        "the built-in task", sorted(row for package in packages for row in by_package[package][start:end])
    )


def distinct_texts(documents: Iterable[tuple[str, str]]) -> dict[str, str]:
    """{text as the task shows it: its package}, without those that more than one package has."""
    found: dict[str, set[str]] = defaultdict(set)
    for package, text in documents:
        if shown := masked(package, text):
            found[shown].add(package)
    return {text: next(iter(packages)) for text, packages in found.items() if len(packages) == 1}


def masked(package: str, text: str) -> str:
    """A text on one line, its package's name replaced wherever it is a word, in any case and beside underscores too, and then cut."""
    name = rf"(?<![^\W_]){re.escape(package)}(?![^\W_])"
    return re.sub(name, MASK, " ".join(text.encode("utf-8", "replace").decode().split()), flags=re.IGNORECASE)[
        :LONGEST_CHARACTERS
    ].strip()
