"""Settings of fine-tuning."""

from dataclasses import dataclass, replace
from typing import Literal

from pipeline.config.adapters import Adapter, Freeze, NoAdapter
from pipeline.config.checks import require, require_above_zero, require_at_least, require_share
from pipeline.config.data import VocabularySettings
from pipeline.config.locations import Location
from pipeline.config.model import FAMILY_PARTS, Model
from pipeline.config.placement import TrialPlacement
from pipeline.config.training import AdamW, LinearDecay

COMMON = (
    *("checkpoint", "task", "data", "train", "dev", "text", "label", "seeds", "minutes", "output"),
    *("recipe.epochs", "optimizer.learning_rate"),
)
"""Settings that --help shows first."""
OnBadRows = Literal["refuse", "skip"]
RATES = ((256, 3e-4), (512, 1e-4))
"""Maximum encoder width -> default peak learning rate; small encoders get the highest of the miniatures' grid."""
WIDE_RATE = 5e-5
"""Default peak learning rate of wider encoders: the highest of BERT's grid."""
HIGH_RATE = 4
"""Factor above the usual learning rate from which a warning is shown."""


def usual_rate(width: int) -> float:
    """Return the default peak learning rate for an encoder of this width."""
    return next((rate for most, rate in RATES if width <= most), WIDE_RATE)


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """Truncation and splitting of long texts."""

    maximum_length: int | None = None
    """Maximum tokens per row, with special tokens; default: 128, for questions 384, and never more than the
    checkpoint's positions.
    """
    stride: int | None = None
    """Tokens that a window or passage shares with the next; default: 128 for questions and 32 for others, and at most
    a third of the length.
    """
    question_length: int = 64
    """Maximum tokens of a question; longer ones are truncated."""
    longest_answer: int = 30
    """Maximum tokens of an answer."""
    passages: bool = False
    """Split a long text into passages instead of truncating it. Each passage is trained on with the text's label; the
    answer is the mean of their logits.
    """
    label_all_pieces: bool = False
    """Give all pieces of a word its tag; otherwise only the first (Devlin et al. 2019, 5.3)."""

    def __post_init__(self) -> None:
        require(
            self.maximum_length is None or self.maximum_length >= 8,
            f"cutting.maximum_length ({self.maximum_length}) must be at least 8",
        )
        require(self.stride is None or self.stride >= 0, f"cutting.stride ({self.stride}) must be at least 0")
        require_at_least("cutting.question_length", self.question_length, 1)
        require_at_least("cutting.longest_answer", self.longest_answer, 1)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Training recipe of a trial."""

    epochs: int = 3
    """Passes over the training rows; fewer if training stops early."""
    rows_per_step: int = 32
    """Rows per optimiser step; the last step of an epoch has the remaining rows."""
    rows_per_slot: int | None = None
    """Rows per forward and backward pass; the gradients of a step's passes are summed. Lower it when memory runs out.
    Default: all rows of the step.
    """
    training_rows: int | None = None
    """Maximum number of training rows, a random sample by the seed; default: all."""
    pooling: Literal["cls", "mean", "attention"] = "cls"
    """Vector of a text: the pooled [CLS] state (as published), the mean of the last hidden states, or their weighted
    mean with learnt weights.
    """
    dropout: float | None = None
    """Hidden and attention dropout; default: the checkpoint's."""
    patience: int | None = None
    """Early stopping: end training after this many epochs without a better development score, and keep the best
    epoch's weights. Default: train all epochs and keep the last one's weights.
    """
    balance_classes: bool = False
    """Weight each class in the loss in inverse proportion to its rows."""
    group_lengths: bool = True
    """Put rows of similar length into one step, for less padding where attention pads. Rows are sorted within every 50
    steps, as by transformers' Trainer with group_by_length.
    """
    metric: str | None = None
    """Metric on the development set that selects settings, the epoch (recipe.patience) and the best model: accuracy,
    f1 (of the second of two classes), macro_f1, matthews (or mcc), auc, average_precision, mean_absolute_error, …;
    default: the task's first."""

    def __post_init__(self) -> None:
        require_at_least("recipe.epochs", self.epochs, 1)
        require_at_least("recipe.rows_per_step", self.rows_per_step, 1)
        if self.rows_per_slot is not None:
            require_at_least("recipe.rows_per_slot", self.rows_per_slot, 1)
        require(
            self.training_rows is None or self.training_rows >= 1,
            f"recipe.training_rows ({self.training_rows}) must be at least 1",
        )
        require(self.patience is None or self.patience >= 1, f"recipe.patience ({self.patience}) must be at least 1")
        if self.dropout is not None:
            require_share("recipe.dropout", self.dropout)


