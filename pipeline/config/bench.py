"""Settings of the benches."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.data import Sampling, VocabularySettings
from pipeline.config.locations import Location, SourceText


@dataclass(frozen=True, kw_only=True)
class BenchSources:
    """Text that a bench reads."""

    corpus: tuple[SourceText, ...] = ()
    """Sources, written as for jobs/prepare.py. Default: the built-in corpus."""


@dataclass(frozen=True, kw_only=True)
class Text(BenchSources):
    """Measure the path from a shard to masked Arrow blocks on one core, stage by stage, next to two baselines.

    The baselines are encode_batch_fast of `tokenizers` and the usual preparation in Python (`pipeline.bench.usual`).
    """

    vocabulary: VocabularySettings = VocabularySettings()
    sampling: Sampling = Sampling()
    windows: int = 6
    """Number of windows to measure; a window has two million characters. Before the measurement, at most
    the same number of windows of other files fill the tokenizer's table of known words.
    """


@dataclass(frozen=True, kw_only=True)
class Stream(BenchSources):
    """Compare the stream of rows through Ray Data with one plain process that makes the same rows; show peak memory."""

    vocabulary: VocabularySettings = VocabularySettings()
    sampling: Sampling = Sampling()
    rows_per_slot: int = 128
    rows: int = 400_000
    """Number of rows to make. With fewer rows, much of the time goes into filling the table of known words in each
    process.
    """


@dataclass(frozen=True, kw_only=True)
class Wikitext:
    """Measure the cleaning of a Wikipedia dump: page outcomes, markup left in the text, and MB/s on one core.

    This bench has no floors.
    """

    dump: Location
    """File …-pages-articles….xml, compressed or not, or its URL. At most the first 268 MB of its XML are read."""
    extracted: Location | None = None
    """File or folder of WikiExtractor's output for the same wiki. The words of pages with the same title are compared.
    """


@dataclass(frozen=True, kw_only=True)
class Job(BenchSources):
    """Compare the training loop alone, on rows made in advance, with a job under Ray Train, on the live stream."""

    preset: str = "bert-tiny"
    """A preset that starts from random weights; its first phase is measured."""
    steps: int = 400
    """Steps of each of the two loops. The loops run in turns until one has finished its steps."""
    compile: Literal["on", "off"] = "off"
    """torch.compile in both loops."""
    threads: int | None = None
    """CPU threads of each loop; default: all cores, which the loop under Ray shares with Ray's own processes."""
    repetitions: int = 3
    """Number of times that the time from a job's submission to the end of its first step is measured."""


@dataclass(frozen=True, kw_only=True)
class Scale(BenchSources):
    """Measure the cost of coordination: tokens per second of 1, 2 and 4 workers that sleep instead of computing.

    The workers are also measured without the sleep. Then one process reads the blocks of 8 and of 64 workers. This
    bench has no floors.
    """

    vocabulary: VocabularySettings = VocabularySettings(size=8_192)
    milliseconds: float = 200.0
    """Milliseconds of sleep per slot."""
    steps: int = 50


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Measure for how long a checkpoint stops training, and for how long it is written in the background.

    This bench has no floors.
    """

    preset: str = "bert-base"
    output: Location | None = None
    """Local folder on the disk to measure; default: the system's temporary folder."""
    step_milliseconds: float = 200.0
    """Assumed duration of a training step in milliseconds, to print the cost of checkpoints as a share of the time."""
    repetitions: int = 5


Bench = Text | Stream | Wikitext | Job | Scale | Checkpoint
