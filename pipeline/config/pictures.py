"""Settings of the pictures that the job `show` draws: of a model, of training runs and of a corpus."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_at_least, require_utf8
from pipeline.config.data import Sampling, VocabularySettings
from pipeline.config.locations import Location


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Picture of what each attention head attends to, by layer (Clark et al. 2019)."""

    checkpoint: Location
    """Model, run, or hf://OWNER/NAME."""
    text: Location | None = None
    """Text file or prepared corpus (its held-out part); default: docstrings of Python's standard library."""
    texts: int = 100
    """Maximum texts to read."""
    length: int = 128
    """Maximum tokens per text."""
    picture: Location = "heads.png"
    """File of the picture (.png, .svg, .pdf)."""

    def __post_init__(self) -> None:
        require_at_least("texts", self.texts, 1)
        require_at_least("length", self.length, 16)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Picture of one attention head on one sentence: lines between its tokens."""

    checkpoint: Location
    """Model, run, or hf://OWNER/NAME."""
    sentence: str
    layer: int = 1
    """Number of the layer, from 1."""
    head: int = 1
    """Number of the head in its layer, from 1."""
    picture: Location = "attention.png"
    """File of the picture (.png, .svg, .pdf)."""

    def __post_init__(self) -> None:
        require_utf8("sentence", self.sentence)


@dataclass(frozen=True, kw_only=True)
class Word:
    """Picture of one word in several sentences: similarity of the word's vectors by layer, and nearest neighbours."""

    checkpoint: Location
    """Model, run, or hf://OWNER/NAME."""
    word: str = "bank"
    sentences: tuple[Location, ...] = ()
    """Text files with one sentence per line, or MEANING<TAB>SENTENCE; default: built-in sentences for
    the words bank and right.
    """
    before: bool = False
    """Also show a model of the same size with random weights."""
    picture: Location = "word.png"
    """File of the picture (.png, .svg, .pdf)."""


@dataclass(frozen=True, kw_only=True)
class Map:
    """Picture of the embeddings of a file's texts in two dimensions, coloured by label."""

    checkpoint: Location
    """Model, run, or hf://OWNER/NAME."""
    file: Location
    """Table with a text and a label per row: CSV, TSV, JSON or Parquet."""
    text: str = "text"
    """Name of the column with the text."""
    label: str = "label"
    """Name of the column with the label."""
    method: Literal["pca", "tsne"] = "pca"
    """pca: principal components; tsne: t-SNE, which keeps near texts near but distorts large distances."""
    rows: int = 1000
    """Maximum rows, drawn at random."""
    seed: int = 0
    before: bool = False
    """Also show a model of the same size with random weights."""
    picture: Location = "map.png"
    """File of the picture (.png, .svg, .pdf)."""

    def __post_init__(self) -> None:
        require(4 <= self.rows <= 5000, f"rows ({self.rows}) must be from 4 to 5000")
        require(0 <= self.seed < 2**32, f"seed ({self.seed}) must be a whole number from 0 to 2^32 - 1")


@dataclass(frozen=True, kw_only=True)
class Store:
    """MLflow store that a run logged to."""

    uri: str | None = None
    """MLflow tracking URI; default: the run's URI, else MLFLOW_TRACKING_URI, else SQLite at OUTPUT/mlflow.db."""


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """Picture of two runs with the same settings and their difference, such as an undisturbed and a resumed run."""

    run: Location
    """Folder of the undisturbed run."""
    other: Location
    """Folder of the run that was killed and resumed."""
    tracking: Store = Store()
    picture: Location = "resumed.png"
    """File of the picture (.png, .svg, .pdf)."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Picture of a run's training and held-out losses with their baselines; the run may still be running."""

    run: Location
    """Folder of the run."""
    tracking: Store = Store()
    picture: Location = "curve.png"
    """File of the picture (.png, .svg, .pdf)."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Picture of a corpus: characters by source, dropped documents, and how full the rows of examples are."""

    folder: Location
    """Folder or URL of the prepared corpus."""
    vocabulary: VocabularySettings = VocabularySettings()
    """Vocabulary for making rows; without a path, rows are not shown."""
    sampling: Sampling = Sampling()
    windows: int = 4
    """Maximum windows to make rows from, evenly spaced."""
    picture: Location = "corpus.png"
    """File of the picture (.png, .svg, .pdf)."""

    def __post_init__(self) -> None:
        require_at_least("windows", self.windows, 1)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Picture of a run's held-out loss on masked tokens, by the frequency of the token in the training text."""

    run: Location
    """Folder of the run."""
    rows: int = 1024
    """Maximum held-out examples."""
    picture: Location = "loss.png"
    """File of the picture (.png, .svg, .pdf)."""

    def __post_init__(self) -> None:
        require_at_least("rows", self.rows, 1)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Picture of the texts that one query finds in two sets of vectors, such as before and after training."""

    before: Location
    """Folder or URL of vectors that jobs/embed.py wrote."""
    after: Location
    """Vectors of the same texts by another model."""
    query: str
    top: int = 8
    """Texts to show of each."""
    picture: Location = "ranks.png"
    """File of the picture (.png, .svg, .pdf)."""

    def __post_init__(self) -> None:
        require(1 <= self.top <= 30, f"top ({self.top}) must be from 1 to 30")
        require(self.query.strip() != "", "query must not be empty")
        require_utf8("query", self.query)


Picture = Heads | Attention | Word | Map | Resumed | Curve | Corpus | Loss | Ranks
