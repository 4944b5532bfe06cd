"""Read a retrieval collection: recognise its layout by its files, and call the layout's reader."""

from pipeline.errors import ConfigError, DataError, listed
from pipeline.evaluation.retrieval import beir, cranfield
from pipeline.evaluation.retrieval.collection import Collection
from pipeline.files import storage
from pipeline.tables.bad_rows import OPTION, BadRows
from pipeline.tables.content import existing_file

SPLIT = "test"
"""Judgements that are read unless others are named."""


def read_collection(folder: str, split: str | None = None, *, skip: bool = False) -> Collection:
    """Read the collection in a folder or URL: BEIR's layout, or the files of the Cranfield collection.

    `split` names the judgements in BEIR's layout (None: SPLIT), and `skip` leaves out bad rows and counts them. Raises
    ConfigError for a split of the Cranfield collection, DataError for a missing file, and as `build_collection` does.
    """
    bad = BadRows(skip=skip, remedy=OPTION)
    if existing_file(storage.join(folder, beir.DOCUMENTS)):
        return beir.read(folder, split or SPLIT, bad)
    if existing_file(storage.join(folder, cranfield.DOCUMENTS)):
        if split is not None:
            raise ConfigError(
                f"split ({split}) is for BEIR's layout, but {folder} is the Cranfield collection: leave split out"
            )
        return cranfield.read(folder, bad)
    raise DataError(
        f"{folder} has no {beir.DOCUMENTS} and no {cranfield.DOCUMENTS}, but {listed(storage.children(folder))}: give "
        f"a folder in BEIR's layout ({beir.DOCUMENTS}, {beir.QUERIES}, {beir.JUDGEMENTS.format(split=split or SPLIT)}) "
        f"or with the Cranfield files ({', '.join(cranfield.FILES)})"
    )
