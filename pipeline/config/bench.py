"""Settings of the benches."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.data import Sampling, VocabularySettings
from pipeline.config.locations import Location, SourceText


@dataclass(frozen=True, kw_only=True)
class BenchSources:
    """Text that a bench reads."""

    corpus: tuple[SourceText, ...] = ()
    """As in jobs/prepare.py. Default: the built-in corpus."""


@dataclass(frozen=True, kw_only=True)
class Text(BenchSources):
    """From a shard to masked Arrow blocks on one core, by stage, next to `tokenizers` and the usual preparation."""

    vocabulary: VocabularySettings = VocabularySettings()
    sampling: Sampling = Sampling()
    windows: int = 6
    """Windows of two million characters that are measured; as many others warm the table."""


@dataclass(frozen=True, kw_only=True)
class Stream(BenchSources):
    """The same through Ray Data into a consumer, next to one plain process; memory of the workers."""

    vocabulary: VocabularySettings = VocabularySettings()
    sampling: Sampling = Sampling()
    rows_per_slot: int = 128
    rows: int = 400_000
    """Rows that go through; with fewer, much of the time is that in which several processes each learn the words."""


@dataclass(frozen=True, kw_only=True)
class Wikitext:
    """Read a Wikipedia dump: pages by reason, markup left in the text, MB/s on one core; without floors."""

    dump: Location
    """A file …-pages-articles….xml, compressed or not, or its URL. Of a larger one the first 268 MB of XML are read."""
    extracted: Location | None = None
    """A file or folder of WikiExtractor's output of the same wiki, whose words are compared."""


@dataclass(frozen=True, kw_only=True)
class Job(BenchSources):
    """The training loop on prepared rows, next to the same loop in a submitted job: Ray Train with the live stream."""

    preset: str = "bert-tiny"
    """One that starts from random weights; its first phase is measured."""
    steps: int = 400
    """Steps of each; both take turns until one is done."""
    compile: Literal["on", "off"] = "off"
    """torch.compile, of both."""
    threads: int | None = None
    """CPU threads of both; default: all cores, which Ray's own processes then share."""
    repetitions: int = 3
    """Measurements of the time from submission to the first step."""


@dataclass(frozen=True, kw_only=True)
class Scale(BenchSources):
    """Tokens per second of 1, 2 and 4 workers that sleep instead of computing, so that only coordination shows.

    Also without the sleep, and for slots with next to no text; without floors.
    """

    vocabulary: VocabularySettings = VocabularySettings(size=8_192)
    milliseconds: float = 200.0
    """Slept for each slot."""
    steps: int = 50


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Time that a checkpoint stops training, and time that its writing takes during the steps; no floors."""

    preset: str = "bert-base"
    output: Location | None = None
    """Local folder on the disk that is measured; default: the temporary one."""
    step_milliseconds: float = 200.0
    """Duration of the steps over which the cost is spread."""
    repetitions: int = 5


Bench = Text | Stream | Wikitext | Job | Scale | Checkpoint
