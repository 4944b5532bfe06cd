"""Settings for using a fine-tuned model: predictions, scores, and the comparison of two encoders."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_above_zero, require_at_least
from pipeline.config.finetune import COMMON, Finetune, OnBadRows
from pipeline.config.locations import Location
from pipeline.config.placement import ModelPlacement

OUTPUTS = (".parquet", ".csv", ".jsonl", ".ndjson", ".json")
COMMON_OF_COMPARE = ("random_weights", *(name for name in COMMON if name != "minutes"))
"""Settings that the comparison's --help shows first."""
Format = Literal["auto", "table", "squad", "words", "text"]


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Answer a file, or a corpus of files, with a model."""

    checkpoint: Location
    """Folder, URL or hf://OWNER/NAME of a fine-tuned model, such as output/finetune/NAME/model or one that transformers
    wrote, with a head for sequences, tokens or questions; or the folder of a run's export, which fills [MASK]s.
    """
    input: Location
    """File, folder, glob or URL of what is answered."""
    output: Location
    """File or URL of the answers: .parquet, .csv or .jsonl; of SQuAD's questions also .json, {id: answer} as its
    official scripts read it.
    """
    format: Format = "auto"
    """table: CSV, TSV, JSON lines, Parquet; squad: SQuAD's JSON; words: CoNLL's columns, of which the first is read;
    text: a text a line; auto: by each file's name.
    """
    text: str | None = None
    """Column of the text; default: text, of questions context, of tags words."""
    pair: str | None = None
    """Column of the second text of a pair; of questions the question's; default: question there, and no second text
    elsewhere.
    """
    top: int = 5
    """Likeliest words of each [MASK]."""
    rows_per_part: int = 2_000
    """Rows that are answered, and published, together: what a killed job loses at most, of each of its processes."""
    replace: bool = False
    """Replace an existing output."""
    actors: int | None = None
    """Processes that hold the model; default: as many as fit."""
    cpus: float = 1.0
    """CPUs of each."""
    gpus: float | None = None
    """GPUs of each, such as 0.25; default: one where there are any."""
    placement: ModelPlacement = ModelPlacement()

    def __post_init__(self) -> None:
        require(
            self.output.endswith(OUTPUTS),
            f"output ({self.output}) must end in one of {', '.join(OUTPUTS)}, which says its format",
        )
        require_at_least("top", self.top, 1)
        require_at_least("rows_per_part", self.rows_per_part, 1)
        require(self.actors is None or self.actors >= 1, f"actors ({self.actors}) must be at least 1")
        require(
            self.placement.device != "cuda" or self.gpus != 0,
            "placement.device cuda and gpus (0) contradict each other: leave one of them out",
        )
        require(
            not self.placement.autoscaled or self.actors is not None,
            "placement.autoscaled needs actors: so many processes ask for nodes",
        )
        require_above_zero("cpus", self.cpus)
        require(self.gpus is None or self.gpus >= 0, f"gpus ({self.gpus}) must be at least 0")
        require(self.gpus is None or self.gpus <= 1, f"gpus ({self.gpus}) must be at most 1: a process uses one")


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score a fine-tuned model, or a file of answers, on labelled examples; or a pretrained model on BLiMP."""

    checkpoint: Location | None = None
    """Folder, URL or hf://OWNER/NAME of a fine-tuned model, ours or one that transformers wrote; for blimp the folder
    of a pretraining run or of its export.
    """
    predictions: Location | None = None
    """Instead of a model: SQuAD's official JSON of answers, {id: text}, to the questions of input."""
    input: Location | None = None
    """Labelled file: CSV, TSV, JSON lines, Parquet, SQuAD's JSON or CoNLL's columns."""
    task: str | None = None
    """Instead of input: a task by its name, whose files are in data."""
    data: Location | None = None
    """Folder of the task's files in their official layout."""
    split: str = "dev"
    """Split of the task."""
    text: str = "text"
    """Column of the text; for tags of the words (a list, or separated by spaces), for questions of the context (column
    context by default).
    """
    pair: str | None = None
    """Column of the second text of a pair, or of the question (default: question)."""
    label: tuple[str, ...] = ()
    """Column of the label or value, of the tags, or of the answers; default: label, for questions answers or answer;
    several: one 0/1 column per label. In CoNLL's columns a number from 0, -1 for the last.
    """
    on_bad_rows: OnBadRows = "refuse"
    """Rows with an empty text, without a label, or with a label that the model does not know: refuse (the first is an
    error), or skip (they are left out and counted).
    """
    blimp: Location | None = None
    """Instead of labelled examples: the folder of BLiMP's files, 67,000 pairs of a good and a bad sentence. A folder
    that does not exist is filled by a download (20 MB).
    """
    pairs: Literal["all", "odd", "even", "fifth"] = "all"
    """Pairs of blimp, by their numbers. fifth: a fifth of each paradigm, all odd. Choose settings by odd pairs, and
    report the even ones.
    """
    corpus: Location | None = None
    """For blimp: the prepared corpus that the baselines (unigrams and 5-grams) are counted from, and that is searched
    for BLiMP's sentences; default: the run's.
    """
    placement: ModelPlacement = ModelPlacement()

    def __post_init__(self) -> None:
        require(
            (self.checkpoint is None) != (self.predictions is None),
            f"checkpoint ({self.checkpoint}) or predictions ({self.predictions}): give one of both",
        )
        given = [name for name in ("input", "task", "blimp") if getattr(self, name) is not None]
        require(
            len(given) == 1,
            f"input ({self.input}), task ({self.task}) or blimp ({self.blimp}): give one of them",
        )
        require(
            self.blimp is None or self.checkpoint is not None,
            f"blimp ({self.blimp}) scores a model, not predictions: give checkpoint",
        )
        require(
            self.blimp is not None or (self.corpus is None and self.pairs == "all"),
            f"corpus ({self.corpus}) and pairs ({self.pairs}) are for blimp: leave them out, or give blimp",
        )
        require(
            (self.task is None) == (self.data is None),
            f"task ({self.task}) and data ({self.data}), the folder of its files, belong together: give both",
        )


