"""Settings of the benchmarks."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.bench import BenchSources
from pipeline.config.checks import require_at_least
from pipeline.config.data import VocabularySettings
from pipeline.config.locations import Location


@dataclass(frozen=True, kw_only=True)
class Wikitext:
    """Measure the cleaning of a Wikipedia dump: page outcomes, markup left in the text, and MB/s on one core.

    This bench has no floors.
    """

    dump: Location
    """File …-pages-articles….xml, compressed or not, or its URL. At most the first 268 MB of its XML are read."""
    extracted: Location | None = None
    """File or folder of WikiExtractor's output for the same wiki. Pages with the same title are compared by their
    words.
    """


@dataclass(frozen=True, kw_only=True)
class Job(BenchSources):
    """Compare the training loop alone on rows made in advance with a Ray Train job on the live stream."""

    preset: str = "bert-tiny"
    """A preset that starts from random weights; its first phase is measured."""
    steps: int = 400
    """Steps of each of the two loops. The loops run in turns until one has finished its steps."""
    compile: Literal["on", "off"] = "off"
    """torch.compile in both loops."""
    threads: int | None = None
    """CPU threads of each loop; default: all cores, which the loop under Ray shares with Ray's own processes."""
    repetitions: int = 3
    """Number of jobs for which the time from submission to the end of the first step is measured."""


@dataclass(frozen=True, kw_only=True)
class Scale(BenchSources):
    """Measure the cost of coordination: tokens per second of 1, 2 and 4 workers that sleep instead of computing.

    The workers are also measured without the sleep. After that, a single process reads all blocks that 8 or 64 workers
    would read. This bench has no floors.
    """

    vocabulary: VocabularySettings = VocabularySettings(size=8_192)
    milliseconds: float = 200.0
    """Milliseconds of sleep per slot."""
    steps: int = 50


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Measure how long a checkpoint stops training, and how long writing the checkpoint in the background takes.

    This bench has no floors.
    """

    preset: str = "bert-base"
    output: Location | None = None
    """Local folder on the disk to measure; default: the system's temporary folder."""
    step_milliseconds: float = 200.0
    """Assumed milliseconds per training step. The cost of checkpoints is printed as a share of this time."""
    repetitions: int = 5


@dataclass(frozen=True, kw_only=True)
class Embed:
    """Compare the peak memory of the job `embed` with some texts and with ten times as many, with the object store.

    Needs Linux. The exit code is 1 if the second peak is more than 1.1 times the first.
    """

    texts: int = 200_000
    """Short made-up texts of the first job."""
    times: int = 10
    """Texts of the second job, as a multiple of those of the first."""
    checkpoint: Location | None = None
    """An encoder. Default: one layer of width 32 with random weights."""

    def __post_init__(self) -> None:
        require_at_least("texts", self.texts, 1)
        require_at_least("times", self.times, 2)


@dataclass(frozen=True, kw_only=True)
class RunMlm:
    """Train a model with transformers' Trainer as its example run_mlm.py does, for given minutes, on a file of tokens.

    The defaults are those of the example and of its TrainingArguments. The model has the defaults of transformers'
    config but for the sizes. The bits per byte are those of the held-out words on which `bench train quickstart` is
    evaluated; minimal pairs are scored as for any published model: `score --checkpoint OUTPUT --blimp BLIMP`.
    """

    token_file: Location
    """File of tokens, which `python jobs/bench.py tokens` writes."""
    output: Location
    """Folder for the model. It must not exist."""
    minutes: float
    """Minutes of training, from the first step to the last."""
    family: Literal["bert", "modernbert"] = "bert"
    layers: int = 4
    width: int = 512
    feed_forward: int = 2_048
    learning_rate: float = 5e-5
    rows_per_step: int = 8
    length: int = 128
    share: float = 0.15
    """Share of masked tokens."""
    bf16: bool = False
    seed: int = 0


Benchmark = RunMlm | Wikitext | Job | Scale | Checkpoint | Embed
