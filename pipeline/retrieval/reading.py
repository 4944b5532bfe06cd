"""Read a retrieval collection: recognise its layout by its files, and call the layout's reader."""

from pipeline import storage
from pipeline.errors import DataError, listed
from pipeline.retrieval import beir, cranfield
from pipeline.retrieval.collection import Collection
from pipeline.tasks.bad_rows import BadRows
from pipeline.tasks.tables import existing_file


def read_collection(folder: str, split: str = "test", *, skip: bool = False) -> Collection:
    """Read the collection in a folder or URL: BEIR's layout, or the files of the Cranfield collection.

    `split` names the judgements in BEIR's layout, and `skip` leaves out bad rows and counts them. Raises DataError for
    a missing file, and as `build_collection` does.
    """
    bad = BadRows(skip=skip)
    for layout in (beir, cranfield):
        if existing_file(storage.join(folder, layout.DOCUMENTS)):
            return layout.read(folder, split, bad)
    raise DataError(
        f"{folder} has no {beir.DOCUMENTS} and no {cranfield.DOCUMENTS}, but {listed(storage.children(folder))}: give "
        f"a folder in BEIR's layout ({beir.DOCUMENTS}, {beir.QUERIES}, {beir.JUDGEMENTS.format(split=split)}) or with "
        f"the Cranfield files ({', '.join(cranfield.FILES)})"
    )
