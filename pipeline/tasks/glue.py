"""GLUE (Wang et al. 2019, gluebenchmark.com): its tasks, in the layout of the official archives.

Class numbers are those of the Hugging Face data set (published MNLI models use other orders, given by their label
names); metrics are those of the benchmark's table 1.
"""

from collections.abc import Mapping
from statistics import mean

from pipeline.tasks.task import Split, Task

ENTAILMENT = ("entailment", "not_entailment")
INFERENCE = ("entailment", "neutral", "contradiction")
COLA_COLUMNS = ("source", "label", "mark", "sentence")  # its train and dev files have no header
NOT_AVERAGED = ("ax",)
"""The diagnostic set is reported separately and not part of the benchmark's score."""


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
    """Return one of MNLI's matched (training genres) or mismatched (other genres) splits."""
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
            skips_broken_lines=True,  # questions with a line end or tab in them broke some lines of the official file
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
        Task(  # no training split: a model of MNLI answers it
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
    """Return the benchmark's score over {task: {metric: value}}: the mean over tasks of each task's mean, with MNLI's
    two dev sets as two metrics.

    AX does not count. It is the official score only if the other nine tasks are present. Raises StatisticsError if
    there are none.
    """
    return mean(mean(values.values()) for task, values in scores.items() if task not in NOT_AVERAGED)
