"""Between the stages of preparation: which texts stand in others, by their sketches, one range of hashes a task.

Of a word sequence that several parents have, the parent with the greatest hash is the owner. Held-out parents are those with the least
hashes, so a sequence that is both held out and trained on is always owned by the training side.

    parts/PLAN-overlap-00000.parquet   schema OVERLAP, sorted by place
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline import storage
from pipeline.corpus.parts import SKETCH, parquet
from pipeline.corpus.ranges import key_edges, sorted_range

OVERLAP = pa.schema(
    [
        pa.field("place", pa.uint64(), nullable=False),  # the first 8 bytes of the text's key
        pa.field("parent_hash", pa.uint64(), nullable=False),
        pa.field("shared", pa.int64(), nullable=False),  # hashes of its sketch that other parents own
    ]
)


def overlap_name(plan: str, number: int) -> str:
    """File of one range of hashes."""
    return f"{plan}-overlap-{number:05d}.parquet"


def write_overlap(folder: str, parts: Sequence[str], plan: str, number: int, count: int) -> None:
    """Write the overlaps of the hashes of range `number` of `count`, unless they are there."""
    target = storage.join(folder, "parts", overlap_name(plan, number))
    if storage.exists(target):
        return
    low, high = key_edges(number, count)
    found = [sorted_range(storage.join(folder, "parts", f"{part}.sketch.parquet"), SKETCH, "hash", low, high) for part in sorted(parts)]
    storage.write_bytes(target, parquet(overlaps(pa.concat_tables([SKETCH.empty_table(), *found])), "place"))


def overlaps(sketches: pa.Table) -> pa.Table:
    """How many hashes of each text other parents own (schema OVERLAP), for the texts that have any."""
    hashes, parents, places = (sketches[name].to_numpy() for name in SKETCH.names)
    order = np.lexsort((places, parents, hashes))
    hashes, parents, places = hashes[order], parents[order], places[order]
    last = np.flatnonzero(np.append(hashes[1:] != hashes[:-1], True)) if len(hashes) else np.zeros(0, np.int64)
    owner = np.repeat(parents[last], np.diff(last, prepend=-1))
    shared = pa.table({"place": places[parents != owner], "parent_hash": parents[parents != owner]})
    counted = shared.group_by(["place", "parent_hash"]).aggregate([([], "count_all")])
    return counted.rename_columns(["place", "parent_hash", "shared"]).sort_by([("place", "ascending"), ("parent_hash", "ascending")]).cast(OVERLAP)
