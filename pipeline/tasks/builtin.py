"""A task that needs no download: predict which Python package a documentation string comes from.

Accuracy of baselines on the development rows: 0.89 for logistic regression on TF-IDF word weights (scikit-learn, C=10,
sublinear), 0.86 for logistic regression on plain word counts (C=1), and 1/8 for a constant answer. The figures depend
on the versions of the installed packages.
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
"""Maximum rows per package; packages with fewer texts are split in the same proportion."""
LONGEST_CHARACTERS = 600
MASK = "package"
"""Word that replaces the package's name in its texts."""


def builtin_task(documents: Iterable[tuple[str, str]]) -> tuple[Task, pa.Table, pa.Table]:
    """Return the task with its training and development rows (schema TEXTS), made of (package, text) pairs.

    The packages with the most texts are chosen, and all get the same number of rows. In each text its package's name is
    masked, and the text is truncated at 600 characters. Duplicates are removed; a text that several packages share is
    removed altogether. The choice of texts, their splits and their order depend only on the texts' hashes. Raises
    DataError for fewer than two packages of two texts each.
    """
    texts = _distinct_texts(documents)
    counts = Counter(texts.values())
    packages = sorted(sorted(counts, key=lambda package: (-counts[package], package))[:PACKAGES])
    least = min((counts[package] for package in packages), default=0)
    if len(packages) < 2 or least < 2:
        raise DataError(
            "the built-in task needs at least 2 packages of at least 2 different texts each; packages found: "
            f"{len(packages)}, texts in the smallest: {least}"
        )
    dev = max(1, min(DEV_ROWS, least * DEV_ROWS // (TRAIN_ROWS + DEV_ROWS)))
    by_package: dict[str, list[Row]] = defaultdict(list)
    for digest, text in sorted((hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), text) for text in texts):
        by_package[texts[text]].append((digest, text, None, texts[text]))
    task = Task(name="builtin", kind="classification", labels=tuple(packages), metrics=("accuracy", "macro_f1"))
    return task, _rows(by_package, packages, dev, min(TRAIN_ROWS + dev, least)), _rows(by_package, packages, 0, dev)


def _rows(by_package: dict[str, list[Row]], packages: list[str], start: int, end: int) -> pa.Table:
    """Return rows `start` to `end` (exclusive) of each package, sorted by id, the hash of the text."""
    return texts_table(
        "the built-in task", sorted(row for package in packages for row in by_package[package][start:end])
    )


def _distinct_texts(documents: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return {masked text: package}, without texts that several packages share."""
    packages_of: dict[str, set[str]] = defaultdict(set)
    for package, text in documents:
        if masked := _masked(package, text):
            packages_of[masked].add(package)
    return {text: next(iter(packages)) for text, packages in packages_of.items() if len(packages) == 1}


def _masked(package: str, text: str) -> str:
    """Return a text on one line, truncated, with its package's name masked.

    The name is also masked in other upper or lower case and next to underscores.
    """
    name = rf"(?<![^\W_]){re.escape(package)}(?![^\W_])"
    return re.sub(name, MASK, " ".join(text.encode("utf-8", "replace").decode().split()), flags=re.IGNORECASE)[
        :LONGEST_CHARACTERS
    ].strip()
