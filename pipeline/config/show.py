"""Settings of the job `show`: views of a corpus, of examples and of the rows that a training run saw, and pictures."""

from dataclasses import dataclass

from pipeline.config.checks import require, require_at_least
from pipeline.config.data import Sampling, VocabularySettings
from pipeline.config.locations import Location
from pipeline.config.pictures import Picture


@dataclass(frozen=True, kw_only=True)
class Documents:
    """A few documents of a prepared corpus, sentence by sentence."""

    folder: Location
    """Folder or URL of the prepared corpus."""
    number: int = 3
    window: int = 0
    """Index of the training window from which the documents are taken."""
    source: str | None = None
    """Show only documents whose source location contains this text."""
    sentences: int = 12
    """Maximum sentences per document."""

    def __post_init__(self) -> None:
        require_at_least("number", self.number, 1)
        require_at_least("sentences", self.sentences, 1)


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Documents left out of a prepared corpus: counts by reason, and a few documents for each reason."""

    folder: Location


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Statistics of a prepared corpus: numbers and lengths of documents, words and tokens; picture of the lengths."""

    folder: Location
    vocabulary: VocabularySettings = VocabularySettings()
    """Vocabulary for counting tokens; without a path, tokens are not counted."""
    windows: int = 8
    """Maximum windows to measure, evenly spaced."""
    picture: Location | None = None
    """File of the picture (.png, .svg, .pdf); default: no picture."""

    def __post_init__(self) -> None:
        require_at_least("windows", self.windows, 1)


@dataclass(frozen=True, kw_only=True)
class Examples:
    """A few examples of a prepared corpus: pairs and masks in colour."""

    folder: Location
    number: int = 3
    window: int = 0
    epoch: int = 0
    seed: int = 0
    vocabulary: VocabularySettings
    sampling: Sampling = Sampling()

    def __post_init__(self) -> None:
        require_at_least("number", self.number, 1)
        for name in ("epoch", "seed"):
            value = getattr(self, name)
            require(0 <= value < 2**63, f"{name} ({value}) must be a whole number from 0 to 2^63 - 1")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The rows that a training run saw at a step, with the title and source of each row's document."""

    folder: Location
    """Folder or URL of the run."""
    step: int
    """Number of the step, from 1."""
    row: int = 0
    """First row to show, as an index into the step's global batch, from 0."""
    number: int = 1
    """Number of rows to show."""

    def __post_init__(self) -> None:
        require_at_least("number", self.number, 1)


View = Documents | Dropped | Statistics | Examples | Seen | Picture
