"""Run the stages of preparation as tasks: files -> parts -> overlaps -> shards.

The stages report their progress and stop if too much input is broken.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from pipeline.command_line.progress import Progress
from pipeline.config.data import Preparation
from pipeline.corpus.inputs import InputFile, split_into_ranges
from pipeline.corpus.overlaps import write_overlap
from pipeline.corpus.parts import Tally, batches, least_parents, records, write_parts
from pipeline.corpus.shards import write_shard
from pipeline.errors import DataError, listed
from pipeline.files import storage
from pipeline.files.web import WEB, patience
from pipeline.on_ray.tasks import Executor, fetch_and_run_tasks, run_tasks
from pipeline.reporting import Report
from pipeline.text.documents import BROKEN_FILE, BROKEN_RECORD, Reason
from pipeline.wikipedia.dump_ranges import fetch_range

PARTS = "parts"
WEB_CONNECTIONS = 2
"""Maximum concurrent connections to web servers: the limit of dumps.wikimedia.org."""
Tallies = dict[str, Tally]
"""Tallies of the input, by source."""


def extract(
    files: Sequence[InputFile], settings: Preparation, folder: str, report: Report, executor: Executor
) -> tuple[list[str], np.ndarray, Tallies]:
    """Run the first stage, which writes parts; return the parts' names, the smallest parent hashes, and the tallies.

    The names are sorted. The hashes are uint64, as from `least_parents`. Files that an earlier run has read are not
    read again.

    Raises DataError if no text is kept, or if too many files or records are broken.
    """
    split_files = {file.location: split_into_ranges(file) for file in files}
    inputs = [file_range for file_ranges, _ in split_files.values() for file_range in file_ranges]
    heads = {location: head for location, (_, head) in split_files.items() if head}
    done = _reusable(records(storage.join(folder, PARTS), settings), inputs)
    have = {_file_key(file) for record in done for file in record["files"]}
    waiting = [file for file in inputs if _file_key(asdict(file)) not in have]
    tallies: Tallies = {}
    parts: list[str] = []
    parents: list[int] = []
    with Progress(report, "reading", "files", len(inputs)) as progress:
        progress.skip(len(inputs) - len(waiting))
        for record in chain(done, _extract_files(waiting, heads, settings, folder, report, executor)):
            parts += record["parts"]
            parents += record["parents"]
            _add_tallies(tallies, record["tallies"])
            _refuse_broken("files", BROKEN_FILE, len(inputs), settings.error_limit, tallies)
            if record not in done:
                progress.advance(len(record["files"]), sum(tally["characters"] for tally in record["tallies"].values()))
    _require_text(tallies)
    total = total_tally(tallies)
    _refuse_broken("records", BROKEN_RECORD, total.pieces + sum(total.dropped.values()), settings.error_limit, tallies)
    return sorted(parts), least_parents(np.array(parents, np.uint64)), tallies


def _extract_files(
    files: Sequence[InputFile],
    heads: Mapping[str, bytes],
    settings: Preparation,
    folder: str,
    report: Report,
    executor: Executor,
) -> Iterator[dict[str, Any]]:
    """Read files, write their parts and yield the record of each batch.

    At most WEB_CONNECTIONS tasks read from web servers at once. For ranges of web files, these tasks only download, and
    other tasks process the downloaded bytes.
    """
    work = partial(_parts_task, folder=storage.join(folder, PARTS), settings=settings, heads=heads)
    if web := [file for file in files if file.location.startswith(WEB)]:
        with executor.relay_reports(report) as say:
            whole = _batch_items([file for file in web if file.start is None])
            yield from run_tasks(executor, partial(work, report=say), whole, WEB_CONNECTIONS)
            fetching = partial(_fetch_task, seconds=settings.web_timeout, report=say)
            ranged = _batch_items([file for file in web if file.start is not None])
            yield from fetch_and_run_tasks(executor, fetching, WEB_CONNECTIONS, partial(work, report=say), ranged)
    yield from run_tasks(executor, work, _batch_items([file for file in files if not file.location.startswith(WEB)]))


def _batch_items(files: Sequence[InputFile]) -> list[list[dict[str, Any]]]:
    """Return the batches of files as JSON values."""
    return [[asdict(file) for file in batch] for batch in batches(files)]


def _fetch_task(batch: list[dict[str, Any]], seconds: float, report: Report) -> list[bytes]:
    """Task of the first stage: download the ranges of a batch. It waits at most `seconds` for the next byte."""
    with patience(seconds, report):
        return [fetch_range(file["location"], file["start"], file["stop"], file["stamp"]) for file in batch]


def _parts_task(
    batch: list[dict[str, Any]],
    fetched: list[bytes] | None = None,
    *,
    folder: str,
    settings: Preparation,
    heads: Mapping[str, bytes],
    report: Report = print,
) -> dict[str, Any]:
    """Task of the first stage: write the parts of a batch; `report` receives lines about web servers."""
    with patience(settings.web_timeout, report):
        return write_parts([InputFile(**file) for file in batch], folder, settings, heads, fetched)


def _file_key(file: dict[str, Any]) -> tuple[Any, ...]:
    """Return a tuple that identifies a file, or a range of a file."""
    return astuple(InputFile(**file))


def _reusable(finished: dict[str, dict[str, Any]], files: Sequence[InputFile]) -> list[dict[str, Any]]:
    """Return the records of finished batches whose files are all in `files`. No file is in two returned records."""
    wanted = {_file_key(asdict(file)) for file in files}
    chosen = []
    for _, record in sorted(finished.items()):
        held = {_file_key(file) for file in record["files"]}
        if held <= wanted:
            wanted -= held
            chosen.append(record)
    return chosen


def find_overlaps(
    folder: str, parts: list[str], plan: str, count: int, heldout_share: float, report: Report, executor: Executor
) -> None:
    """Run the second stage, which finds texts contained in other texts."""
    work = partial(_overlap_task, folder=folder, parts=parts, plan=plan, count=count, heldout_share=heldout_share)
    with Progress(report, "comparing", "ranges of hashes", count) as progress:
        for _ in run_tasks(executor, work, list(range(count))):
            progress.advance(1)


def _overlap_task(number: int, folder: str, parts: list[str], plan: str, count: int, heldout_share: float) -> None:
    """Task of the second stage: compare one range of hashes."""
    write_overlap(folder, parts, plan, number, count, heldout_share)


def shuffle_into_shards(
    folder: str,
    parts: list[str],
    plan: str,
    count: int,
    settings: Preparation,
    tallies: Tallies,
    report: Report,
    executor: Executor,
) -> list[dict[str, Any]]:
    """Run the third stage, which writes all shards; return the shards' reports in order. Adds drops to `tallies`."""
    work = partial(_shard_task, folder=folder, parts=parts, plan=plan, count=count, settings=settings)
    shards: dict[int, dict[str, Any]] = {}
    with Progress(report, "shuffling", "shards", count) as progress:
        for number, result in run_tasks(executor, work, list(range(count))):
            shards[number] = result
            _add_tallies(tallies, result["tallies"])
            progress.advance(1)
    return [shards[number] for number in range(count)]


