"""Settings of preparing a corpus."""

from dataclasses import dataclass

from pipeline.config.data import Preparation
from pipeline.config.locations import Location, SourceText


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Prepare raw text for pretraining."""

    corpus: tuple[SourceText, ...] = ()
    """A file, folder, glob or URL (https://, s3://, gs://, hf://).

    Default: the built-in corpus. Options follow it: PATH::format=NAME (wikipedia-dump, wikiextractor, gutenberg,
    bookscorpus, jsonl, parquet and text are recognised; sentences and parquet-sentences must be named), ::column=NAME
    of the text in JSON lines and Parquet, ::language=CODE (default: what the files say, or en), and ::weight=TIMES that
    a document occurs per epoch (default: 1).
    """
    folder: Location
    """Folder or URL of the prepared corpus."""
    prepare: Preparation = Preparation()
