"""Hold documents, or the ends of long ones, out of both trainings: pairs of their texts measure the encoders.

A corpus whose preparation held out enough is trained on as it is. Else OUTPUT/training gets a copy of the corpus
without a tenth of its documents or, if they are too few, without the ends of their pieces:

OUTPUT/training/
    train/, heldout/    shards, as in a prepared corpus
    manifest.json       written last, as in a prepared corpus; and the entries TEXT and UNIT
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.adapt.evidence import MOST_PAIRS, TextPair, pairs_of, unseen
from pipeline.adapt.pairs import Pairs
from pipeline.config.data import AdjacentParagraphs, Preparation, TitleParagraph
from pipeline.corpus.prepared import SPLITS, Corpus, Window, is_prepared, load_corpus, read_window
from pipeline.corpus.shards import HELDOUT_WINDOWS, write_windows
from pipeline.files import storage
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.schema import DOCUMENT

TRAINING = "training"
TEXT, UNIT = "whole_text", "held_out"
"""Further entries of the manifest: the fingerprint of the whole corpus, and what is held out of it."""
DOCUMENTS, ENDS = "whole documents", "the ends of documents"
"""Values of UNIT."""
WANTED_PAIRS = 100
"""Pairs of texts of which a prepared corpus must hold out so many to be used as it is."""
LEAST_PAIRS = 20
"""Minimum pairs of texts. The interval of fewer is too wide to show a difference."""
SHARE = 0.1
"""Share of the documents, or of the characters of each piece, that is held out."""
SHORTEST_END = 400
"""Minimum characters of a held-out end; a shorter one hardly has two paragraphs."""
CUT_WINDOWS = 10
"""Windows whose pieces lose their ends, which are two million characters; further windows stay whole."""
HELDOUT_COUNTS = ("heldout_pieces", "heldout_characters")
Parts = tuple[pa.Table, pa.Table]
"""Training and held-out documents of a window (schema DOCUMENT)."""
Split = Callable[[pa.Table], Parts]


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A corpus for training, and pairs of texts that no training sees."""

    corpus: Corpus
    pairs: tuple[TextPair, ...]
    """Empty if the text is too small to hold out LEAST_PAIRS pairs."""
    kind: Pairs
    unit: str
    """DOCUMENTS or ENDS."""


def training_corpus(corpus: Corpus, output: str) -> Corpus:
    """Return the corpus without held-out text that an earlier call of `hold_out` wrote, else the corpus."""
    folder = storage.join(output, TRAINING)
    if not is_prepared(folder):
        return corpus
    whole = storage.read_json(storage.join(folder, storage.MANIFEST)).get(TEXT)
    return load_corpus(folder) if whole == corpus.fingerprint else corpus


def hold_out(corpus: Corpus, output: str, pairs: Pairs, tokenizer: CachedTokenizer, length: int) -> HeldOut:
    """Return what is trained on and what is held out; write OUTPUT/training if the corpus holds out too little.

    `pairs` are those of the contrastive training. `length`: maximum tokens of a text of a pair.
    """

    def found(trained: Corpus, unit: str, train: Iterable[pa.Table], held: Iterable[pa.Table]) -> HeldOut:
        # The title of a document whose end is held out is in training pairs, but its last paragraphs are not.
        kind = AdjacentParagraphs() if unit == ENDS and isinstance(pairs, TitleParagraph) else pairs
        kept = tuple(unseen(pairs_of(held, kind, tokenizer, length), train)[:MOST_PAIRS])
        return HeldOut(corpus=trained, pairs=kept if len(kept) >= LEAST_PAIRS else (), kind=kind, unit=unit)

    def found_in(trained: Corpus, unit: str) -> HeldOut:
        return found(trained, unit, tables(trained, "train"), tables(trained, "heldout"))

    copy = training_corpus(corpus, output)
    if copy is not corpus:
        return found_in(copy, storage.read_json(storage.join(copy.folder, storage.MANIFEST))[UNIT])
    heldout = found_in(corpus, DOCUMENTS)
    if len(heldout.pairs) >= WANTED_PAIRS:  # a large corpus, of which only some windows are read
        return heldout
    for unit, split, most in ((DOCUMENTS, _split_documents(corpus), None), (ENDS, split_ends, CUT_WINDOWS)):
        parts = partial(split_windows, corpus, split, most)
        heldout = found(corpus, unit, (train for train, _ in parts()), (held for _, held in parts()))
        if heldout.pairs:
            # As a later call, which has only the copy.
            return found_in(_write(corpus, storage.join(output, TRAINING), parts(), unit), unit)
    return HeldOut(corpus=corpus, pairs=(), kind=pairs, unit=DOCUMENTS)


