"""Settings of the benches."""

from dataclasses import dataclass

from pipeline.config.checks import require, require_above_zero, require_at_least
from pipeline.config.data import Sampling, VocabularySettings
from pipeline.config.locations import Location, SourceText
from pipeline.config.placement import EmbedPrecision


@dataclass(frozen=True, kw_only=True)
class BenchSources:
    """Text that a bench reads."""

    corpus: tuple[SourceText, ...] = ()
    """Sources, written as for jobs/prepare.py. Default: the built-in corpus."""


@dataclass(frozen=True, kw_only=True)
class Text(BenchSources):
    """Measure the path from a shard to masked Arrow blocks on one core, stage by stage, and two baselines.

    The baselines are encode_batch_fast of `tokenizers` and the usual preparation in Python (`pipeline.bench.usual`).
    """

    vocabulary: VocabularySettings = VocabularySettings()
    sampling: Sampling = Sampling()
    windows: int = 6
    """Number of windows to measure; a window has two million characters. Before the measurement, at most
    the same number of windows of other files fill the tokenizer's table of known words.
    """

    def __post_init__(self) -> None:
        require_at_least("windows", self.windows, 1)


@dataclass(frozen=True, kw_only=True)
class Stream(BenchSources):
    """Compare the stream through Ray Data with one plain process that makes the same rows; measure peak memory."""

    vocabulary: VocabularySettings = VocabularySettings()
    sampling: Sampling = Sampling()
    rows_per_slot: int = 128
    rows: int = 400_000
    """Number of rows to make. If there are fewer rows, each process spends much of the time on filling its table of
    known words.
    """

    def __post_init__(self) -> None:
        require_at_least("rows_per_slot", self.rows_per_slot, 1)
        require_at_least("rows", self.rows, 1)


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Compare the server of an embedding model with sentence-transformers behind FastAPI, each in its own process.

    Columns: requests per second, p50 and p99 of one client; requests per second of 32 clients; then p50 and p99 of
    requests at random times (Poisson, open loop) at half of that, and at a fixed rate. Latencies are in milliseconds.
    Needs the extra `serve` and sentence-transformers. This bench has no floors.
    """

    checkpoint: Location
    """Folder of an embedding model that sentence-transformers loads too."""
    lengths: tuple[int, ...] = ()
    """Tokens per request, each a text of its own. Default: 16 and 128."""
    seconds: float = 10.0
    """Seconds of each of the four loads. A p99 of 100 requests, as in 10 seconds at 10 per second, is that of the
    slowest two.
    """
    rate: float = 10.0
    """Requests per second of the fixed rate."""
    threads: int | None = None
    """CPU threads of each server, or of each replica of ours; default: all cores."""
    replicas: int = 1
    """Processes of our server that hold the model. Their threads together should not be more than the cores."""
    precision: EmbedPrecision = "auto"
    """Number format of our server; sentence-transformers computes in float32."""
    onnx: bool = False
    """Run our encoder with onnxruntime, in float32; needs the extra export."""
    unbatched: bool = False
    """Also measure our server with one request per computation (batching.tokens 1, without a wait)."""

    def __post_init__(self) -> None:
        require_above_zero("seconds", self.seconds)
        require_above_zero("rate", self.rate)
        require_at_least("replicas", self.replicas, 1)
        require(
            not self.onnx or self.precision in ("auto", "float32"),
            f"onnx (True) computes in float32, but precision is {self.precision}: leave one out",
        )


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Write a file of tokens: a prepared corpus, encoded. `python jobs/bench.py train` trains on it without Ray."""

    corpus: Location
    """Folder of a prepared corpus, in one language and without weights."""
    file: Location
    """File to write, such as tokens.arrow. It must not exist."""
    vocabulary: VocabularySettings
    """A given vocabulary (vocabulary.path)."""
    windows: int | None = None
    """Number of training windows of two million characters; default: all."""
    words: int | None = None
    """Width of word embeddings from co-occurrence counts, for --word-embeddings cooccurrence; default: none are made.
    """

    def __post_init__(self) -> None:
        if self.windows is not None:
            require_at_least("windows", self.windows, 1)
        if self.words is not None:
            require_at_least("words", self.words, 1)


Bench = Text | Stream | Serve | Tokens
