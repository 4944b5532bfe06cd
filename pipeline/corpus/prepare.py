"""Prepare a corpus from sources: document shards in shuffled order, and a manifest that is written last."""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from typing import Any

from pipeline.command_line.progress import MILLION
from pipeline.config.data import PAIRS, PASSING, Preparation
from pipeline.config.flat import flatten
from pipeline.config.locations import BUILTIN
from pipeline.corpus.inputs import InputFile, fingerprint, list_files, with_distinct_names
from pipeline.corpus.overlaps import heldout_share
from pipeline.corpus.parts import Tally
from pipeline.corpus.prepared import COUNTED, SPLITS, Corpus, load_corpus, unreadable_manifest
from pipeline.corpus.shards import excluded_file, shard_count
from pipeline.corpus.sources import KEYS, Source, parse
from pipeline.corpus.stages import PARTS, Tallies, extract, find_overlaps, shuffle_into_shards, total_tally
from pipeline.errors import ConfigError, DataError, listed
from pipeline.files import storage
from pipeline.files.locations import is_url
from pipeline.files.locks import locked
from pipeline.files.web import patience
from pipeline.on_ray.tasks import RAY, Executor
from pipeline.reporting import Report

UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.tmp$")
"""Suffix of a file while it is being written."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Inputs of a corpus in the form of the manifest: source options, settings, sizes and stamps of input files."""

    sources: dict[str, dict[str, Any]]
    settings: dict[str, Any]
    inputs: dict[str, list[int | str]]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Sources of a corpus and their files, and the settings and folder of its preparation.

    The files are listed only once.
    """

    sources: dict[Source, list[InputFile]]
    """Files of each source, without files in the corpus folder; empty for the built-in source."""
    settings: Preparation
    folder: str
    exclude: tuple[str, ...] = ()
    """Files with texts that the corpus must not contain."""

    @property
    def formats(self) -> list[str | None]:
        """Formats of the sources, as far as the user named them."""
        return [source.format for source in self.sources]

    @cached_property
    def plan(self) -> Plan:
        stamps = [fingerprint(source, files) for source, files in self.sources.items()]
        settings = flatten(self.settings, "prepare.")
        excluded = {"exclude": _stamps(self.exclude)} if self.exclude else {}
        return Plan(
            sources={source.location: {name: getattr(source, name) for name in KEYS} for source in self.sources},
            settings={name: value for name, value in settings.items() if name not in PASSING} | excluded,
            inputs={name: stamp for stamp in stamps for name, stamp in stamp.items()},
        )


def list_sources(
    sources: Sequence[str], settings: Preparation, folder: str, report: Report, exclude: Sequence[str] = ()
) -> Listing:
    """List the files of each source, and those with texts to exclude.

    Raises ConfigError for a source without files, and DataError for an unreadable source.
    """
    with patience(settings.web_timeout, report):
        stored = {source: [] if source.location == BUILTIN else list_files(source) for source in _parse_all(sources)}
    listed = {source: _files_outside(source, files, folder) for source, files in stored.items()}
    files = [file for text in exclude for file in list_files(Source(spec=text, location=text), "exclude")]
    excluded = tuple(file.location for file in files)
    return Listing(sources=listed, settings=settings, folder=folder, exclude=excluded)


def prepare(
    sources: Sequence[str], settings: Preparation, folder: str, report: Report = print, executor: Executor = RAY
) -> Corpus:
    """List the sources and prepare a corpus from them, as `prepare_listed` does."""
    return prepare_listed(list_sources(sources, settings, folder, report), report, executor)


def prepare_listed(listing: Listing, report: Report, executor: Executor = RAY) -> Corpus:
    """Prepare a corpus in the listing's folder; by default, on the running Ray. If it is finished, only return it.

    The corpus depends only on the contents of the inputs and the settings, not on machines, CPUs or the order of files.
    An interrupted preparation is continued. If files or sources were added or changed, only these are read, and all
    text is shuffled again. The result is a new corpus with its own fingerprint. The shards of the previous corpus are
    kept. Raises ConfigError and DataError.
    """
    folder, settings = listing.folder, listing.settings
    corpus = finished_corpus(listing)
    if corpus is None:
        files = with_distinct_names(
            [
                file
                for source, source_files in listing.sources.items()
                for file in (list_files(source) if source.location == BUILTIN else source_files)
            ]
        )
        storage.require_writable("folder", folder)
        with locked(folder), patience(settings.web_timeout, report):
            _build(files, listing, report, executor)
        corpus = load_corpus(folder)
    report(f"prepare: {folder} is ready: {_summary(corpus)}")
    return corpus


def finished_corpus(listing: Listing) -> Corpus | None:
    """Return the corpus in the listing's folder if it is finished and no input was added or changed, else None.

    This needs no Ray and writes nothing. Raises ConfigError if the corpus was prepared with other settings or from a
    source that is not in the listing, or if the folder has other files. Raises DataError for an unreadable manifest.
    """
    folder = listing.folder
    if not storage.exists(storage.join(folder, storage.MANIFEST)):
        _refuse_unrelated_files(folder)
        return None
    if not _matches_plan(folder, listing.plan):
        return None
    present = {f"{split}/{name}" for split in SPLITS for name in storage.children(storage.join(folder, split))}
    return load_corpus(folder) if _shards_in_use(folder) <= present else None


def _files_outside(source: Source, files: list[InputFile], folder: str) -> list[InputFile]:
    """Return the files of a source that lie outside a folder. Raises ConfigError if all files lie inside the folder."""
    real = cache(lambda location: location if is_url(location) else os.path.realpath(location))
    inside = f"{real(folder)}/"
    outside = [file for file in files if not f"{real(file.location.rsplit('/', 1)[0])}/".startswith(inside)]
    if files and not outside:
        raise ConfigError(
            f"corpus {source.spec}: all its files lie in {folder}, where the corpus is to be prepared: "
            "choose another folder"
        )
    return outside


def _stamps(files: Sequence[str]) -> list[str]:
    """Return the names of files, each with a digest of its content."""
    return sorted(f"{file.rsplit('/', 1)[-1]} {storage.sha256(file)[:12]}" for file in files)


def _summary(corpus: Corpus) -> str:
    """Return the size of a corpus as one line of text."""
    counts = corpus.counts
    held = (
        f"{counts['heldout_characters'] / MILLION:.1f} M of them held out"
        if corpus.heldout
        else "none of them held out"
    )
    return f"{counts['documents']:,} documents, {counts['characters'] / MILLION:.1f} M characters, {held}"


def _parse_all(specs: Sequence[str]) -> list[Source]:
    """Parse the sources of a corpus. The default is the built-in source. Raises ConfigError for duplicates."""
    parsed = [parse(spec) for spec in specs or (BUILTIN,)]
    for index, source in enumerate(parsed):
        if any(source.location == other.location for other in parsed[:index]):
            raise ConfigError(f"corpus {source.spec} is given twice: name it once")
    pairs, documents = ([source for source in parsed if (source.format == PAIRS) == given] for given in (True, False))
    if pairs and documents:
        raise ConfigError(
            f"corpus {pairs[0].spec} has given pairs, and corpus {documents[0].spec} has documents: prepare them as "
            "two corpora"
        )
    return parsed


def _refuse_unrelated_files(folder: str) -> None:
    """Raise ConfigError if a folder without a manifest has files that no unfinished preparation wrote."""
    names = [name for name in storage.children(folder) if not name.startswith(".") and not name.endswith(".tmp")]
    unrelated = [name for name in names if name not in (PARTS, *SPLITS)] or (names if PARTS not in names else [])
    if unrelated:
        raise ConfigError(
            f"{folder} holds {unrelated[0]}, which does not belong to a prepared corpus: choose an empty or new folder"
        )


def _matches_plan(folder: str, plan: Plan) -> bool:
    """Whether the corpus in a folder was made from exactly this plan: the same inputs and the same source options.

    Raises ConfigError if the corpus was made with other settings, or from a source that is not in the plan.
    """
    try:
        manifest = storage.read_json(storage.join(folder, storage.MANIFEST))
        settings, inputs, sources = manifest["settings"], manifest["inputs"], manifest["sources"]
        stored_options = {location: {name: about[name] for name in KEYS} for location, about in sources.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable_manifest(folder, error) from error
    for name in [*plan.settings, *settings]:
        if settings.get(name) != plan.settings.get(name):
            raise ConfigError(
                f"{folder} was prepared with {name} {settings.get(name)}, but {name} is now {plan.settings.get(name)}: "
                "choose another folder, or delete this folder to prepare it again"
            )
    if gone := [location for location in sources if location not in plan.sources]:
        raise ConfigError(
            f"{folder} was also prepared from corpus {gone[0]}, which is not given now: "
            "name this corpus as well, or choose another folder"
        )
    return stored_options == plan.sources and inputs == plan.inputs


def _build(files: list[InputFile], listing: Listing, report: Report, executor: Executor) -> None:
    """Run all stages and write the manifest.

    Near-duplicates are not dropped among given pairs: many pairs have a text in common.
    """
    settings, folder, plan = listing.settings, listing.folder, listing.plan
    if listing.exclude:
        from pipeline.corpus import excluded

        texts = excluded.texts_to_exclude(listing.exclude, report)
    if any(file.format == PAIRS for file in files):
        settings = replace(settings, near_duplicates=None)
    parts, parents, tallies = extract(files, settings, folder, report, executor)
    settings = replace(settings, heldout_share=heldout_share(settings.heldout_share, parents))
    count = shard_count(total_tally(tallies).characters, settings)
    # The names of overlap files and shard reports begin with this digest of everything that these files depend on.
    digest = hashlib.blake2b(json.dumps([parts, count, plan.settings]).encode(), digest_size=8).hexdigest()
    if settings.near_duplicates is not None:
        find_overlaps(folder, parts, digest, count, settings.heldout_share, report, executor)
    if listing.exclude:
        excluded.write_excluded(excluded_file(folder, digest), texts)
    shards = shuffle_into_shards(folder, parts, digest, count, settings, tallies, report, executor)
    manifest = asdict(plan) | manifest_contents(shards, tallies, plan)
    if not manifest["train"]:
        share = f"prepare.heldout_share ({plan.settings['prepare.heldout_share']})"
        raise DataError(f"corpus {listed(plan.sources)}: {share} leaves no training text: set it to 0 or add documents")
    before = _shards_in_use(folder)
    storage.write_json(storage.join(folder, storage.MANIFEST), manifest)
    delete_unused_files(folder, before | _shards_in_use(folder), parts, digest)


def manifest_contents(shards: list[dict[str, Any]], tallies: Tallies, plan: Plan) -> dict[str, Any]:
    """Return the manifest's windows, sources, counts, drops and fingerprint."""
    windows = {
        split: [
            [shard[split]["file"], group, *sizes]
            for shard in shards
            for group, sizes in enumerate(shard[split]["windows"])
        ]
        for split in SPLITS
    }
    sources = {
        location: about | _source_counts(location, shards, tallies.get(location, Tally()))
        for location, about in plan.sources.items()
    }
    sums = {
        name: sum(about[name] for about in sources.values())
        for name in ("files", *COUNTED, "heldout_pieces", "heldout_characters")
    }
    total = total_tally(tallies)
    digests = [[shard[split]["digest"] for shard in shards] for split in SPLITS]
    # Weights are not in the shards, but they change the examples, so they must change the fingerprint.
    weighted = sorted(
        [_members_of(location, shards), about["weight"]]
        for location, about in plan.sources.items()
        if about["weight"] != 1
    )
    return windows | {
        "sources": sources,
        "counts": sums
        | {"windows": len(windows["train"]) + len(windows["heldout"]), "heldout_windows": len(windows["heldout"])},
        "dropped": total.dropped,
        "samples": total.samples,
        "fingerprint": hashlib.sha256(json.dumps([*digests, weighted] if weighted else digests).encode()).hexdigest(),
    }


