"""Tasks of GLUE (Wang et al. 2019, gluebenchmark.com), with the file names and columns of the official archives.

Class numbers are those of the Hugging Face data set. Published MNLI models use other orders, which their
label names give. Metrics are those of table 1 of the paper.
"""

from collections.abc import Mapping
from statistics import mean

from pipeline.tasks.task import Split, Task

ENTAILMENT = ("entailment", "not_entailment")
INFERENCE = ("entailment", "neutral", "contradiction")
COLA_COLUMNS = ("source", "label", "mark", "sentence")  # CoLA's train and dev files have no header
NOT_AVERAGED = ("ax",)
"""Tasks that are not part of the benchmark's score: the diagnostic set is reported separately."""


def _splits(
    folder: str, first: str, second: str | None, label: str = "label", *, id: str = "index"
) -> tuple[Split, ...]:
    """Return the splits train.tsv, dev.tsv and test.tsv with the same columns; test has no labels."""
    columns = {"train": label, "dev": label, "test": None}
    return tuple(
        Split(name=name, file=f"{folder}/{name}.tsv", first=first, second=second, label=column, id=id)
        for name, column in columns.items()
    )


def _split_of_two(name: str, folder: str, kind: str, label: str | None) -> Split:
    """Return a split of MNLI; `kind` is matched (genres of the training split) or mismatched (other genres)."""
    file = f"{folder}/{name.partition('-')[0]}_{kind}.tsv"
    return Split(name=name, file=file, first="sentence1", second="sentence2", label=label)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="cola",
            kind="classification",
            labels=("0", "1"),  # unacceptable, acceptable
            metrics=("matthews",),
            splits=(
                Split(name="train", file="CoLA/train.tsv", first="sentence", headings=COLA_COLUMNS),
                Split(name="dev", file="CoLA/dev.tsv", first="sentence", headings=COLA_COLUMNS),
                Split(name="test", file="CoLA/test.tsv", first="sentence", label=None),
            ),
        ),
        Task(
            name="sst2",
            kind="classification",
            labels=("0", "1"),
            metrics=("accuracy",),
            splits=_splits("SST-2", "sentence", None),
        ),
        Task(
            name="mrpc",
            kind="classification",
            labels=("0", "1"),
            metrics=("accuracy", "f1"),
            splits=_splits("MRPC", "#1 String", "#2 String", "Quality"),
        ),
        Task(
            name="stsb",
            kind="regression",
            metrics=("pearson", "spearman"),
            splits=_splits("STS-B", "sentence1", "sentence2", "score"),
        ),
        Task(
            name="qqp",
            kind="classification",
            labels=("0", "1"),
            metrics=("accuracy", "f1"),
            splits=_splits("QQP", "question1", "question2", "is_duplicate", id="id"),
            skips_broken_lines=True,  # in the official file, line ends and tabs within questions break some lines
        ),
        Task(
            name="mnli",
            kind="classification",
            labels=INFERENCE,
            metrics=("accuracy",),
            splits=(
                Split(name="train", file="MNLI/train.tsv", first="sentence1", second="sentence2", label="gold_label"),
                _split_of_two("dev", "MNLI", "matched", "gold_label"),
                _split_of_two("dev-mismatched", "MNLI", "mismatched", "gold_label"),
                _split_of_two("test", "MNLI", "matched", None),
                _split_of_two("test-mismatched", "MNLI", "mismatched", None),
            ),
        ),
        Task(
            name="qnli",
            kind="classification",
            labels=ENTAILMENT,
            metrics=("accuracy",),
            splits=_splits("QNLI", "question", "sentence"),
        ),
        Task(
            name="rte",
            kind="classification",
            labels=ENTAILMENT,
            metrics=("accuracy",),
            splits=_splits("RTE", "sentence1", "sentence2"),
        ),
        Task(
            name="wnli",
            kind="classification",
            labels=("0", "1"),
            metrics=("accuracy",),
            splits=_splits("WNLI", "sentence1", "sentence2"),
        ),
        Task(  # has no training split: a model that was trained on MNLI answers this task
            name="ax",
            kind="classification",
            labels=INFERENCE,
            metrics=("matthews",),
            splits=(
                Split(name="test", file="diagnostic/diagnostic.tsv", first="sentence1", second="sentence2", label=None),
            ),
        ),
    )
}


def glue_mean(scores: Mapping[str, Mapping[str, float]]) -> float:
    """Return GLUE's score: the mean over tasks of each task's mean over its metrics.

    `scores` is {task: {metric: value}}, with MNLI's two dev sets as two metrics. AX does not count. The result is the
    official score only if all nine other tasks are present. Raises StatisticsError if no task counts.
    """
    return mean(mean(values.values()) for task, values in scores.items() if task not in NOT_AVERAGED)
