"""Settings of fine-tuning."""

from dataclasses import dataclass, replace
from typing import Literal

from pipeline.config.adapters import Adapter, Freeze, NoAdapter, require_freezable
from pipeline.config.checks import require, require_above_zero, require_at_least
from pipeline.config.cutting import Truncation
from pipeline.config.data import VocabularySettings
from pipeline.config.locations import Location
from pipeline.config.model import FAMILY_PARTS, Model, require_one_rate
from pipeline.config.placement import TrialPlacement
from pipeline.config.ranking import Ranking
from pipeline.config.recipe import DISTILLED, Recipe
from pipeline.config.similarity import Similarity
from pipeline.config.task_kind import OwnKind
from pipeline.config.training import LinearDecay, TaskAdamW

COMMON = (
    *("checkpoint", "task", "data", "train", "dev", "text", "label", "seeds", "minutes", "output"),
    *("recipe.epochs", "optimizer.learning_rate"),
)
"""Settings that --help shows first."""
OnBadRows = Literal["refuse", "skip"]
RATES = ((256, 3e-4), (512, 1e-4))
"""Maximum encoder width -> default peak learning rate. 3e-4 is the highest rate of search.grid "miniatures"."""
WIDE_RATE = 5e-5
"""Default peak learning rate of wider encoders: the highest rate of search.grid "bert"."""
HIGH_RATE = 4
"""A warning is printed for a learning rate above HIGH_RATE times the default rate."""


def usual_rate(width: int) -> float:
    """Return the default peak learning rate for an encoder of this width."""
    return next((rate for most, rate in RATES if width <= most), WIDE_RATE)


