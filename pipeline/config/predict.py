"""Settings for predictions, for scores, and for the comparison of two encoders."""

from dataclasses import dataclass
from typing import Any, Literal

from pipeline.config.checks import require, require_above_zero, require_at_least, require_rerank
from pipeline.config.embed import RERANKED
from pipeline.config.finetune import COMMON, Finetune, OnBadRows
from pipeline.config.locations import Location
from pipeline.config.measurements import (
    AnswerScore,
    BlimpScore,
    Examples,
    ExampleScore,
    ForgettingScore,
    KnownSplit,
    LabelledFile,
    Measurement,
    Reranker,
    RetrievalScore,
    Selection,
    SimilarityScore,
    TripletScore,
)
from pipeline.config.placement import ModelPlacement

OUTPUTS = (".parquet", ".csv", ".jsonl", ".ndjson", ".json")
COMMON_OF_COMPARE = ("random_weights", *(name for name in COMMON if name != "minutes"))
"""Settings that the comparison's --help shows first."""
DEFAULT_SPLIT = "dev"
"""Default split of a known task."""
MEASURED = ("input", "task", "blimp", "heldout", "similarity", "retrieval", "triplets")
"""Settings of `Score` that choose the measurement; exactly one must be given."""
OF_VECTORS = ("similarity", "retrieval", "triplets")
"""Settings of `Score` that measure the vectors of an encoder."""
OF_MODELS = ("blimp", "heldout", *OF_VECTORS)
"""Settings of `Score` that need checkpoint; predictions are not enough."""
USED: dict[str, tuple[str, ...]] = {
    "split": ("task", "retrieval"),
    "text": ("input", "similarity", "triplets"),
    "pair": ("input", "similarity", "triplets"),
    "negative": ("triplets",),
    "choices": ("input",),
    "words": ("input",),
    "label": ("input", "similarity"),
    "rerank": ("retrieval",),
    "rerank_top": ("retrieval",),
    "rerank_label": ("retrieval",),
}
"""Setting of `Score` -> settings of MEASURED on which it has an effect."""
Format = Literal["auto", "table", "squad", "words", "text"]


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Run a model on every row of a file, or of a corpus of files."""

    checkpoint: Location
    """Folder, URL or hf://OWNER/NAME of a fine-tuned model: output/finetune/NAME/model, or a model that transformers
    wrote, with a head for sequences, tokens or questions. To fill [MASK]s: the folder of a run's export.
    """
    input: Location
    """File, folder, glob or URL of the inputs."""
    output: Location
    """File or URL of the predictions, ending in .parquet, .csv or .jsonl; for SQuAD's questions also .json, with {id:
    answer} in the format of SQuAD's official scripts.
    """
    format: Format = "auto"
    """Form of the input files. table: CSV, TSV, JSON lines, Parquet; squad: SQuAD's JSON; words: CoNLL's columns; text:
    one text per line; auto: detected by each file's name, else by its content.
    """
    text: str | None = None
    """Column of the text; default: the model's column in training if the input has it, else text, or context for
    questions, or words for tags.
    """
    pair: str | None = None
    """Column of the second text of a pair, or of the question; default: the model's column in training, else question
    for questions.
    """
    choices: tuple[str, ...] = ()
    """Columns of the texts to choose from, for a model of multiple choice: one column for each, or one of lists;
    default: "choices". pair is then the column of a beginning that all choices share.
    """
    words: int | None = None
    """In CoNLL's files, the number of the column of words, from 0; default: 0, or 1 if column 0 counts the words."""
    top: int = 5
    """Number of words to write for each [MASK]: the most likely ones."""
    rows_per_part: int = 2_000
    """Maximum rows that are predicted and saved together; together they have at most 250,000 characters. If the job is
    killed, each of its processes loses at most these rows.
    """
    replace: bool = False
    """Replace an existing output."""
    actors: int | None = None
    """Number of processes that hold the model; default: one for a small input, else as many as fit into the cluster."""
    cpus: float = 1.0
    """CPUs per process."""
    gpus: float | None = None
    """GPUs per process, such as 0.25; default: one if the cluster has GPUs."""
    placement: ModelPlacement = ModelPlacement()

    def __post_init__(self) -> None:
        require(
            self.output.endswith(OUTPUTS),
            f"output ({self.output}) must end in one of {', '.join(OUTPUTS)}, which determines its format",
        )
        require_at_least("top", self.top, 1)
        require_at_least("rows_per_part", self.rows_per_part, 1)
        require(self.actors is None or self.actors >= 1, f"actors ({self.actors}) must be at least 1")
        require(
            self.placement.device != "cuda" or self.gpus != 0,
            "placement.device cuda needs a GPU, but gpus is 0: leave placement.device or gpus out",
        )
        require(
            not self.placement.autoscaled or self.actors is not None,
            "placement.autoscaled needs actors, the number of processes that ask for nodes",
        )
        require_above_zero("cpus", self.cpus)
        require(self.gpus is None or self.gpus >= 0, f"gpus ({self.gpus}) must be at least 0")
        require(self.gpus is None or self.gpus <= 1, f"gpus ({self.gpus}) must be at most 1: a process uses one GPU")


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score a fine-tuned model or a file of answers on labelled examples, a pretrained model on BLiMP, or an embedding
    model on similarity, retrieval or triplets. Or measure how much a model forgot in fine-tuning.
    """

    checkpoint: Location | None = None
    """Folder, URL or hf://OWNER/NAME of a fine-tuned model that jobs/finetune.py or transformers wrote; for blimp, the
    folder of a pretraining run or of its export, or a published model that predicts masked tokens; for similarity,
    retrieval and triplets, any encoder.
    """
    predictions: Location | None = None
    """Instead of checkpoint: JSON file {id: text} of answers to the questions of input or task, in the format of
    SQuAD's official scripts.
    """
    input: Location | None = None
    """Labelled file: CSV, TSV, JSON lines, Parquet, SQuAD's JSON or CoNLL's columns."""
    task: str | None = None
    """Instead of input: the name of a task whose files are in data."""
    data: Location | None = None
    """Folder of the task's files in their official layout."""
    split: str | None = None
    """Split of the task (default: dev), or of the judgements of retrieval (default: test)."""
    text: str = "text"
    """Column of the text. For tags, this column holds the words (a list, or separated by spaces). For questions, this
    column holds the context, and the default is "context". For triplets, this column holds the anchor, and the default
    is "anchor".
    """
    pair: str | None = None
    """Column of the second text of a pair, of the question (default: question), or of a triplet's positive text
    (default: positive).
    """
    negative: str = "negative"
    """Column of a triplet's negative text."""
    choices: tuple[str, ...] = ()
    """Columns of the texts to choose from, for a model of multiple choice: one column for each, or one of lists;
    default: "choices". pair is then the column of a beginning that all choices share.
    """
    label: tuple[str, ...] = ()
    """Column of the label, value, tags or answers; default: label; for questions, answers or answer. Give several
    columns if each column holds 0 or 1 for a different label. In CoNLL's files, give the column's number from 0, or -1
    for the last column; default: the last one, and 3 in CoNLL-U.
    """
    words: int | None = None
    """In CoNLL's files, the number of the column of words, from 0; default: 0, or 1 if column 0 counts the words."""
    intent: str | None = None
    """Column of the intent of a sentence, for a model of tags that learnt intents, too."""
    on_bad_rows: OnBadRows = "refuse"
    """Treatment of rows with an empty text, no label, or a label that the model does not know; for retrieval also of
    rows with unknown or repeated ids. refuse: stop with an error at the first such row; skip: leave these rows out and
    count them.
    """
    blimp: Location | None = None
    """Instead of labelled examples: the folder of BLiMP's files, with 67,000 pairs of a good and a bad sentence. If the
    folder does not exist, the files are downloaded into it (20 MB). Or a folder of other .jsonl files with
    sentence_good and sentence_bad, a paradigm each, as BabyLM's blimp_filtered and supplement_filtered.
    """
    pairs: Selection = "all"
    """Pairs of blimp to score, by their numbers, or by their lines from 0 if they have none. fifth: a fifth of each
    paradigm, with odd numbers only. Choose settings by their score on odd pairs, and report the score on even pairs.
    """
    heldout: Location | None = None
    """Instead of labelled examples: the folder of the pretraining run whose model was fine-tuned. This measures
    forgetting: the loss on masked tokens before and after fine-tuning, with the run's held-out rows, masks and head.
    """
    similarity: Location | None = None
    """Instead of labelled examples: a file of pairs of texts with a similarity score, to correlate with the cosine of
    the texts' vectors. The columns of STS-B and SICK are recognised; otherwise they are text, pair and label.
    """
    retrieval: Location | None = None
    """Instead of labelled examples: the folder of a retrieval collection in BEIR's layout (corpus.jsonl, queries.jsonl,
    qrels/test.tsv), or of the Cranfield collection (cran.all.1400, cran.qry, cranqrel).
    """
    triplets: Location | None = None
    """Instead of labelled examples: a file of triplets. The vector of the anchor should be nearer to the vector of the
    positive text than to the vector of the negative text.
    """
    against: Location | None = None
    """For similarity, retrieval and triplets: a second encoder, to score next to checkpoint."""
    rerank: Location | None = None
    """For retrieval: folder, URL or hf://OWNER/NAME of a cross-encoder, which reads a query and a document together. It
    reranks the documents that checkpoint finds, as a further system: output/finetune/NAME/model of pairs of texts, or a
    published model.
    """
    rerank_top: int | None = None
    """Documents of each query that rerank scores; default: 100."""
    rerank_label: str | None = None
    """Label of rerank whose logit is the score; default: the second of two labels."""
    corpus: Location | None = None
    """For blimp: a prepared corpus. Its unigrams and 5-grams give the baselines, and it is searched for BLiMP's
    sentences. For heldout: the prepared corpus with the held-out rows. Default: the run's corpus.
    """
    placement: ModelPlacement = ModelPlacement()

    def __post_init__(self) -> None:
        require(
            (self.checkpoint is None) != (self.predictions is None),
            f"checkpoint ({self.checkpoint}) or predictions ({self.predictions}): give exactly one",
        )
        chosen = [name for name in MEASURED if getattr(self, name) is not None]
        *first, last = (f"{name} ({getattr(self, name)})" for name in MEASURED)
        require(len(chosen) == 1, f"{', '.join(first)} or {last}: give exactly one")
        (name,) = chosen
        require(
            name not in OF_MODELS or self.checkpoint is not None,
            f"{name} ({getattr(self, name)}) scores a model, not predictions: give checkpoint",
        )
        require(
            name in OF_VECTORS or self.against is None,
            f"against ({self.against}) is for {', '.join(OF_VECTORS)}: leave against out",
        )
        require(
            name not in OF_VECTORS or self.placement.precision in ("auto", "float32"),
            f"placement.precision ({self.placement.precision}): vectors are computed in float32, so leave "
            "placement.precision out",
        )
        self._require_used("predictions" if self.predictions and self.input else name)
        require_rerank(self.rerank, rerank_top=self.rerank_top, rerank_label=self.rerank_label)
        if self.rerank_top is not None:
            require_at_least("rerank_top", self.rerank_top, 1)
        require(
            name == "blimp" or self.pairs == "all",
            f"pairs ({self.pairs}) is for blimp: leave it out, or give blimp",
        )
        require(
            name in ("blimp", "heldout") or self.corpus is None,
            f"corpus ({self.corpus}) is for blimp and heldout: leave corpus out, or give blimp or heldout",
        )
        require(
            (self.task is None) == (self.data is None),
            f"task ({self.task}) and data ({self.data}), the folder of its files, belong together: give both",
        )

    @property
    def measurement(self) -> Measurement:
        """The settings of what is measured, without those of other measurements."""
        if self.checkpoint is None:
            assert self.predictions is not None  # __post_init__ checks that exactly one is given
            return AnswerScore(predictions=self.predictions, questions=self._examples)
        model: dict[str, Any] = {"checkpoint": self.checkpoint, "placement": self.placement}
        if self.blimp is not None:
            return BlimpScore(**model, blimp=self.blimp, pairs=self.pairs, corpus=self.corpus)
        if self.heldout is not None:
            return ForgettingScore(**model, heldout=self.heldout, corpus=self.corpus)
        vectors: dict[str, Any] = model | {"against": self.against, "on_bad_rows": self.on_bad_rows}
        text = None if self.text == Score.text else self.text
        if self.similarity is not None:
            return SimilarityScore(**vectors, similarity=self.similarity, text=text, pair=self.pair, label=self.label)
        if self.triplets is not None:
            columns = ("anchor" if text is None else text, self.pair or "positive", self.negative)
            return TripletScore(**vectors, triplets=self.triplets, columns=columns)
        if self.retrieval is not None:
            return RetrievalScore(**vectors, retrieval=self.retrieval, split=self.split, reranker=self._reranker)
        return ExampleScore(**model, examples=self._examples)

    @property
    def _examples(self) -> Examples:
        """The labelled examples: a file, or a split of a known task."""
        if self.input is None:
            assert self.task is not None and self.data is not None  # __post_init__ checks that both are given
            split = self.split or DEFAULT_SPLIT
            return KnownSplit(task=self.task, data=self.data, split=split, on_bad_rows=self.on_bad_rows)
        return LabelledFile(
            input=self.input,
            text=self.text,
            pair=self.pair,
            choices=self.choices,
            label=self.label,
            words=self.words,
            intent=self.intent,
            on_bad_rows=self.on_bad_rows,
        )

    @property
    def _reranker(self) -> Reranker | None:
        if self.rerank is None:
            return None
        return Reranker(checkpoint=self.rerank, top=self.rerank_top or RERANKED, label=self.rerank_label)

    def _require_used(self, measured: str) -> None:
        """Raise ConfigError for a setting that has no effect on what is measured: one of MEASURED, or predictions."""
        for name, places in USED.items():
            value = getattr(self, name)
            shown = ", ".join(value) if isinstance(value, tuple) else value
            require(
                value == getattr(Score, name) or measured in places,
                f"{name} ({shown}) is for {' and '.join(places)}, and has no effect on {measured}: leave {name} out",
            )