@dataclass(frozen=True, kw_only=True)
class Compare(Finetune):
    """Fine-tune two encoders on the same tasks with the same seeds, and tell whether one is better."""

    checkpoint: tuple[Location, ...]  # ty: ignore[incompatible-attribute-override]
    """Folder, URL or hf://OWNER/NAME of a published model; given twice, A and then B, or once with random_weights."""
    random_weights: bool = False
    """With one checkpoint: it is B, and A has random weights of its sizes: what did its pretraining give?"""
    seeds: int = 5
    """Runs of each task with either encoder; each seed of A is compared with the same seed of B."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = f"checkpoint ({', '.join(self.checkpoint) or 'none'})"
        if self.random_weights:
            require(
                len(self.checkpoint) == 1,
                f"{given} must be given once with --random-weights: it is compared with random weights of its sizes",
            )
        else:
            require(
                len(self.checkpoint) == 2,
                f"{given} must be given twice: --checkpoint A --checkpoint B; or once with --random-weights",
            )
        require(
            len(set(self.checkpoint)) == len(self.checkpoint),
            f"checkpoint ({self.checkpoint[0]}) is given twice: give two that differ",
        )
        require_at_least("seeds", self.seeds, 2)
        require(
            self.minutes is None,
            f"minutes ({self.minutes}) would give the two encoders unequal trials: leave it out, and lower --seeds or "
            "--recipe.training-rows",
        )
        require(
            self.search.folds is None,
            f"search.folds ({self.search.folds}) is for one encoder: leave it out, and name a development file with "
            "--dev",
        )
        require(
            self.register is None, f"register ({self.register}) is for one encoder: fine-tune the better one by itself"
        )
