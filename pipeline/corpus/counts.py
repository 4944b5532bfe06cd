"""Count a corpus' words on a Ray cluster: tasks count windows, then one task per partition sums the counts."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import storage
from pipeline.corpus.prepared import Corpus, Window, read_window
from pipeline.corpus.progress import Progress
from pipeline.corpus.tasks import MOST_BLOCKS, run_tasks
from pipeline.reporting import Report
from pipeline.retries import retrying
from pipeline.text.splitting import Splitting
from pipeline.text.training import COUNTS, counts_table, word_counts

PARTITIONS = 64
"""Partitions of the words, by a hash; constant, because which words are kept depends on it."""
MOST_WORDS = 5_000_000
"""Maximum distinct words kept, about 200 MB; the rest of web text is misspellings and numbers, seen once or twice."""
MOST_UNIGRAM_WORDS = 1_000_000
"""The same for unigram, whose trainer reads all of them in every round: 800,000 took 7 minutes on 2 busy cores."""
TASK_CHARACTERS = 32_000_000
COMBINED_ROWS = 2_000_000
"""Rows that a task gathers before it sums those of the same word."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Words with their counts (schema COUNTS), and totals of characters, words, distinct and dropped distinct words."""

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
    task_characters: int = TASK_CHARACTERS,
    most_words: int = MOST_WORDS,
) -> Counts:
    """Count all words in windows of a corpus; the result does not depend on tasks, CPUs or order.

    Partial counts are written to a folder.

    Memory is bounded: by the distinct words of `task_characters` in the first tasks, by one partition in the second
    ones, and by `most_words` here. Beyond that, the rarest words of each partition are dropped; ties drop the higher
    code points.
    """
    tasks = counting_tasks(windows, max(task_characters, sum(window.characters for window in windows) // MOST_BLOCKS))
    characters, files = 0, []
    first = partial(write_counts, corpus=replace(corpus, train=(), heldout=()), splitting=splitting, folder=folder)
    with Progress(report, "counting words", "windows", len(windows), task="vocabulary") as progress:
        for result in run_tasks(first, tasks):
            files.append(result["file"])
            characters += result["characters"]
            progress.advance(result["windows"], result["characters"])
    second = partial(sum_partition, files=sorted(files), folder=folder, most=max(1, most_words // PARTITIONS))
    added = sorted(run_tasks(second, list(range(PARTITIONS))), key=lambda result: result["partition"])
    table = pa.concat_tables(_read_table(storage.join(folder, result["file"])) for result in added)
    distinct = sum(result["distinct"] for result in added)
    return Counts(
        table=table,
        characters=characters,
        words=sum(result["words"] for result in added),
        distinct=distinct,
        dropped=distinct - table.num_rows,
    )


def counting_tasks(windows: Sequence[Window], characters: int) -> list[dict[str, Any]]:
    """Return tasks of about `characters` each: a number, and windows as lists of their fields."""
    tasks: list[dict[str, Any]] = []
    size = characters
    for window in windows:
        if size >= characters:
            tasks.append({"number": len(tasks), "windows": []})
            size = 0
        tasks[-1]["windows"].append(astuple(window))
        size += window.characters
    return tasks


def write_counts(task: dict[str, Any], corpus: Corpus, splitting: Splitting, folder: str) -> dict[str, Any]:
    """First task: count the words of some windows into a file with one Arrow batch for each partition."""
    windows = [Window(shard=s, row_group=g, documents=d, characters=c) for s, g, d, c in task["windows"]]
    counts = word_counts(texts_of(corpus, windows), splitting)
    partitions: list[dict[str, int]] = [{} for _ in range(PARTITIONS)]
    for word, count in counts.items():
        partitions[zlib.crc32(word.encode()) % PARTITIONS][word] = count
    name = f"part-{task['number']:05d}.arrow"
    _write_batches(storage.join(folder, name), [counts_table(words) for words in partitions])
    return {"file": name, "windows": len(windows), "characters": sum(window.characters for window in windows)}


def texts_of(corpus: Corpus, windows: Sequence[Window]) -> Iterator[str]:
    """Yield the texts of the documents of windows."""
    for window in windows:
        yield from read_window(corpus, window).column("text").to_pylist()


def sum_partition(partition: int, files: list[str], folder: str, most: int) -> dict[str, Any]:
    """Second task: sum one partition over all files and keep its `most` most frequent words, ordered by word."""
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
    added = pa.concat_tables(tables).group_by("word").aggregate([("count", "sum")])
    return added.select(["word", "count_sum"]).rename_columns(["word", "count"]).cast(COUNTS)


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
