"""Sources -> a prepared corpus: document shards in shuffled order, and a manifest that is written last."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.config import Preparation, flatten
from pipeline.corpus.inputs import InputFile, distinct, fingerprint, list_files
from pipeline.corpus.parts import Tally
from pipeline.corpus.shards import shard_count
from pipeline.corpus.sources import BUILTIN, Source, parse
from pipeline.corpus.stages import MILLION, PARTS, Report, deal, extract
from pipeline.errors import ConfigError, DataError
from pipeline.text.schema import DOCUMENT

SPLITS = ("train", "heldout")


@dataclass(frozen=True, kw_only=True)
class Window:
    """One row group of a shard; `shard` is the file's path below the corpus' folder."""

    shard: str
    row_group: int
    documents: int
    characters: int


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A prepared corpus: its windows in their order, and what its manifest counts."""

    folder: str
    fingerprint: str
    train: tuple[Window, ...]
    heldout: tuple[Window, ...]
    counts: dict[str, int]
    dropped: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a corpus is made of: specifications, settings and what tells that an input has changed, as its manifest has them."""

    sources: list[str]
    settings: dict[str, Any]
    inputs: dict[str, list[int | str]]


def prepare(sources: Sequence[str], settings: Preparation, folder: str, report: Report = print) -> Corpus:
    """Prepare a corpus in `folder`, a path or URL, on the Ray that is running; a finished one is given as it is.

    What it holds is a function of the input's contents and the settings, whatever the machines, CPUs or order of files.
    An interrupted preparation is continued. Raises ConfigError and DataError for what the user can fix.
    """
    folder = storage.absolute(folder)
    corpus = finished(sources, settings, folder)
    if corpus is None:
        storage.require_writable("folder", folder)
        with storage.locked(folder):
            refuse_foreign(folder)
            listed = {source: list_files(source) for source in parse_all(sources)}
            build(distinct([file for files in listed.values() for file in files]), settings, folder, plan_of(listed, settings), report)
        corpus = load_corpus(folder)
    delete(storage.join(folder, PARTS))
    report(f"prepare: {folder} is ready: {summary(corpus)}")
    return corpus


def finished(sources: Sequence[str], settings: Preparation, folder: str) -> Corpus | None:
    """The corpus in a folder when it is finished, else None; needs no Ray.

    Raises ConfigError with both values when it was prepared from other sources, settings or inputs.
    """
    parsed = parse_all(sources)
    folder = storage.absolute(folder)
    if not storage.exists(storage.join(folder, storage.MANIFEST)):
        return None
    refuse_differences(folder, plan_of({source: () if source.location == BUILTIN else list_files(source) for source in parsed}, settings))
    return load_corpus(folder)


def plan_of(listed: dict[Source, Sequence[InputFile]], settings: Preparation) -> Plan:
    """The plan of sources with these files; those of the built-in corpus need not be listed."""
    stamps = [fingerprint(source, files) for source, files in listed.items()]
    return Plan(
        sources=sorted(source.spec for source in listed),
        settings=flatten(settings, "prepare."),
        inputs={name: stamp for stamp in stamps for name, stamp in stamp.items()},
    )


def summary(corpus: Corpus) -> str:
    """What a corpus holds, on one line."""
    counts = corpus.counts
    held = f"{counts['heldout_characters'] / MILLION:.1f} M of them held out" if corpus.heldout else "none of them held out"
    return f"{counts['documents']:,} documents, {counts['characters'] / MILLION:.1f} M characters, {held}"


def parse_all(specs: Sequence[str]) -> list[Source]:
    """The sources of a corpus; none: the built-in one. Raises ConfigError for one that is given twice."""
    parsed = [parse(spec) for spec in specs or (BUILTIN,)]
    for place, source in enumerate(parsed):
        if any(source.location == other.location for other in parsed[:place]):
            raise ConfigError(f"corpus {source.spec} is given twice: name it once")
    return parsed


def load_corpus(folder: str) -> Corpus:
    """The corpus in a folder. Raises DataError when there is none, or its manifest cannot be read."""
    folder = storage.absolute(folder)
    try:
        manifest = storage.read_json(storage.join(folder, storage.MANIFEST))
        windows = {split: tuple(Window(shard=s, row_group=g, documents=d, characters=c) for s, g, d, c in manifest[split]) for split in SPLITS}
        return Corpus(folder=folder, fingerprint=manifest["fingerprint"], counts=manifest["counts"], dropped=manifest["dropped"], **windows)
    except FileNotFoundError as error:
        raise DataError(f"{folder} holds no prepared corpus ({storage.MANIFEST} is missing): prepare one there, or name another folder") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}/{storage.MANIFEST} cannot be read ({storage.first_line(error)}): delete the folder and prepare it again") from error


def read_window(corpus: Corpus, window: Window) -> pa.Table:
    """The documents of a window (schema DOCUMENT). Raises DataError where its shard is missing or damaged."""
    location = storage.join(corpus.folder, window.shard)
    system, path = storage.filesystem(location)
    try:
        with pq.ParquetFile(path, filesystem=system) as file:
            return file.read_row_group(window.row_group).cast(DOCUMENT)
    except (OSError, pa.ArrowException, IndexError) as error:
        raise DataError(f"{location} cannot be read ({storage.first_line(error)}): delete {corpus.folder} and prepare it again") from error


def refuse_foreign(folder: str) -> None:
    """Raise ConfigError when a folder without manifest holds what no unfinished preparation leaves."""
    names = [name for name in storage.children(folder) if not name.startswith(".") and not name.endswith(".tmp")]
    foreign = [name for name in names if name not in (PARTS, *SPLITS)] or (names if PARTS not in names else [])
    if foreign:
        raise ConfigError(f"{folder} holds {foreign[0]}, which is not of a prepared corpus: choose an empty or new folder")


def refuse_differences(folder: str, plan: Plan) -> None:
    """Raise ConfigError with the first difference between a finished folder's manifest and what is asked for."""
    try:
        manifest = storage.read_json(storage.join(folder, storage.MANIFEST))
        found = {"corpus": manifest["sources"], **manifest["settings"], **manifest["inputs"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}/{storage.MANIFEST} cannot be read ({storage.first_line(error)}): delete the folder and prepare it again") from error
    wanted = {"corpus": plan.sources, **plan.settings, **plan.inputs}
    for name in [*wanted, *found]:
        if found.get(name) != wanted.get(name):
            raise ConfigError(
                f"{folder} was prepared with {name} {shown(found.get(name))}, now it is {shown(wanted.get(name))}: "
                "choose another folder, or delete this one to prepare it again"
            )


def shown(value: Any) -> str:
    """A value of the plan for people: a file's is [bytes, time of change]."""
    if value is None:
        return "absent"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def build(files: list[InputFile], settings: Preparation, folder: str, plan: Plan, report: Report) -> None:
    """Both stages and the manifest."""
    parts, tally = extract(files, settings, folder, report)
    count = shard_count(tally.characters, settings)
    cut = hashlib.blake2b(json.dumps([parts, count, plan.settings]).encode(), digest_size=8).hexdigest()
    shards = deal(folder, parts, cut, count, settings, tally, report)
    manifest = asdict(plan) | contents(shards, tally) | {"dropped": tally.dropped, "samples": tally.samples}
    if not manifest["train"]:
        share = f"prepare.heldout_share ({settings.heldout_share})"
        raise DataError(f"corpus {', '.join(plan.sources)}: all text fell to the held-out set by {share}: set it to 0 or add documents")
    delete_strangers(folder, {window[0] for split in SPLITS for window in manifest[split]})
    storage.write_json(storage.join(folder, storage.MANIFEST), manifest)


def contents(shards: list[dict[str, Any]], tally: Tally) -> dict[str, Any]:
    """The manifest's windows, counts and fingerprint."""
    windows = {
        split: [[f"{split}/{number:05d}.parquet", group, *sizes] for number, shard in enumerate(shards) for group, sizes in enumerate(shard[split]["windows"])]
        for split in SPLITS
    }
    every = windows["train"] + windows["heldout"]
    counts = {
        "files": tally.files,
        "documents": sum(shard[split]["firsts"] for shard in shards for split in SPLITS),
        "pieces": sum(window[2] for window in every),
        "characters": sum(window[3] for window in every),
        "windows": len(every),
        "heldout_pieces": sum(window[2] for window in windows["heldout"]),
        "heldout_characters": sum(window[3] for window in windows["heldout"]),
        "heldout_windows": len(windows["heldout"]),
    }
    digests = [[shard[split]["digest"] for shard in shards] for split in SPLITS]
    return windows | {"counts": counts, "fingerprint": hashlib.sha256(json.dumps(digests).encode()).hexdigest()}


def delete(folder: str) -> None:
    """Delete a folder if it is there."""
    if storage.exists(folder):
        storage.delete_folder(folder)


def delete_strangers(folder: str, shards: set[str]) -> None:
    """Delete shards that an interrupted preparation with other inputs left behind."""
    for split in SPLITS:
        for name in storage.children(storage.join(folder, split)):
            if f"{split}/{name}" not in shards:
                system, path = storage.filesystem(storage.join(folder, split, name))
                system.delete_file(path)
