"""Second stage of preparation: compare sketches to find texts contained in other texts, one range of hashes per task.

A sketch is a sample of the hashes of a text's word sequences (pipeline/text/sketches.py). A parent is the book or
article that a text is part of. If several parents contain the same sequence, one parent owns the sequence: the parent
whose text is best by the first of these rules that tells them apart.

1. A training text is better than a held-out text.
2. A larger text is better. Sizes are compared by class (sketches.size_class).
3. Text in mixed case, or in a script without case, is best; then text without capitals; then text mostly in capitals
   (sketches.casing).
4. The parent with the greater hash is better.

Therefore training parents own all sequences that are in both training and held-out text.

    parts/PLAN-overlap-00000.parquet   schema OVERLAP, sorted by place
"""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.corpus.part_tables import SKETCH, parquet
from pipeline.corpus.ranges import key_edges, sorted_range
from pipeline.files import storage
from pipeline.text.sketches import COMMON

OVERLAP = pa.schema(
    [
        pa.field("place", pa.uint64(), nullable=False),  # the first 8 bytes of the text's key
        pa.field("parent_hash", pa.uint64(), nullable=False),
        pa.field("shared", pa.int64(), nullable=False),  # hashes in the text's sketch that other parents own
        pa.field("common", pa.int64(), nullable=False),  # how many of these are below sketches.COMMON
    ]
)


def overlap_name(plan: str, number: int) -> str:
    """Return the name of the file with the overlaps in range `number` of hashes; `plan` identifies the preparation."""
    return f"{plan}-overlap-{number:05d}.parquet"


def write_overlap(folder: str, parts: Sequence[str], plan: str, number: int, count: int, heldout_share: float) -> None:
    """Write the overlaps in range `number` of `count` equal ranges of hashes, unless the file exists."""
    target = storage.join(folder, "parts", overlap_name(plan, number))
    if storage.exists(target):
        return
    low, high = key_edges(number, count)
    sketches = [
        sorted_range(storage.join(folder, "parts", f"{part}.sketch.parquet"), SKETCH, "hash", low, high)
        for part in sorted(parts)
    ]
    storage.write_bytes(
        target, parquet(count_overlaps(pa.concat_tables([SKETCH.empty_table(), *sketches]), heldout_share), "place")
    )


def is_heldout(parent_hashes: np.ndarray, share: float) -> np.ndarray:
    """Return a mask of the rows that are held out, bool (rows,).

    `parent_hashes` is uint64 (rows,). The parent's hash decides, so that no book or article is partly held out.
    """
    return parent_hashes < share * 2.0**64


def heldout_share(share: float, least_parents: np.ndarray) -> float:
    """Return `share`, raised so far that a small corpus has held-out parents too. A share of 0 stays 0.

    `least_parents` are the smallest parent hashes of the corpus (at most forty, sorted, uint64). At least a tenth of
    them is held out (is_heldout).
    """
    count = len(least_parents) // 10
    if share == 0 or count == 0:
        return share
    return max(share, math.nextafter(float(least_parents[count - 1]) / 2.0**64, 1.0))


def count_overlaps(sketches: pa.Table, heldout_share: float) -> pa.Table:
    """Count the hashes in each text's sketch that other parents own; leave out texts without such hashes.

    `sketches` has schema SKETCH; the result has schema OVERLAP.
    """
    hashes, sizes, casings, parents, keys = (sketches[name].to_numpy() for name in SKETCH.names)
    order = np.lexsort((keys, parents, casings, sizes, ~is_heldout(parents, heldout_share), hashes))
    hashes, parents, keys = hashes[order], parents[order], keys[order]
    last = np.flatnonzero(np.append(hashes[1:] != hashes[:-1], True)) if len(hashes) else np.zeros(0, np.int64)
    owner = np.repeat(parents[last], np.diff(last, prepend=-1))
    other = parents != owner
    columns = {
        "place": keys[other],
        "parent_hash": parents[other],
        "common": (hashes[other] < np.uint64(COMMON)).astype(np.int64),
    }
    counted = pa.table(columns).group_by(["place", "parent_hash"]).aggregate([([], "count_all"), ("common", "sum")])
    return (
        counted.rename_columns(OVERLAP.names)
        .sort_by([("place", "ascending"), ("parent_hash", "ascending")])
        .cast(OVERLAP)
    )
