"""Settings of preparing a corpus."""

from dataclasses import dataclass

from pipeline.config.data import Preparation, Sources
from pipeline.config.locations import Location


@dataclass(frozen=True, kw_only=True)
class Prepare(Sources):
    """Prepare raw text for pretraining."""

    folder: Location
    """Folder or URL of the prepared corpus."""
    prepare: Preparation = Preparation()