@dataclass(frozen=True, kw_only=True)
class Search:
    """Which settings are tried, and how many seeds select and report."""

    grid: Literal["none", "bert", "miniatures"] = "none"
    """Published grid to try, or "none" for your settings alone. bert: 16 or 32 rows, 5e-5, 3e-5 or 2e-5, 2 to 4 epochs
    (Devlin et al. 2019, A.3); miniatures: 8 to 128 rows, 3e-4 to 3e-5, 4 epochs (google-research/bert).
    """
    over: tuple[str, ...] = ()
    """NAME=VALUE,VALUE of a setting of cutting, recipe, optimizer, schedule, freeze or adapter to try all of
    (adapter=no-adapter,low-rank tries kinds), or NAME=LOW..HIGH, drawn log-uniformly.
    """
    samples: int = 8
    """Number of random draws if search.over has a range; each is combined with all values of the other settings."""
    seeds: int = 1
    """Number of seeds for selecting a setting; the reported scores use other seeds."""
    folds: int | None = None
    """Cross-validation of your own file, if it is small: number of folds of its rows, with classes stratified. Each
    fold is the development split of trials on the others, and no model is kept. Default: one development split.
    """
    stop_early: bool = False
    """Stop trials with low scores after an epoch (asynchronous successive halving, Li et al. 2020)."""

    def __post_init__(self) -> None:
        require_at_least("search.samples", self.samples, 1)
        require_at_least("search.seeds", self.seeds, 1)
        require(self.folds is None or self.folds >= 2, f"search.folds ({self.folds}) must be at least 2")


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Resources of a trial."""

    cpus: float = 1.0
    """CPUs per trial. Without a GPU it also has as many threads, unless placement.threads is set."""
    gpus: float | None = None
    """GPUs per trial, such as 0.25; default: one if the cluster has any."""
    workers: int = 1
    """Workers that share the steps of one trial, on one machine; each has `cpus` and `gpus`."""
    at_once: int | None = None
    """Maximum number of concurrent trials; default: as many as fit."""

    def __post_init__(self) -> None:
        require_above_zero("trials.cpus", self.cpus)
        require(self.gpus is None or self.gpus >= 0, f"trials.gpus ({self.gpus}) must be at least 0")
        require_at_least("trials.workers", self.workers, 1)
        require(self.at_once is None or self.at_once >= 1, f"trials.at_once ({self.at_once}) must be at least 1")


@dataclass(frozen=True, kw_only=True)
class TaskAdamW(AdamW):
    __doc__ = AdamW.__doc__

    learning_rate: float | None = None  # ty: ignore[incompatible-attribute-override]
    """Peak learning rate; default: 3e-4 for widths up to 256, 1e-4 up to 512, 5e-5 above."""
    layer_decay: float | None = None  # ty: ignore[incompatible-attribute-override]
    """Each layer's rate is this share of the next one's: its (layers + 1)th power for the embeddings, 1 for pooler and
    heads; default: 0.8 for ELECTRA (Clark et al. 2020), 1 for others.
    """

    def __post_init__(self) -> None:
        usual = {"learning_rate": WIDE_RATE, "layer_decay": 1.0}
        AdamW(**vars(self) | {name: value for name, value in usual.items() if getattr(self, name) is None})  # checks


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """Fine-tune a pretrained encoder on tasks, each with several seeds."""

    checkpoint: Location
    """Folder, URL or hf://OWNER/NAME of a published model, such as a run's export or a fine-tuned model."""
    task: tuple[str, ...] = ()
    """Tasks by name; "glue" for all GLUE tasks whose files are in data; or "builtin"."""
    data: Location | None = None
    """Folder of the tasks' files in their official layout: CoLA/train.tsv, …; train-v1.1.json; eng.train."""
    train: Location | None = None
    """Your own training file instead of a task: CSV, TSV, JSON lines, Parquet, SQuAD's JSON, or CoNLL's columns."""
    dev: Location | None = None
    """Its development file; default: a tenth of the training rows, set aside by a hash."""
    test: Location | None = None
    """Labelled file in the form of train; at the end, the selected model answers it and is scored on it."""
    text: str = "text"
    """Column of the text in your own file. With tags, it holds the words (a list, or separated by spaces); with
    questions, the context, and its name is then "context" unless it is set.
    """
    pair: str | None = None
    """Column of the second text of a pair, or of the question (default: question)."""
    label: tuple[str, ...] = ()
    """Column of the label, value, tags or answers; default: label; for questions, answers or answer. Give several
    columns if each holds 0 or 1 for one label. In CoNLL's files it is the column's number from 0, or -1 for the last.
    """
    kind: Literal["auto", "classification", "regression", "multilabel", "tags", "spans"] = "auto"
    """Kind of the labels in your own file; auto: recognised."""
    on_bad_rows: OnBadRows = "refuse"
    """Treatment of rows with an empty text, no label, or a label that only the development file has. refuse: stop with
    an error at the first; skip: leave them out and count them.
    """
    seeds: int = 3
    """Runs per task and setting; the seed of each sets the head's initial weights, the order of rows and dropout."""
    minutes: float | None = None
    """Approximate time from start to table. If the trials need more, large tasks lose seeds, then epochs, then rows,
    and a line says which.
    """
    random_weights: bool = False
    """Start from random weights with the checkpoint's sizes, to see what pretraining gives."""
    start_from: str | None = None
    """Task whose fine-tuned encoder RTE, MRPC and STS-B start from, if it is among the tasks: mnli (Liu et al. 2019 do
    so; Devlin et al. 2019 do not).
    """
    register: str | None = None
    """Name of the best model in MLflow's registry; with several tasks, the task's name is added, as in NAME-sst2."""
    output: Location = "output"
    """Folder of results; finished trials in it are not trained again."""
    mlflow_uri: str | None = None
    """MLflow tracking URI; default: MLFLOW_TRACKING_URI, else SQLite at OUTPUT/mlflow.db."""
    cutting: Cutting = Cutting()
    recipe: Recipe = Recipe()
    search: Search = Search()
    trials: Trials = Trials()
    vocabulary: VocabularySettings = VocabularySettings()
    placement: TrialPlacement = TrialPlacement()
    optimizer: TaskAdamW = TaskAdamW()
    schedule: LinearDecay = LinearDecay(warmup_share=0.1)
    freeze: Freeze = Freeze()
    adapter: Adapter = NoAdapter()

    def __post_init__(self) -> None:
        require(
            (self.task == ()) != (self.train is None),
            f"task ({', '.join(self.task) or 'none'}) or train ({self.train}): give one of both, such as --task sst2 "
            "or --train my.csv",
        )
        require(self.dev is None or self.train is not None, f"dev ({self.dev}) belongs to train, which is not given")
        require(self.test is None or self.train is not None, f"test ({self.test}) belongs to train, which is not given")
        require_at_least("seeds", self.seeds, 1)
        if self.search.folds is not None:
            given = f"search.folds ({self.search.folds})"
            require(self.train is not None, f"{given} divides your own file: give it with --train")
            require(self.dev is None, f"{given} divides train, and dev ({self.dev}) is given: leave one of them out")
            require(
                self.test is None, f"{given} keeps no model, and test ({self.test}) wants one: leave one of them out"
            )
            require(
                self.register is None,
                f"{given} keeps no model, and register ({self.register}) wants one: leave one of them out",
            )
        require(self.minutes is None or self.minutes > 0, f"minutes ({self.minutes}) must be above 0")
        require(
            not self.vocabulary.extend,
            f"vocabulary.extend ({self.vocabulary.extend}) is for pretraining, which learns the words that are added: "
            "leave it out",
        )
        require(
            self.placement.device != "cuda" or self.trials.gpus != 0,
            "placement.device cuda and trials.gpus (0) contradict each other: leave one of them out",
        )
        require(
            not self.placement.autoscaled or self.trials.at_once is not None,
            "placement.autoscaled needs trials.at_once: so many trials ask for nodes at the same time",
        )

    def for_workers(self) -> "Finetune":
        """Return the settings with rows_per_slot so that every worker of a trial has a slot of each step.

        Dropout is drawn per slot, so trials with the same rows_per_slot have the same losses on any number of workers.
        """
        workers, recipe = self.trials.workers, self.recipe
        if workers == 1:
            return self
        require(
            workers <= recipe.rows_per_step,
            f"trials.workers ({workers}) must be at most recipe.rows_per_step ({recipe.rows_per_step}): each worker "
            "needs a row of every step",
        )
        fitting = min(-(-recipe.rows_per_step // workers), (recipe.rows_per_step - 1) // (workers - 1))
        slot = recipe.rows_per_slot or fitting
        require(
            slot * (workers - 1) < recipe.rows_per_step,
            f"recipe.rows_per_slot ({slot}) leaves a worker without rows: with trials.workers ({workers}) and "
            f"recipe.rows_per_step ({recipe.rows_per_step}) it must be at most {fitting}",
        )
        return replace(self, recipe=replace(recipe, rows_per_slot=slot))

    def for_model(self, model: Model) -> "Finetune":
        """Return the settings with learning rate and layer decay filled in: as set, or the defaults for this model."""
        usual = {
            "learning_rate": usual_rate(model.width),
            "layer_decay": FAMILY_PARTS[model.family].tuned_layer_decay,
        }
        unset = {name: value for name, value in usual.items() if getattr(self.optimizer, name) is None}
        return replace(self, optimizer=replace(self.optimizer, **unset)) if unset else self