@dataclass(frozen=True, kw_only=True)
class Compare(Finetune):
    """Fine-tune two encoders on the same tasks with the same seeds, and test whether their scores differ."""

    checkpoint: tuple[Location, ...]  # ty: ignore[incompatible-attribute-override]
    """Folder, URL or hf://OWNER/NAME of a published model. Give two, first A and then B, or one with random_weights."""
    random_weights: bool = False
    """Compare random weights (A) with one checkpoint of the same sizes (B), to measure the gain from pretraining."""
    seeds: int = 5
    """Runs per task and encoder; each seed of A is compared with the same seed of B."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checkpoints = f"checkpoint ({', '.join(self.checkpoint) or 'none'})"
        if self.random_weights:
            require(
                len(self.checkpoint) == 1,
                f"{checkpoints} must be given once with --random-weights, which take the place of A",
            )
        else:
            require(
                len(self.checkpoint) == 2,
                f"{checkpoints} must be given twice: --checkpoint A --checkpoint B; or once with --random-weights",
            )
        require(
            len(set(self.checkpoint)) == len(self.checkpoint),
            f"checkpoint ({self.checkpoint[0]}) is given twice: give two different checkpoints",
        )
        require_at_least("seeds", self.seeds, 2)
        require(
            self.minutes is None,
            f"minutes ({self.minutes}) could give the two encoders different trials: leave minutes out, and lower "
            "--seeds or --recipe.training-rows",
        )
        require(
            self.search.folds is None,
            f"search.folds ({self.search.folds}) is for one encoder: leave search.folds out, and name a development "
            "file with --dev",
        )
        require(
            self.register is None,
            f"register ({self.register}) is for one encoder: leave register out, and fine-tune the better encoder with "
            "jobs/finetune.py",
        )