@dataclass(frozen=True, kw_only=True)
class GridSearch:
    """Settings to try, and the seeds that select among them."""

    grid: Literal["none", "bert", "miniatures"] = "none"
    """Published grid to try, or "none" for your settings alone. bert: 16 or 32 rows per step, learning rates 5e-5, 3e-5
    and 2e-5, 2 to 4 epochs (Devlin et al. 2019, appendix A.3); miniatures: 8 to 128 rows per step, learning rates from
    3e-4 to 3e-5, 4 epochs (google-research/bert).
    """
    over: tuple[str, ...] = ()
    """Settings to try. NAME=VALUE,VALUE tries every value; NAME=LOW..HIGH draws values log-uniformly. NAME is a setting
    of cutting, recipe, similarity, optimizer, schedule, freeze or adapter; adapter=no-adapter,low-rank tries kinds of
    adapter.
    """
    samples: int = 8
    """Number of random draws if search.over has a range. Each draw is tried with all values of the other settings."""
    seeds: int = 1
    """Number of seeds for each tried setting; the reported scores use other seeds."""
    folds: int | None = None
    """Number of folds for cross-validation on a small file of your own; classes are stratified. Each fold is the
    development split of trials that train on the other folds. No model is kept. Default: one development split.
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
    """CPUs per worker of a trial. A worker also uses this number of CPU threads, unless placement.threads is set."""
    gpus: float | None = None
    """GPUs per worker of a trial, such as 0.25; default: one if the cluster has GPUs."""
    workers: int = 1
    """Number of workers that share each step of a trial, on one machine."""
    at_once: int | None = None
    """Maximum number of concurrent trials; default: as many as fit."""

    def __post_init__(self) -> None:
        require_above_zero("trials.cpus", self.cpus)
        require(self.gpus is None or self.gpus >= 0, f"trials.gpus ({self.gpus}) must be at least 0")
        require_at_least("trials.workers", self.workers, 1)
        require(self.at_once is None or self.at_once >= 1, f"trials.at_once ({self.at_once}) must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """Fine-tune a pretrained encoder on tasks, each with several seeds."""

    checkpoint: Location
    """Folder, URL or hf://OWNER/NAME of a published model, such as a run's export or a fine-tuned model."""
    task: tuple[str, ...] = ()
    """Tasks by name. "glue": all GLUE tasks whose files are in data; "builtin": a small task that needs no files."""
    data: Location | None = None
    """Folder of the tasks' files in their official layout, such as CoLA/train.tsv, train-v1.1.json or eng.train."""
    train: Location | None = None
    """Your own training file instead of a task: CSV, TSV, JSON lines, Parquet, SQuAD's JSON, or CoNLL's columns."""
    dev: Location | None = None
    """Development file in the form of train; default: a tenth of the training rows, set aside by a hash."""
    test: Location | None = None
    """Labelled test file in the form of train; for kind similarity, a file of pairs with a score. At the end, the
    selected model predicts and is scored on this file.
    """
    text: str = "text"
    """Column of the text in your own file. For tags, this column holds the words (a list, or separated by spaces). For
    questions, this column holds the context, and the default is "context".
    """
    pair: str | None = None
    """Column of the second text of a pair, or of the question (default: question)."""
    label: tuple[str, ...] = ()
    """Column of the label, value, tags or answers; default: "label", and "answers" or "answer" for questions. Give
    several columns if each column holds 0 or 1 for a different label. In CoNLL's files, give the column's number from
    0, or -1 for the last column; default: the last one, and 3 in CoNLL-U.
    """
    words: int | None = None
    """In CoNLL's files, the number of the column of words, from 0; default: 0, or 1 if column 0 counts the words."""
    intent: str | None = None
    """Column of an intent, a label of the whole sentence, which a model learns together with the tags of its words. For
    tags in a table.
    """
    choices: tuple[str, ...] = ()
    """Columns of the texts to choose from, for multiple choice: one column for each choice, or one of lists; default:
    "choices". text is then the column of the context, pair that of a beginning that all choices share, and label that
    of the right choice's number, from 0.
    """
    negative: tuple[str, ...] = ()
    """Columns of negative texts, which do not match the text; for kind similarity with the losses contrastive and
    triplet. A column holds a text, a list of texts, or nothing; default: those of negative, negatives and
    negative_1 to negative_9 that the file has.
    """
    kind: OwnKind = "auto"
    """Kind of the labels in your own file; auto: detected from the file. ranking: pairs of a query and a candidate,
    with a label above 0 if the candidate is relevant. similarity: an embedding model, which encodes each text alone;
    similarity.loss says what the rows have: pairs of texts with a score or a class as label, or a text and its match.
    auto never chooses ranking or similarity. choices: multiple choice; auto chooses it if choices are given.
    """
    on_bad_rows: OnBadRows = "refuse"
    """Treatment of rows with an empty text, no label, or a label that only the development file has. refuse: stop with
    an error at the first such row; skip: leave these rows out and count them.
    """
    teacher: Location | None = None
    """Folder, URL or hf://OWNER/NAME of a fine-tuned model of the same task, of any family and vocabulary. Trials learn
    the teacher's logits in addition to the labels (knowledge distillation, Hinton et al. 2015).
    """
    unlabelled: tuple[Location, ...] = ()
    """Files of more texts, without labels; trials learn the teacher's logits on these texts. One text per line (.txt),
    or CSV, TSV, JSON lines or Parquet with the columns that text and pair name.
    """
    seeds: int = 3
    """Runs per task and setting; the seed of a run sets the head's initial weights, the order of rows and dropout."""
    minutes: float | None = None
    """Approximate minutes from the start to the result table. If the trials need longer, large tasks get fewer seeds,
    then fewer epochs, then fewer rows; a printed line names the reductions.
    """
    random_weights: bool = False
    """Start from random weights with the checkpoint's sizes, to measure the gain from pretraining."""
    start_from: str | None = None
    """Task whose fine-tuned encoder is the starting point for RTE, MRPC and STS-B. This task must be among the tasks.
    Liu et al. 2019 use mnli. Default: start from the pretrained encoder, as in Devlin et al. 2019.
    """
    register: str | None = None
    """Name under which the best model is registered in MLflow; with several tasks, the task's name is added, as in
    NAME-sst2.
    """
    output: Location = "output"
    """Folder of results. Trials that are finished in this folder are not trained again."""
    mlflow_uri: str | None = None
    """MLflow tracking URI; default: MLFLOW_TRACKING_URI, else SQLite at OUTPUT/mlflow.db."""
    cutting: Truncation = Truncation()
    recipe: Recipe = Recipe()
    similarity: Similarity = Similarity()
    ranking: Ranking = Ranking()
    search: GridSearch = GridSearch()
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
            f"task ({', '.join(self.task) or 'none'}) or train ({self.train}): give exactly one, such as --task sst2 "
            "or --train my.csv",
        )
        require(self.dev is None or self.train is not None, f"dev ({self.dev}) needs train, which is not given")
        require(self.test is None or self.train is not None, f"test ({self.test}) needs train, which is not given")
        require_at_least("seeds", self.seeds, 1)
        require(
            not (self.recipe.crf and self.cutting.label_all_pieces),
            "cutting.label_all_pieces (True) gives a word several tags, but recipe.crf (True) learns which tag follows "
            "which from one tag per word: leave one of the two out",
        )
        self.similarity.require_columns(self.kind, self.label, self.negative)
        self._require_teacher()
        self._require_alone()
        require(
            self.intent is None or self.train is not None and self.kind in ("auto", "tags"),
            f"intent ({self.intent}) is a column of your own file with tags, but train is {self.train} and kind is "
            f"{self.kind}: leave intent out",
        )
        require(
            not self.choices or self.train is not None,
            f"choices ({', '.join(self.choices)}) are columns of your own file, but train is not given: leave choices "
            "out",
        )
        require(
            not self.choices or self.kind in ("auto", "choices"),
            f"choices ({', '.join(self.choices)}) are for kind choices, but kind is {self.kind}: leave kind or choices "
            "out",
        )
        if self.search.folds is not None:
            folds = f"search.folds ({self.search.folds})"
            require(self.train is not None, f"{folds} splits your own file: give the file with --train")
            require(
                self.dev is None, f"{folds} splits train, but dev ({self.dev}) is given: leave search.folds or dev out"
            )
            require(
                self.test is None,
                f"{folds} keeps no model, but test ({self.test}) needs one: leave search.folds or test out",
            )
            require(
                self.register is None,
                f"{folds} keeps no model, but register ({self.register}) needs one: leave search.folds or register out",
            )
        require(self.minutes is None or self.minutes > 0, f"minutes ({self.minutes}) must be above 0")
        require(
            not self.vocabulary.extend,
            f"vocabulary.extend ({self.vocabulary.extend}) is for pretraining, which trains the added words: leave the "
            "option out",
        )
        require(
            self.placement.device != "cuda" or self.trials.gpus != 0,
            "placement.device cuda needs a GPU, but trials.gpus is 0: leave placement.device or trials.gpus out",
        )
        require(
            not self.placement.autoscaled or self.trials.at_once is not None,
            "placement.autoscaled needs trials.at_once, the number of trials that ask for nodes at the same time",
        )

    def _require_alone(self) -> None:
        """Raise ConfigError for settings that a recipe for few labels does not work with."""
        pairs, most = self.recipe.contrastive_pairs, self.recipe.rows_per_class
        for name, value in (("recipe.contrastive_pairs", pairs), ("recipe.rows_per_class", most)):
            require(
                value is None or self.minutes is None,
                f"{name} ({value}) fixes the number of rows, so minutes ({self.minutes}) has nothing to reduce: leave "
                "minutes out",
            )
        shown = f"recipe.contrastive_pairs ({pairs})"
        require(
            pairs is None or self.teacher is None,
            f"{shown} learns from labels alone, but teacher ({self.teacher}) is given: leave one of them out",
        )
        require(
            pairs is None or self.trials.workers == 1,
            f"{shown} trains on one worker, but trials.workers is {self.trials.workers}: leave trials.workers out",
        )

    def _require_teacher(self) -> None:
        """Raise ConfigError if settings need a missing teacher, or if unlabelled texts would have no loss."""
        if self.teacher is None:
            require(
                self.ranking.loss != "margin",
                "ranking.loss margin needs a teacher, whose scores are learnt: name a model that scores pairs with "
                "--teacher",
            )
            require(
                not self.unlabelled,
                f"unlabelled ({', '.join(self.unlabelled)}) needs a teacher, whose answers serve as their labels: "
                "name a fine-tuned model with --teacher",
            )
            for name in DISTILLED:
                key = name.removeprefix("recipe.")
                value = getattr(self.recipe, key)
                require(
                    value == getattr(Recipe, key),
                    f"{name} ({value}) needs a teacher, which is not given: name a fine-tuned model with --teacher",
                )
        require(
            not self.unlabelled or self.recipe.teacher_weight > 0,
            f"recipe.teacher_weight ({self.recipe.teacher_weight:g}) leaves the texts of unlabelled "
            f"({', '.join(self.unlabelled)}) without a loss: raise the weight, or leave --unlabelled out",
        )

    @property
    def splits_steps(self) -> bool:
        """Whether a full step has several slots, on one worker or on several."""
        slot = self.recipe.rows_per_slot
        return self.trials.workers > 1 or (slot is not None and slot < self.recipe.rows_per_step)

    def for_workers(self) -> "Finetune":
        """Return the settings. If a trial has several workers and recipe.rows_per_slot is unset, set it.

        The chosen value gives each worker a slot of every full step. Dropout is drawn per slot, so trials with the same
        rows_per_slot have the same losses on any number of workers. Raises ConfigError if a worker would have no rows.
        """
        workers, recipe = self.trials.workers, self.recipe
        if workers == 1:
            return self
        require(
            workers <= recipe.rows_per_step,
            f"trials.workers ({workers}) must be at most recipe.rows_per_step ({recipe.rows_per_step}): each worker "
            "needs a row of every step",
        )
        most = min(-(-recipe.rows_per_step // workers), (recipe.rows_per_step - 1) // (workers - 1))
        rows = recipe.rows_per_slot or most
        require(
            rows * (workers - 1) < recipe.rows_per_step,
            f"recipe.rows_per_slot ({rows}) must be at most {most} with trials.workers ({workers}) and "
            f"recipe.rows_per_step ({recipe.rows_per_step}): otherwise a worker gets no rows",
        )
        return replace(self, recipe=replace(recipe, rows_per_slot=rows))

    def for_model(self, model: Model) -> "Finetune":
        """Return the settings with unset learning rate and layer decay replaced by the defaults for this model.

        Raises ConfigError if settings treat layers differently, but the model's layers share their weights.
        """
        require_freezable(self.freeze.layers, model)
        require_one_rate(self.optimizer.layer_decay, model)
        usual = {
            "learning_rate": usual_rate(model.width),
            "layer_decay": FAMILY_PARTS[model.family].tuned_layer_decay,
        }
        unset = {name: value for name, value in usual.items() if getattr(self.optimizer, name) is None}
        return replace(self, optimizer=replace(self.optimizer, **unset)) if unset else self
