"""The measurement that the flat options of the job score ask for: its class, and only its own settings."""

from dataclasses import fields
from typing import Any, get_args

import pytest

from pipeline.config.measurements import (
    AnswerScore,
    BlimpScore,
    ExampleScore,
    ForgettingScore,
    KnownSplit,
    LabelledFile,
    Measurement,
    Reranker,
    RetrievalScore,
    SimilarityScore,
    TripletScore,
)
from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Score
from pipeline.workflows.score import SCORES

CPU = ModelPlacement(device="cpu")
MODEL: dict[str, Any] = {"checkpoint": "m", "placement": CPU}
ENCODERS: dict[str, Any] = MODEL | {"against": "n", "on_bad_rows": "skip"}
COLUMNS: dict[str, Any] = {"text": "t", "pair": "p", "label": ("l",), "on_bad_rows": "skip"}
CHOSEN: dict[str, Any] = COLUMNS | {"choices": ("a", "b"), "words": 2, "intent": "w"}
CASES: list[tuple[dict[str, Any], Any]] = [
    (MODEL | CHOSEN | {"input": "i"}, ExampleScore(**MODEL, examples=LabelledFile(input="i", **CHOSEN))),
    (
        MODEL | {"task": "sst2", "data": "d"},
        ExampleScore(**MODEL, examples=KnownSplit(task="sst2", data="d", split="dev", on_bad_rows="refuse")),
    ),
    (
        {"predictions": "a", "task": "squad1", "data": "d", "split": "test"},
        AnswerScore(predictions="a", questions=KnownSplit(task="squad1", data="d", split="test", on_bad_rows="refuse")),
    ),
    (
        MODEL | {"blimp": "b", "pairs": "odd", "corpus": "c"},
        BlimpScore(**MODEL, blimp="b", pairs="odd", corpus="c"),
    ),
    (MODEL | {"heldout": "r"}, ForgettingScore(**MODEL, heldout="r", corpus=None)),
    (
        ENCODERS | COLUMNS | {"similarity": "s"},
        SimilarityScore(**ENCODERS, similarity="s", text="t", pair="p", label=("l",)),
    ),
    (
        ENCODERS | {"similarity": "s"},
        SimilarityScore(**ENCODERS, similarity="s", text=None, pair=None, label=()),
    ),
    (
        ENCODERS | {"triplets": "s", "negative": "worse"},
        TripletScore(**ENCODERS, triplets="s", columns=("anchor", "positive", "worse")),
    ),
    (
        ENCODERS | {"triplets": "s", "text": "t", "pair": "p"},
        TripletScore(**ENCODERS, triplets="s", columns=("t", "p", "negative")),
    ),
    (
        ENCODERS | {"retrieval": "f", "split": "dev", "rerank": "x", "rerank_label": "l"},
        RetrievalScore(**ENCODERS, retrieval="f", split="dev", reranker=Reranker(checkpoint="x", top=100, label="l")),
    ),
    (
        ENCODERS | {"retrieval": "f", "rerank": "x", "rerank_top": 3},
        RetrievalScore(**ENCODERS, retrieval="f", split=None, reranker=Reranker(checkpoint="x", top=3, label=None)),
    ),
    (ENCODERS | {"retrieval": "f"}, RetrievalScore(**ENCODERS, retrieval="f", split=None, reranker=None)),
]


@pytest.mark.parametrize(("options", "wanted"), CASES, ids=lambda value: type(value).__name__)
def test_options_give_the_measurement_with_its_own_settings(options: dict[str, Any], wanted: Any) -> None:
    assert Score(**options).measurement == wanted


def test_every_option_reaches_a_measurement_and_every_measurement_is_scored() -> None:
    assert {name for options, _ in CASES for name in options} == {field.name for field in fields(Score)}
    assert {type(wanted) for _, wanted in CASES} == set(get_args(Measurement)) == SCORES.keys()
