"""Settings of preparing a corpus."""

from dataclasses import dataclass

from pipeline.config.data import Preparation, Sources
from pipeline.config.locations import Location


@dataclass(frozen=True, kw_only=True)
class Prepare(Sources):
    """Prepare raw text for pretraining."""

    folder: Location
    """Folder or URL of the prepared corpus."""
    exclude: tuple[Location, ...] = ()
    """A file or folder of texts, such as a test set: a document that contains 13 words in a row of one of them is left
    out (reason: excluded), and so is one that contains a whole text of 5 to 12 words. The texts of a file are its
    lines, the cells of a table, or the strings in JSON.
    """
    prepare: Preparation = Preparation()
