"""Look at text as the pipeline sees it: a corpus, its sentences and examples, and what a training run saw.

    python jobs/show.py documents output/corpora/1a2b3c4d5e6f
    python jobs/show.py dropped output/corpora/1a2b3c4d5e6f
    python jobs/show.py statistics output/corpora/1a2b3c4d5e6f --picture statistics.png --vocabulary.path vocab.txt
    python jobs/show.py examples output/corpora/1a2b3c4d5e6f --vocabulary.path vocab.txt --number 5
    python jobs/show.py seen output/runs/bert-tiny-5a00950e 345 --row 7

It writes nothing but the file that --picture names.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config.checks import require, require_at_least
from pipeline.config.data import Sampling, VocabularySettings
from pipeline.config.locations import Location, with_absolute_locations
from pipeline.errors import PipelineError


@dataclass(frozen=True, kw_only=True)
class Documents:
    """A few documents of a prepared corpus, sentence by sentence."""

    folder: Location
    """Folder or URL of the prepared corpus."""
    number: int = 3
    window: int = 0
    """Which training window they are from."""
    source: str | None = None
    """Only those of sources with this in their location."""
    sentences: int = 12
    """Maximum sentences per document."""

    def __post_init__(self) -> None:
        require_at_least("number", self.number, 1)
        require_at_least("sentences", self.sentences, 1)


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Documents left out of a prepared corpus: counts, and a few for each reason."""

    folder: Location


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Documents, words, tokens and lengths of a prepared corpus, and a picture of them."""

    folder: Location
    vocabulary: VocabularySettings = VocabularySettings()
    """For tokens; none without a path."""
    windows: int = 8
    """Windows of the sample."""
    picture: Location | None = None
    """File of the picture (.png, .svg, .pdf); none: no picture."""

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
    """The rows that a training run saw at a step, with the document's title and source."""

    folder: Location
    """Folder or URL of the run."""
    step: int
    """1 is the first step."""
    row: int = 0
    """Index in the step's global batch."""
    number: int = 1
    """Rows shown, from that one on."""

    def __post_init__(self) -> None:
        require_at_least("number", self.number, 1)


def main(arguments: Sequence[str]) -> int:
    """Parse and print; 0, 2 for what the user can fix, or 130 where it was interrupted."""
    try:
        from pipeline.config.command import read_one_of
        from pipeline.environment import set_ray_defaults

        kinds = (Documents, Dropped, Statistics, Examples, Seen)
        wanted = read_one_of(kinds, arguments, "jobs/show.py", str(__doc__), positional=True)
        set_ray_defaults()
        from pipeline.show.views import VIEWS

        VIEWS[type(wanted).__name__](**vars(with_absolute_locations(wanted)))
        return 0
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
