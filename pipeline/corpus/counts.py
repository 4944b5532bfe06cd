"""Count the words of a corpus: tasks count windows, then one task per partition adds up the counts."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.command_line.progress import Progress
from pipeline.corpus.prepared import Corpus, Window, read_window
from pipeline.corpus.weights import NO_FACTORS, documents_of_epoch
from pipeline.files import storage
from pipeline.files.retries import retrying
from pipeline.on_ray.tasks import MOST_BLOCKS, Executor, run_tasks
from pipeline.reporting import Report
from pipeline.text.splitting import Splitting
from pipeline.text.training import COUNTS, counts_table, word_counts

PARTITIONS = 64
"""Number of partitions into which a hash divides the words.

The number is a constant because it changes the result: each partition keeps its own most frequent words.
"""
MOST_WORDS = 5_000_000
"""Maximum distinct words kept, about 200 MB.

In web text, rarer words are misspellings and numbers that occur once or twice.
"""
MOST_UNIGRAM_WORDS = 1_000_000
"""Maximum distinct words kept for a unigram vocabulary.

This limit is lower than MOST_WORDS, because the unigram trainer reads all words in every round. With 800,000 words, it
took 7 minutes on 2 busy cores.
"""
TASK_CHARACTERS = 32_000_000
COMBINED_ROWS = 2_000_000
"""Number of rows (a word and its count in one file) above which a task adds up the rows of each word."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Word counts of a text.

    `table` has the kept words with their counts (schema COUNTS). `characters` and `words` are totals of the text.
    `distinct` is the number of distinct words in the text, and `dropped` is the number of those not in `table`.
    """

    table: pa.Table
    characters: int
    words: int
    distinct: int
    dropped: int


def count_words(
    corpus: Corpus,
    windows: Sequence[Window],
    splitting: Splitting,
    folder: str,
    report: Report,
    *,
    executor: Executor,
    task_characters: int = TASK_CHARACTERS,
    most_words: int = MOST_WORDS,
    factors: Mapping[str, float] = NO_FACTORS,
) -> Counts:
    """Count all words in windows of a corpus. The result does not depend on tasks, CPUs or order.

    Partial counts are written to files in `folder`. If `factors` are given (the result of `language_factors`),
    documents are repeated as in the first epoch of training with these factors.

    Memory is bounded:

    - A counting task holds the distinct words of about `task_characters` characters. For a very large corpus, a task
      has more characters, so that there are about 2,000 tasks.
    - A summing task holds one partition.
    - This process holds at most `most_words` words. Each partition keeps its most frequent words. If words have equal
      counts, the partition keeps the words that come first in code point order.
    """
    tasks = counting_tasks(windows, max(task_characters, sum(window.characters for window in windows) // MOST_BLOCKS))
    characters, files = 0, []
    first = partial(
        write_counts,
        corpus=replace(corpus, train=(), heldout=()),
        splitting=splitting,
        folder=folder,
        factors=factors,
    )
    with Progress(report, "counting words", "windows", len(windows), task="vocabulary") as progress:
        for result in run_tasks(executor, first, tasks):
            files.append(result["file"])
            characters += result["characters"]
            progress.advance(result["windows"], result["characters"])
    second = partial(sum_partition, files=sorted(files), folder=folder, most=max(1, most_words // PARTITIONS))
    sums = sorted(run_tasks(executor, second, list(range(PARTITIONS))), key=lambda result: result["partition"])
    table = pa.concat_tables(_read_table(storage.join(folder, result["file"])) for result in sums)
    distinct = sum(result["distinct"] for result in sums)
    return Counts(
        table=table,
        characters=characters,
        words=sum(result["words"] for result in sums),
        distinct=distinct,
        dropped=distinct - table.num_rows,
    )


def counting_tasks(windows: Sequence[Window], characters: int) -> list[dict[str, Any]]:
    """Divide windows into tasks of about `characters` characters: {"number": index, "windows": tuples of fields}."""
    tasks: list[dict[str, Any]] = []
    size = characters
    for window in windows:
        if size >= characters:
            tasks.append({"number": len(tasks), "windows": []})
            size = 0
        tasks[-1]["windows"].append(astuple(window))
        size += window.characters
    return tasks


def write_counts(
    task: dict[str, Any], corpus: Corpus, splitting: Splitting, folder: str, factors: Mapping[str, float] = NO_FACTORS
) -> dict[str, Any]:
    """Task: count the words of some windows, and write an Arrow file with one batch per partition.

    Returns the file's name and the numbers of windows and characters.
    """
    windows = [Window(shard=s, row_group=g, documents=d, characters=c) for s, g, d, c in task["windows"]]
    counts = word_counts(texts_of(corpus, windows, factors), splitting)
    partitions: list[dict[str, int]] = [{} for _ in range(PARTITIONS)]
    for word, count in counts.items():
        partitions[zlib.crc32(word.encode()) % PARTITIONS][word] = count
    name = f"part-{task['number']:05d}.arrow"
    _write_batches(storage.join(folder, name), [counts_table(words) for words in partitions])
    return {"file": name, "windows": len(windows), "characters": sum(window.characters for window in windows)}


def texts_of(corpus: Corpus, windows: Sequence[Window], factors: Mapping[str, float] = NO_FACTORS) -> Iterator[str]:
    """Yield the text of each document in the windows, once or, with `factors`, as often as in the first epoch."""
    for window in windows:
        documents = documents_of_epoch(corpus, window, factors, 0) if factors else read_window(corpus, window)
        yield from documents.column("text").to_pylist()


def sum_partition(partition: int, files: list[str], folder: str, most: int) -> dict[str, Any]:
    """Task: add up a partition's counts from all files; write the `most` most frequent words, sorted by word.

    Returns the partition, the file's name, and the partition's numbers of distinct words and of all words. Both numbers
    include the words that are not written.
    """
    gathered = [counts_table({})]
    for file in files:
        gathered.append(_read_batch(storage.join(folder, file), partition))
        if sum(table.num_rows for table in gathered[1:]) > COMBINED_ROWS:
            gathered = [sum_by_word(gathered)]
    counts = sum_by_word(gathered)
    kept = counts.sort_by([("count", "descending"), ("word", "ascending")]).slice(0, most)
    name = f"sum-{partition:02d}.arrow"
    _write_batches(storage.join(folder, name), [kept.sort_by("word")])
    return {
        "partition": partition,
        "file": name,
        "distinct": counts.num_rows,
        "words": pc.sum(counts["count"]).as_py() or 0,
    }


def sum_by_word(tables: list[pa.Table]) -> pa.Table:
    """Return one row per word with the sum of its counts."""
    sums = pa.concat_tables(tables).group_by("word").aggregate([("count", "sum")])
    return sums.select(["word", "count_sum"]).rename_columns(["word", "count"]).cast(COUNTS)


def _write_batches(location: str, tables: list[pa.Table]) -> None:
    """Write an Arrow file with one batch for each table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, COUNTS, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for table in tables:
            columns = [
                pa.concat_arrays(column.chunks) if column.num_chunks else column.combine_chunks()
                for column in table.columns
            ]
            writer.write_batch(pa.record_batch(columns, schema=COUNTS))
    storage.write_bytes(location, sink.getvalue())


@retrying
def _read_batch(location: str, number: int) -> pa.Table:
    """Read one batch of an Arrow file."""
    system, path = storage.filesystem(location)
    with system.open_input_file(path) as stream, pa.ipc.open_file(stream) as file:
        return pa.Table.from_batches([file.get_batch(number)])


def _read_table(location: str) -> pa.Table:
    """Read the only batch of an Arrow file."""
    return _read_batch(location, 0)
