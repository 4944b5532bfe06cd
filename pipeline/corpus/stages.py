"""The two stages of preparation on a Ray cluster: files -> parts -> shards, with their progress and the limit on broken input."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from pipeline import storage
from pipeline.config import Preparation
from pipeline.corpus.inputs import InputFile
from pipeline.corpus.parts import Tally, batches, write_parts
from pipeline.corpus.shards import write_shard
from pipeline.corpus.tasks import results
from pipeline.errors import DataError
from pipeline.text.documents import BROKEN_FILE, BROKEN_RECORD, Reason

Report = Callable[[str], None]

PARTS = "parts"
REPORT_SECONDS = 2.0
MILLION = 1e6


def extract(files: Sequence[InputFile], settings: Preparation, folder: str, report: Report) -> tuple[list[str], Tally]:
    """First stage: names of all parts, sorted, and the tally of all files.

    Raises DataError when no text is left, or too many files or records are broken.
    """
    dealt = batches(files)
    work = partial(parts_of, folder=storage.join(folder, PARTS), piece_characters=settings.piece_characters, minimum_characters=settings.minimum_characters)
    tally, parts = Tally(), []

    def line(seconds: float) -> str:
        millions = tally.characters / MILLION
        return f"{tally.files} of {len(files)} files, {millions:.0f} M characters of text, {millions / seconds:.1f} M/s"

    for result in progress(results(work, [[asdict(file) for file in batch] for batch in dealt]), report, line):
        parts += result["parts"]
        tally.add(Tally(**result["tally"]))
        refuse_broken("files", BROKEN_FILE, len(files), settings.error_limit, tally)
    if not tally.pieces:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(tally.dropped.items())) or "no records"
        raise DataError(f"corpus {', '.join(sorted({file.source for file in files}))}: no text is left of {tally.files} files ({reasons})")
    refuse_broken("records", BROKEN_RECORD, tally.pieces + sum(tally.dropped.values()), settings.error_limit, tally)
    return sorted(parts), tally


def parts_of(batch: list[dict[str, Any]], folder: str, piece_characters: int, minimum_characters: int) -> dict[str, Any]:
    """Task of the first stage."""
    return write_parts([InputFile(**file) for file in batch], folder, piece_characters, minimum_characters)


def deal(folder: str, parts: list[str], plan: str, count: int, settings: Preparation, tally: Tally, report: Report) -> list[dict[str, Any]]:
    """Second stage: the reports of all shards, in order; what they drop is added to the tally."""
    work = partial(shard_of, folder=folder, parts=parts, plan=plan, count=count, settings=settings)
    shards: dict[int, dict[str, Any]] = {}
    for number, result in progress(results(work, list(range(count))), report, lambda seconds: f"{len(shards)} of {count} shards"):
        shards[number] = result
        tally.add(Tally(**result["tally"]))
    return [shards[number] for number in range(count)]


def shard_of(number: int, folder: str, parts: list[str], plan: str, count: int, settings: Preparation) -> tuple[int, dict[str, Any]]:
    """Task of the second stage."""
    return number, write_shard(folder, parts, plan, number, count, settings)


def progress(items: Iterable[Any], report: Report, line: Callable[[float], str]) -> Iterator[Any]:
    """Pass items on and report line(seconds since the start) every two seconds and at the end."""
    start = last = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - last >= REPORT_SECONDS:
            last = time.monotonic()
            report(f"prepare: {line(last - start)}")
    report(f"prepare: {line(max(1e-3, time.monotonic() - start))}")


def refuse_broken(what: str, reasons: frozenset[Reason], total: int, limit: float, tally: Tally) -> None:
    """Raise DataError when more than a share are broken; one alone is always tolerated, unless the share is 0."""
    broken = sum(tally.dropped.get(reason, 0) for reason in reasons)
    if broken > limit * total and broken > (limit > 0):
        id, reason = min((sample[0], reason) for reason in reasons for sample in tally.samples.get(reason, []))
        raise DataError(
            f"{broken} of {total} {what} are broken, more than prepare.error_limit ({limit}); "
            f"the first: {id} ({reason}); repair or leave out the input, or raise the limit"
        )