def _shard_task(
    number: int, folder: str, parts: list[str], plan: str, count: int, settings: Preparation
) -> tuple[int, dict[str, Any]]:
    """Task of the third stage: write one shard."""
    return number, write_shard(folder, parts, plan, number, count, settings)


def _add_tallies(tallies: Tallies, more: dict[str, dict[str, Any]]) -> None:
    """Add `more`, which has each tally as a dict, to `tallies`."""
    for source, tally in more.items():
        tallies.setdefault(source, Tally()).add(Tally(**tally))


def total_tally(tallies: Tallies) -> Tally:
    """Return the sum of the tallies of all sources."""
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    return total


def _require_text(tallies: Tallies) -> None:
    """Raise DataError if no text was kept."""
    total = total_tally(tallies)
    if not total.pieces:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(total.dropped.items())) or "no records"
        raise DataError(f"corpus {listed(sorted(tallies))}: no text of the {total.files} files was kept ({reasons})")


def _refuse_broken(things: str, reasons: frozenset[Reason], count: int, limit: float, tallies: Tallies) -> None:
    """Raise DataError if more than the share `limit` of `count` things ("files" or "records") were dropped as broken.

    If the limit is above 0, one broken thing is always tolerated. `reasons` are the drop reasons that count as broken.
    """
    total = total_tally(tallies)
    broken = sum(total.dropped.get(reason, 0) for reason in reasons)
    if broken > limit * count and broken > (limit > 0):
        id, reason = min((sample[0], reason) for reason in reasons for sample in total.samples.get(reason, []))
        raise DataError(
            f"{broken} of {count} {things} are broken, more than prepare.error_limit ({limit}); "
            f"the first: {id} ({reason}); repair or leave out the input, or raise the limit"
        )
