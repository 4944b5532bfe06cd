"""Answers of fine-tuned models equal those computed from their logits in the test, for every kind of task."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.config.task_kind import Kind
from pipeline.errors import DataError
from pipeline.fine_tuned.answer_forms import span_row
from pipeline.fine_tuned.answers import answer_items, answer_schema, items_of
from pipeline.fine_tuned.tuned import About, TunedModel
from pipeline.objectives.logits import compute_logits
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.tasks.answers import Answer, Span
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Thresholds
from pipeline.tasks.task import Task
from pipeline.text.schema import CUT
from pipeline.text.vocabulary import Vocabulary

CPU, EXACT = torch.device("cpu"), torch.autocast("cpu", enabled=False)
LABELS: dict[str, tuple[str, ...]] = {
    "classification": ("bad", "so so", "good"),
    "multilabel": ("red", "green"),
    "tags": ("O", "B-PER", "I-PER"),
}
TEXTS = ["kar lost kand", "", "mir nel ta sup. kar?"]
ASKED = {
    "classification": {"text": TEXTS},
    "regression": {"text": TEXTS, "second": ["lost", None, "kar mir"]},
    "ranking": {"text": TEXTS, "second": ["lost", "nel", "kar mir"]},
    "similarity": {"text": TEXTS, "second": ["lost", "nel", "kar mir"]},
    "multilabel": {"text": TEXTS},
    "tags": {"text": TEXTS},
    "choices": {"text": ["kar lost", "mir"], "choices": [["kand", "nel ta sup"], ["kar", "lost", "ta"]]},
    "spans": {"question": ["kar?", "", "mir nel"], "context": ["lost kand kar", "kar", ""]},
}
Make = Callable[..., TunedModel]


@pytest.fixture
def make(tiny_vocabulary: Vocabulary) -> Make:
    """A model of a kind with weights at random."""

    def build(
        kind: Kind, tuned: Thresholds | None = None, unanswerable: bool = False, passages: bool = False
    ) -> TunedModel:
        task = Task(
            name="made-up", kind=kind, labels=LABELS.get(kind, ()), metrics=("accuracy",), unanswerable=unanswerable
        )
        model = Model(layers=2, width=32, heads=2, feed_forward=64, maximum_positions=32, initializer_deviation=0.5)
        module = OBJECTIVES[kind](
            model, tiny_vocabulary.size, len(task.labels), torch.Generator().manual_seed(5), "cls", None
        ).eval()
        cutting = Truncation(maximum_length=16, stride=4, question_length=4, passages=passages)
        return TunedModel(
            about=About(task=task, cutting=cutting, pooling="cls", thresholds=tuned or {}, lineage={}),
            model=model,
            vocabulary=tiny_vocabulary,
            module=module,
        )

    return build


def logits(tuned: TunedModel) -> list[np.ndarray]:
    """Logits of the module for each row."""
    about = tuned.about
    prepared = KINDS[about.task.kind].prepare(
        about.task, items_of(tuned, ASKED[about.task.kind]), tuned.vocabulary, about.cutting
    )
    return list(compute_logits(tuned.module, prepared.rows, CPU, EXACT))


def answers(tuned: TunedModel) -> list[dict]:
    return answer_items(tuned, items_of(tuned, ASKED[tuned.about.task.kind]), CPU, EXACT).to_pylist()


def test_a_class_comes_with_the_softmax_of_all(make: Make) -> None:
    tuned = make("classification")
    for row, found in zip(logits(tuned), answers(tuned), strict=True):
        shares = torch.from_numpy(row).double().softmax(0)
        assert found["label"] == LABELS["classification"][int(shares.argmax())]
        assert list(found["probabilities"]) == list(LABELS["classification"])
        assert list(found["probabilities"].values()) == pytest.approx(shares.tolist(), abs=1e-9) and found[
            "probability"
        ] == max(found["probabilities"].values())


def test_a_score_is_the_output_itself(make: Make) -> None:
    tuned = make("regression")
    assert [one["score"] for one in answers(tuned)] == pytest.approx([float(row[0]) for row in logits(tuned)], abs=1e-6)


def test_labels_are_those_that_reach_their_own_threshold(make: Make) -> None:
    shares = torch.from_numpy(np.stack(logits(make("multilabel")))).double().sigmoid()
    thresholds = [float(shares[1, 0]) - 1e-6, float(shares[0, 1]) + 1e-6]
    found = answers(make("multilabel", {"thresholds": thresholds}))
    assert "red" in found[1]["labels"] and "green" not in found[0]["labels"]
    for of_labels, one in zip(shares, found, strict=True):
        assert one["labels"] == [
            name for name, share, least in zip(("red", "green"), of_labels, thresholds) if share >= least
        ]
        assert list(one["probabilities"].values()) == pytest.approx(of_labels.tolist(), abs=1e-9)


def test_every_word_has_a_tag(make: Make) -> None:
    found = answers(make("tags"))
    assert [one["words"] for one in found] == [["kar", "lost", "kand"], [], ["mir", "nel", "ta", "sup.", "kar?"]]
    assert [len(one["tags"]) for one in found] == [3, 0, 5] and {tag for one in found for tag in one["tags"]} <= set(
        LABELS["tags"]
    )
    assert [len(one["probabilities"]) for one in found] == [3, 0, 5] and found[0]["probabilities"] == pytest.approx(
        torch.from_numpy(logits(make("tags"))[0]).softmax(1).max(1).values[1:4].tolist(), abs=1e-6
    )


def test_a_word_without_tokens_has_no_probability(make: Make) -> None:
    tuned = make("tags")
    (found,) = answer_items(tuned, items_of(tuned, {"words": [["kar", "\u200b"]]}), CPU, EXACT).to_pylist()
    assert found["tags"][1] == "O" and found["probabilities"][0] > 0 and found["probabilities"][1] is None


def test_words_may_be_given_as_lists(make: Make) -> None:
    tuned = make("tags")
    tagged = answers(tuned)[0]["tags"]
    lists = answer_items(
        tuned, items_of(tuned, {"words": [["kar", "lost", "kand"], ["a\u00a0b"]]}), CPU, EXACT
    ).to_pylist()
    assert {name: lists[0][name] for name in ("words", "tags")} == {"words": ["kar", "lost", "kand"], "tags": tagged}
    assert lists[1]["words"] == ["a\u00a0b"]


def test_a_choice_is_the_number_of_the_likeliest_text(make: Make) -> None:
    tuned = make("choices")
    for row, found, texts in zip(logits(tuned), answers(tuned), ASKED["choices"]["choices"], strict=True):
        shares = torch.from_numpy(row[: len(texts)]).double().softmax(0)
        assert found["choice"] == int(shares.argmax()) and found["probability"] == max(found["probabilities"])
        assert found["probabilities"] == pytest.approx(shares.tolist(), abs=1e-9)
    started = answers_to(tuned, choices=[["ta kand", "ta nel ta sup"], ["kar", "lost", "ta"]])
    assert started == answers_to(tuned, second=["ta", None]) != answers(tuned)


def answers_to(tuned: TunedModel, **columns: list) -> list[dict]:
    """The answers to the columns of multiple choice, some of them others."""
    return answer_items(tuned, items_of(tuned, ASKED["choices"] | columns), CPU, EXACT).to_pylist()


def test_an_answer_is_the_text_at_its_places(make: Make) -> None:
    for one, context in zip(answers(make("spans")), ASKED["spans"]["context"], strict=True):
        if context:
            assert one["answer"] and context[one["start"] : one["end"]] == one["answer"] and 0 < one["probability"] <= 1
        else:
            assert one == {"answer": "", "start": None, "end": None, "probability": None}


def test_questions_that_are_cut_are_counted(make: Make) -> None:
    tuned = make("spans")
    items = items_of(tuned, {"question": ["kar mir nel ta", "kar " * 30, "kar"], "context": ["lost"] * 3})
    assert answer_items(tuned, items, CPU, EXACT).schema.metadata[CUT] == b"1"
    assert KINDS["spans"].prepare(tuned.about.task, items, tuned.vocabulary, tuned.about.cutting).notes == (
        "1 questions cut at 4 tokens (--cutting.question-length)",
    )


def test_no_answer_has_no_places_and_its_own_probability(make: Make) -> None:
    found = answers(make("spans", {"null_threshold": -1e9}, unanswerable=True))
    assert [(one["answer"], one["start"], one["end"]) for one in found] == [("", None, None)] * 3
    assert all(0 < one["probability"] <= 1 for one in found) and found[2]["probability"] == 1.0


def test_of_the_n_best_the_one_with_the_text_is_told() -> None:
    best, none = (
        Span(text="kar", start=3, end=6, logit=2.0, probability=0.75),
        Span(text="", start=0, end=0, logit=1.0, probability=0.25),
    )
    answer = Answer(spans=(best, none), null=1.0)
    assert span_row(answer, "kar") == {"answer": "kar", "start": 3, "end": 6, "probability": 0.75}
    assert span_row(answer, "") == {"answer": "", "start": None, "end": None, "probability": 0.25}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not KINDS[kind].saved_as])
def test_nothing_asked_is_a_table_without_rows(make: Make, kind: Kind) -> None:
    tuned = make(kind)
    nothing = answer_items(tuned, items_of(tuned, {name: [] for name in ASKED[kind]}), CPU, EXACT)
    assert nothing.num_rows == 0 and nothing.schema == answer_schema(tuned.about.task)


def test_a_long_text_in_passages_is_one_row(make: Make) -> None:
    tuned = make("classification", passages=True)
    items = items_of(tuned, {"text": ["kar lost kand " * 20, "kar"]})
    assert answer_items(tuned, items, CPU, EXACT).num_rows == 2


def test_a_missing_column_is_named(make: Make) -> None:
    with pytest.raises(
        DataError, match=r"^column context is required for made-up \(spans\), but the columns are question$"
    ):
        items_of(make("spans"), {"question": ["kar?"]})
    with pytest.raises(DataError, match=r"^column text is required for made-up \(tags\), but the columns are none$"):
        items_of(make("tags"), {})


def test_texts_that_are_cut_are_counted_and_pairs_are_asked_for(make: Make) -> None:
    tuned = make("classification")
    found = answer_items(tuned, items_of(tuned, {"text": ["kar", "kar " * 500]}), CPU, EXACT)
    assert found.schema.metadata == {CUT: b"1"}
    paired = replace(tuned, about=replace(tuned.about, task=replace(tuned.about.task, paired=True)))
    with pytest.raises(
        DataError, match=r"was learnt on pairs of texts: name the column of the second text with --pair$"
    ):
        items_of(paired, {"text": ["a"]})
