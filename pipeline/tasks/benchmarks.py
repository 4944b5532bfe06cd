"""Tasks of further data sets that encoders are compared on, with the file names of their official archives.

A task's folder is the one that its archive unpacks to. Metrics are those of the official evaluation.
"""

from pipeline.tasks.layouts import AG_NEWS_TOPICS
from pipeline.tasks.task import Split, Task


def _ag_news(name: str, file: str, held_out: bool | None = None) -> Split:
    """Return a split of AG News; its archive is ag_news_csv.tgz."""
    return Split(name=name, file=f"ag_news_csv/{file}", first="text", layout="ag-news", held_out=held_out)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(  # Zhang, Zhao and LeCun 2015
            name="ag-news",
            kind="classification",
            labels=AG_NEWS_TOPICS,
            metrics=("accuracy",),
            splits=(
                _ag_news("train", "train.csv", held_out=False),
                _ag_news("dev", "train.csv", held_out=True),
                _ag_news("test", "test.csv"),
            ),
        ),
    )
}
