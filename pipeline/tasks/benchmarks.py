"""Tasks of further data sets that encoders are compared on, with the file names of their official archives.

A task's folder is the one that its archive unpacks to. Metrics are those of the official evaluation; rankings
also have nDCG@10.
"""

from pipeline.tasks.glue import INFERENCE
from pipeline.tasks.layouts import AG_NEWS_TOPICS, TOXICITY_LABELS
from pipeline.tasks.task import Split, Task


def _ag_news(name: str, file: str, held_out: bool | None = None) -> Split:
    """Return a split of AG News; its archive is ag_news_csv.tgz."""
    return Split(name=name, file=f"ag_news_csv/{file}", first="text", layout="ag-news", held_out=held_out)


def _snli(name: str) -> Split:
    """Return a split of SNLI; its archive is snli_1.0.zip."""
    return Split(
        name=name,
        file=f"snli_1.0/snli_1.0_{name}.jsonl",
        first="sentence1",
        second="sentence2",
        label="gold_label",
        id="pairID",
        layout="snli",
    )


def _toxicity(name: str, file: str, held_out: bool | None = None) -> Split:
    """Return a split of the challenge's files, in a folder with the name of the archive."""
    folder = "jigsaw-toxic-comment-classification-challenge"
    return Split(
        name=name, file=f"{folder}/{file}", first="comment_text", id="id", layout="toxicity", held_out=held_out
    )


def _treebank(name: str, first: int, last: int) -> Split:
    """Return sections of the Wall Street Journal in the archive of the Penn Treebank 3 (LDC99T42)."""
    sections = tuple(f"{section:02}" for section in range(first, last + 1))
    return Split(name=name, file="treebank_3/parsed/mrg/wsj", sections=sections)


def _wikiqa(name: str) -> Split:
    """Return a split of WikiQA; its archive is WikiQACorpus.zip."""
    file = f"WikiQACorpus/WikiQA-{name}.tsv"
    return Split(name=name, file=file, first="Question", second="Sentence", label="Label", id="QuestionID")


def _swag(name: str, file: str, label: str | None = "label") -> Split:
    """Return a split of SWAG; the folder is that of its repository. A choice is the second sentence's beginning with an
    ending, and the context is the first sentence, as in Devlin et al. 2019, section 4.4.
    """
    endings = tuple(f"ending{number}" for number in range(4))
    return Split(name=name, file=f"swagaf/data/{file}", first="sent1", second="sent2", choices=endings, label=label)


def _triviaqa(domain: str) -> Task:
    """Return the task of one domain of TriviaQA (Joshi et al. 2017), in a folder with the name of the archive."""
    files = tuple(Split(name=split, file=f"triviaqa-rc/qa/{domain}-{split}.json") for split in ("train", "dev"))
    return Task(
        name=f"triviaqa-{domain}",
        kind="spans",
        metrics=("f1", "exact"),
        maximum_length=384,
        splits=files,
        script="triviaqa",
    )


def _trec_qa(name: str, file: str) -> Split:
    """Return a split of TREC QA as released by Yao et al. 2013, in a folder with the name of their archive."""
    folder = "jacana-qa-naacl2013-data-results"
    return Split(
        name=name, file=f"{folder}/{file}", first="question", second="sentence", id="question_id", layout="trec-qa"
    )


def _slots(name: str) -> Task:
    """Return the task of the slots and intents of one data set, in the folder `data` of Goo et al. 2018
    (MiuLab/SlotGated-SLU): files of words, tags and intents. `with_labels` adds their names.
    """
    folders = {"train": "train", "dev": "valid", "test": "test"}
    return Task(
        name=name,
        kind="tags",
        metrics=("frame_accuracy", "intent_accuracy", "f1", "precision", "recall", "accuracy"),
        splits=tuple(
            Split(name=split, file=f"{name}/{folder}/seq.in", label="seq.out", intents="label")
            for split, folder in folders.items()
        ),
    )


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
        Task(  # Bowman et al. 2015
            name="snli",
            kind="classification",
            labels=INFERENCE,
            metrics=("accuracy",),
            splits=(_snli("train"), _snli("dev"), _snli("test")),
        ),
        Task(  # Jigsaw's Toxic Comment Classification Challenge, Kaggle 2018: mean ROC AUC over the labels
            name="toxicity",
            kind="multilabel",
            labels=TOXICITY_LABELS,
            metrics=("auc", "macro_f1", "micro_f1"),
            maximum_length=256,
            splits=(
                _toxicity("train", "train.csv", held_out=False),
                _toxicity("dev", "train.csv", held_out=True),
                _toxicity("test", "test.csv"),
            ),
        ),
        Task(  # Marcus et al. 1993; the sections that Collins 2002 uses for tagging. `with_labels` adds the tags.
            name="ptb-pos",
            kind="tags",
            metrics=("accuracy",),
            splits=(_treebank("train", 0, 18), _treebank("dev", 19, 21), _treebank("test", 22, 24)),
        ),
        _slots("atis"),  # Hemphill et al. 1990
        _slots("snips"),  # Coucke et al. 2018
        Task(  # Yang, Yih and Meek 2015
            name="wikiqa",
            kind="ranking",
            metrics=("map", "mrr", "ndcg@10"),
            splits=(_wikiqa("train"), _wikiqa("dev"), _wikiqa("test")),
        ),
        Task(  # Wang, Smith and Mitamura 2007; train-all.xml is the usual, automatically judged training set
            name="trec-qa",
            kind="ranking",
            metrics=("map", "mrr", "ndcg@10"),
            splits=(
                _trec_qa("train", "train-all.xml"),
                _trec_qa("dev", "dev.xml"),
                _trec_qa("test", "test.xml"),
            ),
        ),
        _triviaqa("wikipedia"),
        _triviaqa("web"),
        Task(  # Kwiatkowski et al. 2019; the test set is not public
            name="natural-questions",
            kind="spans",
            metrics=("f1", "precision", "recall"),
            maximum_length=384,
            splits=(
                Split(name="train", file="v1.0-simplified_simplified-nq-train.jsonl"),
                Split(name="dev", file="v1.0-simplified_nq-dev-all.jsonl"),
            ),
            unanswerable=True,
            script="natural-questions",
        ),
        Task(  # Zellers et al. 2018; the labels of the test set are not public
            name="swag",
            kind="choices",
            metrics=("accuracy",),
            splits=(_swag("train", "train.csv"), _swag("dev", "val.csv"), _swag("test", "test.csv", label=None)),
        ),
    )
}
