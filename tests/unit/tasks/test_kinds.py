"""Every kind of task from items to rows, and from logits that say the labels to perfect scores."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.config.cutting import Truncation
from pipeline.errors import ConfigError, DataError
from pipeline.tables.squad import Question
from pipeline.tasks import tags
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Prepared, resolved_cutting
from pipeline.tasks.questions import trainable_questions
from pipeline.tasks.schema import ENCODED, TEXTS
from pipeline.tasks.tagging import Sentence
from pipeline.tasks.tags import own_task
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = Vocabulary(
    tokens=(
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *LETTERS,
        *(f"##{letter}" for letter in LETTERS),
        "red",
        "green",
        "blue",
    ),
    lowercase=True,
)
CUTTING = Truncation(maximum_length=16, stride=3, question_length=4)
CONTEXT = "red green blue red green blue red green blue red x green blue red green blue"
QUESTIONS = [
    Question(id="1", question="red", context=CONTEXT, answers=(("x", CONTEXT.index("x")),)),
    Question(id="2", question="blue", context="green blue red", answers=(("blue red", 6),)),
    Question(id="3", question="x", context="green blue red", answers=(), impossible=True),
]
SENTENCES = [
    Sentence(words=("red", "abc", "green"), tags=("O", "B-X", "I-X")),
    Sentence(words=tuple("blue" for _ in range(30)), tags=("B-Y", *["O"] * 29)),
]
SPANS = Task(name="s", kind="spans", metrics=("f1", "exact"), unanswerable=True)
TAGS = own_task("t", "t", SENTENCES)


def texts(labels: list[str], second: str | None = None) -> pa.Table:
    rows = [
        {"id": str(n), "first": "red green " * (n + 1), "second": second, "label": label}
        for n, label in enumerate(labels)
    ]
    return pa.Table.from_pylist(rows, schema=TEXTS)


def saying(prepared: Prepared, outputs: int) -> list[np.ndarray]:
    """Logits that say every label of the rows."""
    found = []
    for ids, labels in zip(prepared.rows["ids"].to_pylist(), prepared.rows["labels"].to_pylist()):
        logits = np.zeros((len(ids), outputs), np.float32)
        if outputs == 2 and len(labels) == 2:
            logits[int(labels[0]), 0] = logits[int(labels[1]), 1] = 9
        else:
            for place, label in enumerate(labels):
                logits[place, max(int(label), 0)] = 9
        found.append(logits)
    return found


def said(kind: str, task: Task, prepared: Prepared, logits: object) -> object:
    return KINDS[kind].answers(task, prepared, logits, CUTTING)


def test_questions_become_windows_and_logits_that_say_their_answers_score_100() -> None:
    prepared = KINDS["spans"].prepare(SPANS, QUESTIONS, VOCABULARY, CUTTING)
    assert prepared.rows.schema == ENCODED and prepared.rows["row"].to_pylist() == [0, 0, 1, 2]
    assert prepared.notes == ("1 contexts in several windows of 16 tokens, 4 windows in all",)
    # The answer stands in both windows of the first question: [CLS] red [SEP] and ten pieces before it; then from the
    # window that begins at the tenth piece.
    assert prepared.rows["labels"].to_pylist() == [[13.0, 13.0], [4.0, 4.0], [4.0, 5.0], [0.0, 0.0]]
    logits = saying(prepared, 2)
    assert KINDS["spans"].score(SPANS, prepared, said("spans", SPANS, prepared, logits), {}) == dict.fromkeys(
        ("exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"), 1.0
    )
    assert not KINDS["spans"].collapsed(SPANS, prepared, said("spans", SPANS, prepared, logits))
    silent = [one - 99 * (np.arange(len(one))[:, None] > 0) for one in logits]
    assert KINDS["spans"].collapsed(SPANS, prepared, said("spans", SPANS, prepared, silent))


def test_the_threshold_of_no_answer_is_what_was_tuned() -> None:
    prepared = KINDS["spans"].prepare(SPANS, QUESTIONS, VOCABULARY, CUTTING)
    logits = saying(prepared, 2)
    for one in logits:
        one[0] += 20  # [CLS] above all spans: nothing is answered until a threshold says otherwise
    assert KINDS["spans"].score(SPANS, prepared, said("spans", SPANS, prepared, logits), {})["f1"] == pytest.approx(
        1 / 3
    )
    tuned = KINDS["spans"].tune(SPANS, prepared, said("spans", SPANS, prepared, logits))
    assert (
        tuned["f1_tuned_on_dev"] == 1.0
        and KINDS["spans"].score(SPANS, prepared, said("spans", SPANS, prepared, logits), tuned)["f1"] == 1.0
    )


def test_questions_that_cannot_be_learnt_from_are_counted_by_name() -> None:
    odd = Question(id="4", question="a", context="green", answers=(("red", 0),))
    kept, notes = trainable_questions([*QUESTIONS, odd], "file.json")
    assert kept == QUESTIONS and notes == ("1 questions left out (answer-not-at-its-offset)",)
    with pytest.raises(DataError, match=r"^file\.json has no question to train on: 1 answer-not-at-its-offset$"):
        trainable_questions([odd], "file.json")


def test_tags_become_windows_and_every_word_has_one() -> None:
    assert TAGS.labels == ("O", "B-X", "I-X", "B-Y", "I-Y") and TAGS.metrics == (
        "f1",
        "precision",
        "recall",
        "accuracy",
    )
    prepared = KINDS["tags"].prepare(TAGS, SENTENCES, VOCABULARY, CUTTING)
    assert prepared.rows["row"].to_pylist() == [0, 1, 1, 1] and prepared.notes == (
        "1 sentences in several windows of 16 tokens",
    )
    # [CLS] red a ##b ##c green [SEP]: a word's later pieces are not labelled.
    assert prepared.rows["labels"].to_pylist()[0] == [-100, 0, 1, -100, -100, 2, -100]
    scores = KINDS["tags"].score(TAGS, prepared, said("tags", TAGS, prepared, saying(prepared, 5)), {})
    assert scores["f1"] == scores["X_f1"] == scores["Y_f1"] == scores["accuracy"] == 1.0
    nothing = [np.zeros_like(one) for one in saying(prepared, 5)]
    assert KINDS["tags"].collapsed(TAGS, prepared, said("tags", TAGS, prepared, nothing)) and not KINDS[
        "tags"
    ].collapsed(TAGS, prepared, said("tags", TAGS, prepared, saying(prepared, 5)))
    assert KINDS["tags"].score(TAGS, prepared, said("tags", TAGS, prepared, nothing), {})["accuracy"] == pytest.approx(
        30 / 33
    )


def test_a_tag_has_its_probability_among_the_task_s_tags_alone() -> None:
    sentence = Sentence(words=("red", "\u200b", "green"), tags=("O", "O", "O"))  # the second word has no token
    prepared = KINDS["tags"].prepare(TAGS, [sentence], VOCABULARY, CUTTING)
    logits = [np.zeros((len(prepared.windows[0][0].ids), 6), np.float32)]  # the sixth is that of later pieces
    logits[0][1] = [1.0, 3.0, 0.0, 0.0, 0.0, 9.0]
    answers = KINDS["tags"].answers(TAGS, prepared, logits, CUTTING)
    assert answers[0].tags == ("B-X", "O", "O")
    first = np.exp(3) / (np.exp(1) + np.exp(3) + 3)
    assert tags.tag_probabilities(TAGS, prepared, logits, answers) == [
        [pytest.approx(first, abs=1e-6), None, pytest.approx(0.2, abs=1e-6)]
    ]


def test_the_baseline_of_tags_is_each_word_s_commonest() -> None:
    train = KINDS["tags"].prepare(
        TAGS, [Sentence(words=("red", "red", "red"), tags=("B-X", "B-X", "O"))], VOCABULARY, CUTTING
    )
    dev = KINDS["tags"].prepare(TAGS, [Sentence(words=("red", "green"), tags=("B-X", "O"))], VOCABULARY, CUTTING)
    # green is not in the training sentences and gets the commonest tag of all, B-X: a second, wrong entity.
    assert KINDS["tags"].baseline(TAGS, train, dev) == {
        "accuracy": 0.5,
        "precision": 0.5,
        "recall": 1.0,
        "f1": pytest.approx(2 / 3),
        "X_precision": 0.5,
        "X_recall": 1.0,
        "X_f1": pytest.approx(2 / 3),
    }


def test_passages_are_trained_each_and_answered_together() -> None:
    task = Task(name="c", kind="classification", labels=("no", "yes"), metrics=("accuracy",))
    items = texts(["no", "yes", "yes", "no", "yes", "no", "yes", "no", "yes"])
    cut = KINDS["classification"].prepare(task, items, VOCABULARY, CUTTING)
    assert cut.rows.num_rows == 9 and cut.notes == ("2 cut at 16 tokens (--cutting.passages reads the rest)",)
    prepared = KINDS["classification"].prepare(
        task, items, VOCABULARY, Truncation(maximum_length=16, stride=3, passages=True)
    )
    assert prepared.rows["row"].to_pylist() == [0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8] and prepared.notes == (
        "2 in several passages of 16 tokens",
    )
    assert prepared.rows["label"].to_pylist() == [0, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1]
    right = np.stack([1 - prepared.rows["label"].to_numpy(), prepared.rows["label"].to_numpy()], 1)
    assert KINDS["classification"].score(task, prepared, said("classification", task, prepared, right), {}) == {
        "accuracy": 1.0
    }
    right[7] = (0, 1.5)  # one passage of the eighth text says yes by more than the other says no
    assert KINDS["classification"].score(task, prepared, said("classification", task, prepared, right), {})[
        "accuracy"
    ] == pytest.approx(8 / 9)


def test_several_labels_and_their_thresholds() -> None:
    task = Task(name="m", kind="multilabel", labels=("a", "b"), metrics=("micro_f1", "subset_accuracy"))
    prepared = KINDS["multilabel"].prepare(task, texts(['["a"]', '["a", "b"]', "[]"]), VOCABULARY, CUTTING)
    assert prepared.rows["labels"].to_pylist() == [[1, 0], [1, 1], [0, 0]]
    logits = np.array([[2.0, -3.0], [2.0, -1.0], [-2.0, -3.0]])
    assert KINDS["multilabel"].score(task, prepared, said("multilabel", task, prepared, logits), {}) == {
        "micro_f1": pytest.approx(0.8),
        "subset_accuracy": pytest.approx(2 / 3),
    }
    tuned = KINDS["multilabel"].tune(task, prepared, said("multilabel", task, prepared, logits))
    assert (
        tuned["micro_f1_tuned_on_dev"] == 1.0 and tuned["thresholds"][0] == 0.5 and 0.05 < tuned["thresholds"][1] < 0.27
    )
    assert (
        KINDS["multilabel"].score(task, prepared, said("multilabel", task, prepared, logits), tuned)["micro_f1"] == 1.0
    )
    # More than half of the texts have a, and b has one of three.
    assert KINDS["multilabel"].baseline(task, prepared, prepared)["micro_f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert KINDS["multilabel"].collapsed(task, prepared, said("multilabel", task, prepared, -np.ones((3, 2))))


def test_numbers_and_when_they_are_all_the_same() -> None:
    task = Task(name="r", kind="regression", metrics=("pearson", "mean_absolute_error"))
    prepared = KINDS["regression"].prepare(task, texts(["1", "2", "4.5"]), VOCABULARY, CUTTING)
    assert KINDS["regression"].score(
        task, prepared, said("regression", task, prepared, np.array([[1.0], [2.0], [5.5]])), {}
    ) == {"pearson": pytest.approx(0.997, abs=1e-3), "mean_absolute_error": pytest.approx(1 / 3)}
    assert KINDS["regression"].collapsed(
        task, prepared, said("regression", task, prepared, np.array([[2.0], [2.0], [2.0001]]))
    )
    assert KINDS["regression"].collapsed(
        task, prepared, said("regression", task, prepared, np.array([[2.0], [np.nan], [3.0]]))
    )
    assert KINDS["regression"].baseline(task, prepared, prepared)["mean_absolute_error"] == pytest.approx(
        4 / 3, abs=1e-6
    )


def test_lengths_are_the_task_s_where_the_model_has_the_positions() -> None:
    assert resolved_cutting(Truncation(), SPANS, 512) == Truncation(maximum_length=128, stride=42, question_length=32)
    squad = Task(name="q", kind="spans", metrics=("f1",), maximum_length=384)
    assert resolved_cutting(Truncation(), squad, 512) == Truncation(maximum_length=384, stride=128, question_length=64)
    assert (
        resolved_cutting(Truncation(), squad, 128).maximum_length == 128
        and resolved_cutting(Truncation(maximum_length=200, stride=7), squad, 512).stride == 7
    )
    with pytest.raises(
        ConfigError, match=r"^cutting\.maximum_length \(200\) must be at most the checkpoint's positions \(128\)$"
    ):
        resolved_cutting(Truncation(maximum_length=200), squad, 128)
