"""Settings for adapting an encoder to one's own text."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_at_least, require_utf8
from pipeline.config.data import Sampling, TwoCrops
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import Location, SourceText
from pipeline.config.objective import Contrastive
from pipeline.config.placement import Placement
from pipeline.config.training import Batch

COMMON = (
    *("corpus", "init", "output", "queries", "judgements", "masked_steps", "contrastive_steps"),
    *("workers", "batch.rows_per_step", "batch.rows_per_slot", "placement.device"),
)
"""Settings that --help shows first."""
LEAST_STEPS, MOST_STEPS = 100, 500
"""Bounds of the default number of steps. With fewer, an encoder hardly changes; more would take a laptop hours."""
USUAL_LENGTH = 128
"""Default of maximum_length, as in pretraining."""


@dataclass(frozen=True, kw_only=True)
class Adapt:
    """Adapt an encoder to your own text, and search the text with it."""

    corpus: tuple[SourceText, ...]
    """Your text: a file, folder, glob or URL, with the same options as for jobs/prepare.py; or the folder of a prepared
    corpus. The JSON lines of a corpus with judgements need the column id.
    """
    init: Location
    """Encoder to start from, with its vocabulary: a run, an export, a folder of sentence-transformers or of another
    published model, a URL, or hf://OWNER/NAME.
    """
    output: Location = "output/adapted"
    """Folder or URL of everything that is made: the corpus, both training runs, and the vectors before and after."""
    queries: str | None = None
    """One query, or a file of queries as for jobs/search.py; the first five are searched before and after. Default:
    five pairs of texts that were held out of the training are shown.
    """
    judgements: Location | None = None
    """File of relevant documents for queries, in the form of BEIR's qrels: the header query-id, corpus-id, score, and
    tabs between columns. The encoder is then scored on all queries, next to BM25 and the untouched encoder.
    """
    masked_steps: int | None = None
    """Steps of training on masked words; 0 leaves this training out. Default: as many as one epoch has, but at least
    100 and at most 500; 0 if the encoder has no head for masked words.
    """
    contrastive_steps: int | None = None
    """Steps of contrastive training; 0 leaves this training out. Default: as many as one epoch has, but at least 100
    and at most 500.
    """
    maximum_length: int | None = None
    """Maximum tokens per training sequence. Default: 128, or fewer if the encoder reads fewer. The adapted encoder
    reads as many tokens of a text as before.
    """
    learning_rate: float | None = None
    """Peak learning rate of both trainings. Default: 2e-5; for an encoder that is narrower than 768 and has a head for
    masked words, 2e-4.
    """
    seed: int = 0
    index: Literal["auto", "on", "off"] = "auto"
    """Search with an approximate index; needs the package usearch. auto: only for more than a million vectors."""
    workers: int | str = 1
    """Number of Ray Train workers, or a range such as 2..8."""
    batch: Batch = Batch(rows_per_step=64)
    placement: Placement = Placement()

    def __post_init__(self) -> None:
        require(bool(self.corpus), "corpus is missing: name your text, such as --corpus books/")
        require(
            self.judgements is None or self.queries is not None,
            f"judgements ({self.judgements}) are about queries, but queries is not set: give the file of the queries",
        )
        require_utf8("queries", self.queries or "")
        for name in ("masked_steps", "contrastive_steps"):
            require_at_least(name, value if (value := getattr(self, name)) is not None else 0, 0)
        require(
            self.masked_steps != 0 or self.contrastive_steps != 0,
            "masked_steps (0) and contrastive_steps (0) leave nothing to train: leave one of them out",
        )
        rate = self.learning_rate
        require(rate is None or 0 < rate < 1, f"learning_rate ({rate}) must lie between 0 and 1")
        if self.maximum_length is not None:
            require_at_least("maximum_length", self.maximum_length, 8)
        self._refuse_what_a_run_refuses()

    def _refuse_what_a_run_refuses(self) -> None:
        """Raise ConfigError for settings that a training run refuses, before hours of other steps."""
        pairs = Sampling() if self.contrastive_steps == 0 else Sampling(pairs=TwoCrops())
        objective = Pretrain.objective if self.contrastive_steps == 0 else Contrastive()
        steps = [steps for steps in (self.masked_steps, self.contrastive_steps) if steps]
        Pretrain(
            workers=self.workers,
            batch=self.batch,
            seed=self.seed,
            placement=self.placement,
            steps=min([LEAST_STEPS, *steps]),
            sampling=pairs,
            objective=objective,
        )