def split_windows(corpus: Corpus, split: Split, most: int | None) -> Iterator[Parts]:
    """Yield the training and held-out documents of a corpus, window by window.

    `split` holds out documents of the first `most` training windows, of all for None.
    """
    for number, table in enumerate(tables(corpus, "train")):
        yield split(table) if most is None or number < most else (table, DOCUMENT.empty_table())
    yield from ((DOCUMENT.empty_table(), table) for table in tables(corpus, "heldout"))


def tables(corpus: Corpus, split: str) -> Iterator[pa.Table]:
    """Yield the documents of the windows of a split (schema DOCUMENT), one window at a time."""
    windows: tuple[Window, ...] = getattr(corpus, split)
    return (read_window(corpus, window) for window in windows)


def _split_documents(corpus: Corpus) -> Split:
    """Return a function that holds out a tenth of the parents of the training documents, those with the lowest hash."""
    parents = {parent for table in tables(corpus, "train") for parent in table["parent"].to_pylist()}
    lowest = sorted(parents, key=lambda parent: hashlib.blake2b(parent.encode(), digest_size=8).digest())
    held = pa.array(lowest[: int(SHARE * len(parents))], pa.string())

    def split(table: pa.Table) -> tuple[pa.Table, pa.Table]:
        is_held = pc.is_in(table["parent"], held)
        return table.filter(pc.invert(is_held)), table.filter(is_held)

    return split


def split_ends(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Divide each document of a window into a beginning and an end. A document without a place to cut stays whole."""
    cuts = [_cut(text) for text in table["text"].to_pylist()]
    rows = list(zip(table.to_pylist(), cuts, strict=True))
    train = [row | {"text": row["text"][:cut].strip()} for row, cut in rows]
    ends = [row | {"id": f"{row['id']}/end", "text": row["text"][cut:].strip()} for row, cut in rows]
    ends = [row for row in ends if row["text"]]
    return pa.Table.from_pylist(train, schema=DOCUMENT), pa.Table.from_pylist(ends, schema=DOCUMENT)


def _cut(text: str) -> int:
    """Return where the held-out end of a text begins: after a line, else between words; its length if nowhere."""
    last = math.ceil((1 - SHARE) * len(text))
    after_line = text.find("\n", last) if len(text) - text.find("\n", last) >= SHORTEST_END else -1
    place = after_line if after_line >= 0 else text.rfind("\n", len(text) // 2, last)
    place = place if place >= 0 else text.find(" ", last)
    return place if place >= 0 and len(text) - place >= SHORTEST_END else len(text)


def _write(corpus: Corpus, folder: str, parts: Iterable[Parts], unit: str) -> Corpus:
    """Write the parts of a corpus as a prepared corpus, one shard per window, and return it."""
    manifest = storage.read_json(storage.join(corpus.folder, storage.MANIFEST))
    size = Preparation().window_characters
    limits = dict(zip(SPLITS, (2 * size, size // HELDOUT_WINDOWS)))
    shards = [
        {
            name: write_windows(folder, name, number, part.combine_chunks(), limits[name])
            for name, part in zip(SPLITS, both, strict=True)
        }
        for number, both in enumerate(parts)
    ]
    windows = {
        name: [
            [shard[name]["file"], group, *sizes]
            for shard in shards
            for group, sizes in enumerate(shard[name]["windows"])
        ]
        for name in SPLITS
    }
    sources = {location: about | _source_counts(location, shards) for location, about in corpus.sources.items()}
    counts = {name: sum(about[name] for about in sources.values()) for name in HELDOUT_COUNTS}
    counts |= {"windows": sum(map(len, windows.values())), "heldout_windows": len(windows["heldout"])}
    digests = [corpus.fingerprint, *([shard[name]["digest"] for shard in shards] for name in SPLITS)]
    about = {
        "sources": sources,
        "counts": corpus.counts | counts,
        "fingerprint": hashlib.sha256(json.dumps(digests).encode()).hexdigest(),
        TEXT: corpus.fingerprint,
        UNIT: unit,
    }
    storage.write_json(storage.join(folder, storage.MANIFEST), manifest | windows | about)
    return load_corpus(folder)


def _source_counts(location: str, shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what is held out of a source, and the length of its training text by language."""
    heldout = [shard["heldout"]["sources"].get(location, {}) for shard in shards]
    languages: Counter[str] = Counter()
    for shard in shards:
        languages.update(shard["train"]["languages"].get(location, {}))
    return {
        name: sum(counts.get(name.removeprefix("heldout_"), 0) for counts in heldout) for name in HELDOUT_COUNTS
    } | {"languages": dict(sorted(languages.items()))}