def _members_of(location: str, shards: list[dict[str, Any]]) -> list[list[str]]:
    """Return digests that identify the documents of a source, independently of the source's location."""
    return [[shard[split]["members"].get(location, "") for shard in shards] for split in SPLITS]


def _source_counts(location: str, shards: list[dict[str, Any]], tally: Tally) -> dict[str, Any]:
    """Return the counts and drops of a source, and the length of its training text by language."""
    none = dict.fromkeys(COUNTED, 0)
    counts_of = {split: [shard[split]["sources"].get(location, none) for shard in shards] for split in SPLITS}
    sums = {name: sum(counts[name] for split in SPLITS for counts in counts_of[split]) for name in COUNTED}
    heldout = {
        f"heldout_{name}": sum(counts[name] for counts in counts_of["heldout"]) for name in ("pieces", "characters")
    }
    languages: Counter[str] = Counter()
    for shard in shards:
        languages.update(shard["train"]["languages"].get(location, {}))
    return (
        {"files": tally.files}
        | sums
        | heldout
        | {"dropped": tally.dropped, "languages": dict(sorted(languages.items()))}
    )


def _shards_in_use(folder: str) -> set[str]:
    """Return the shards of the corpus in a folder, as relative paths; an empty set if there is no manifest."""
    try:
        manifest = storage.read_json(storage.join(folder, storage.MANIFEST))
    except FileNotFoundError:
        return set()
    return {window[0] for split in SPLITS for window in manifest[split]}


def delete_unused_files(folder: str, shards: set[str], parts: list[str], digest: str) -> None:
    """Delete the files in a corpus folder that are no longer needed.

    - shards that are not in `shards`
    - files of parts that are not in `parts`
    - overlap files and shard reports whose names do not begin with `digest`
    - temporary files of a process that was killed
    """
    for split in SPLITS:
        for name in storage.children(storage.join(folder, split)):
            if f"{split}/{name}" not in shards:
                storage.delete_file(storage.join(folder, split, name))
    wanted = set(parts) | {part.rsplit("-", 1)[0] for part in parts}
    for name in storage.children(storage.join(folder, PARTS)):
        if UNFINISHED.search(name) or (name.split(".")[0] not in wanted and not name.startswith(digest)):
            storage.delete_file(storage.join(folder, PARTS, name))
    for name in storage.children(folder):
        if UNFINISHED.search(name) and name.startswith(storage.MANIFEST):
            storage.delete_file(storage.join(folder, name))
