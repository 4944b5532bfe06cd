"""Word embeddings from co-occurrences of words in a corpus, made once per corpus, vocabulary and width."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from functools import partial
from typing import Any

import numpy as np
from safetensors.numpy import save

from pipeline.corpus.counts import texts_of
from pipeline.corpus.prepared import Corpus, Window
from pipeline.corpus.vocabulary import first_windows
from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.files.locks import locked_name
from pipeline.files.shared_output import unshared_output
from pipeline.on_ray.tasks import RAY, Executor, run_tasks
from pipeline.reporting import Report
from pipeline.text.cached_tokenizer import CachedTokenizer

WORDS = "words.safetensors"
CHARACTERS = 300_000_000
"""Maximum characters of text to count.

At width 256, a task counts this many in two minutes, with one core and 2 GB of memory.
"""
METHOD = 1
"""Version of the method. The folder's name contains it, so embeddings of other versions are not used."""


def counted_embeddings(
    corpus: Corpus, tokenizer: CachedTokenizer, width: int, output: str, report: Report, executor: Executor = RAY
) -> str:
    """Return the folder of the corpus' word embeddings of length `width`; make them if missing.

    Raises DataError if the folder is damaged, and ConfigError if this machine cannot see the files that a task wrote.
    """
    vocabulary = tokenizer.vocabulary
    folder = storage.join(
        output, "embeddings", f"{corpus.fingerprint[:12]}-{vocabulary.fingerprint[:12]}-{width}-{METHOD}"
    )
    with locked_name(folder, wait=True):  # two runs may need the same embeddings at once
        if not storage.exists(storage.join(folder, storage.MANIFEST)):
            windows = first_windows(corpus, CHARACTERS)
            report(
                f"word embeddings: counting co-occurrences in "
                f"{sum(window.characters for window in windows) / 1e6:,.0f} M characters"
            )
            started = time.monotonic()
            work = partial(
                publish, corpus=replace(corpus, train=(), heldout=()), tokenizer=tokenizer, width=width, folder=folder
            )
            (summary,) = run_tasks(executor, work, [[astuple(window) for window in windows]])
            if not storage.exists(storage.join(folder, storage.MANIFEST)):
                raise unshared_output(output, f"this machine does not have the word embeddings {folder}")
            report(
                f"word embeddings: {summary['seen']:,} of {vocabulary.size:,} entries "
                f"in {time.monotonic() - started:.0f} s, in {folder}"
            )
    if problem := storage.damage(folder):
        raise DataError(f"word embeddings {folder} are damaged ({problem}); delete this folder to compute them again")
    return folder


def publish(
    windows: Sequence[Sequence[Any]], corpus: Corpus, tokenizer: CachedTokenizer, width: int, folder: str
) -> dict[str, int]:
    """Task: count co-occurrences in the windows, and publish the embeddings, float32 (entries, width).

    Each item of `windows` is a list of the fields of a Window.

    Nothing is published if another run has already published the folder: folders at a URL have no lock, so two tasks
    may run at the same time.
    Returns {"seen": number of vocabulary entries that occur}.
    """
    # Imported here because `cooccurrence` imports scikit-learn, which no other process of a run needs.
    from pipeline.text.cooccurrence import (
        cooccurrences,
        embeddings,
    )

    parsed = [Window(shard=s, row_group=g, documents=d, characters=c) for s, g, d, c in windows]
    size = tokenizer.vocabulary.size
    vectors = embeddings(cooccurrences(_documents_of(corpus, parsed, tokenizer), size), width)
    with scratch_folder("embeddings") as temporary:
        # Written here, because a full disk is no OSError in safetensors.
        (temporary / WORDS).write_bytes(save({"words": np.ascontiguousarray(vectors)}))
        if not storage.exists(storage.join(folder, storage.MANIFEST)):
            storage.publish(
                temporary,
                folder,
                {"corpus": corpus.fingerprint, "vocabulary": tokenizer.vocabulary.fingerprint, "width": width},
            )
    return {"seen": int(vectors.any(1).sum())}


def _documents_of(corpus: Corpus, windows: Sequence[Window], tokenizer: CachedTokenizer) -> Iterator[np.ndarray]:
    """Yield the token ids of each document in the windows, int64 (tokens,)."""
    for window in windows:
        documents = [text.split("\n") for text in texts_of(corpus, [window])]
        ids, offsets = tokenizer.encode([line for lines in documents for line in lines])
        yield from np.split(ids.astype(np.int64), offsets[np.cumsum([len(lines) for lines in documents])][:-1])
