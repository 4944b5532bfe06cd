"""Texts reranked by a cross-encoder with weights at random: its scores, their order, ties, and models that are none."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from jobs.search import main
from pipeline import api
from pipeline.config.cutting import Truncation
from pipeline.config.embed import Search
from pipeline.config.model import Model
from pipeline.config.placement import ModelPlacement
from pipeline.config.task_kind import Kind
from pipeline.embed.model import describe, load
from pipeline.embed.query_files import Query
from pipeline.embed.rerank import load_cross_encoder, reranked
from pipeline.embed.results import result_table
from pipeline.embed.search import Found
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from tests.unit.embed.conftest import Write

MODEL = Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32, initializer_deviation=0.5)
QUERIES = [Query(id="1", text="kar lost"), Query(id="2", text="mir nel")]
WORDS = ["kar lost", "kand mir", "nel", "mir nel sup", "lost lost", "sup kand kar mir"]
Make = Callable[..., str]


@pytest.fixture
def make(tiny_vocabulary: Vocabulary, tmp_path: Path) -> Make:
    """A function that saves a fine-tuned model of a kind and returns its folder."""

    def build(kind: Kind, labels: tuple[str, ...] = (), paired: bool = True) -> str:
        task = Task(name="made-up", kind=kind, labels=labels, metrics=("accuracy",), paired=paired)
        module = OBJECTIVES[kind](
            MODEL, tiny_vocabulary.size, len(labels), torch.Generator().manual_seed(5), "cls", None
        )
        about = About(
            task=task, cutting=Truncation(maximum_length=8, stride=2), pooling="cls", thresholds={}, lineage={}
        )
        save_tuned(folder := str(tmp_path / f"{kind}-{len(labels)}"), module, about, MODEL, tiny_vocabulary)
        return folder

    return build


def asked(vectors: str, rerank: str, **settings) -> Search:
    return Search(vectors=vectors, queries="x", rerank=rerank, placement=ModelPlacement(device="cpu"), **settings)


def found(words: list[str]) -> list[Found]:
    """Texts in the order of falling scores."""
    return [
        Found(id=str(number), score=1 - number / 10, chunk=0, start=0, end=1, title=None, text=text)
        for number, text in enumerate(words)
    ]


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_the_cross_encoder_s_answers_decide_the_order(kind: Kind, make: Make, write_vectors: Write) -> None:
    labels, lines = (("no", "yes") if kind == "classification" else ()), []
    vectors, folder = write_vectors(np.eye(2, dtype=np.float32)), make(kind, labels)
    encoder = load_cross_encoder(asked(vectors.folder, folder), vectors)
    results = reranked(encoder, QUERIES, [found(WORDS)] * 2, 4, lines.append)
    for query, of_query in zip(QUERIES, results, strict=True):
        answers = api.load(folder, "cpu").predict([(query.text, word) for word in WORDS])
        shares = [answer["probabilities"]["yes"] if labels else answer["score"] for answer in answers]
        scores = [float(np.log(share / (1 - share))) if labels else share for share in shares]
        order = np.argsort([-score for score in scores]).tolist()[:4]
        assert [one.id for one in of_query] == [str(number) for number in order]
        assert [one.rerank_score for one in of_query] == pytest.approx([scores[number] for number in order], abs=1e-4)
        assert [one.score for one in of_query] == [1 - number / 10 for number in order]
    assert [one.id for one in results[0]] != [one.id for one in results[1]]
    scored = "the logit of yes" if labels else "its number"
    assert lines == [f"reranked by {scored} of made-up: 12 pairs, 2 of them truncated at 8 tokens, computed in float32"]
    if labels:
        other = load_cross_encoder(asked(vectors.folder, folder, rerank_label="no"), vectors)
        (turned, _) = reranked(other, QUERIES, [found(WORDS)] * 2, 6, print)
        assert [one.id for one in turned[::-1]][:4] == [one.id for one in results[0]]


def test_equal_texts_keep_their_order(make: Make, write_vectors: Write) -> None:
    vectors = write_vectors(np.eye(2, dtype=np.float32))
    encoder = load_cross_encoder(asked(vectors.folder, make("regression")), vectors)
    (of_query,) = reranked(encoder, QUERIES[:1], [found(["mir", "kar kand", "mir", "nel", "mir"])], 5, print)
    order = [one.id for one in of_query]
    first = order.index("0")
    assert order[first : first + 3] == ["0", "2", "4"] and len({one.rerank_score for one in of_query}) == 3


def test_a_published_model_of_pairs_has_the_same_scores(make: Make, write_vectors: Write, tmp_path: Path) -> None:
    vectors, ours = write_vectors(np.eye(2, dtype=np.float32)), make("classification", ("no", "yes"))
    shutil.copytree(ours, published := tmp_path / "published")
    for name in ("task.json", "manifest.json"):
        (published / name).unlink()
    one, other = (
        reranked(load_cross_encoder(asked(vectors.folder, folder), vectors), QUERIES[:1], [found(WORDS[:3])], 3, print)
        for folder in (ours, str(published))
    )
    assert [result.rerank_score for result in one[0]] == pytest.approx([result.rerank_score for result in other[0]])


@pytest.mark.parametrize(
    ("kind", "labels", "paired", "settings", "message"),
    [
        ("multilabel", ("a", "b"), True, {}, r"^rerank \(.*\) is of kind multilabel: give a model of pairs"),
        ("classification", ("a", "b", "c"), True, {}, r" is of kind classification and has 3 labels: give a mod"),
        ("classification", ("a", "b"), False, {}, r"classification, of single texts, and has 2 labels: give a model "),
        ("classification", ("a", "b"), True, {"rerank_label": "c"}, r"^rerank_label \(c\): rerank .* has the labels"),
        ("regression", (), True, {"rerank_label": "c"}, r"predicts a number and has no labels; name one of its"),
    ],
)  # fmt: skip
def test_models_that_score_no_pairs_are_refused(
    kind: Kind, labels: tuple[str, ...], paired: bool, settings: dict, message: str, make: Make, write_vectors: Write
) -> None:
    vectors = write_vectors(np.eye(2, dtype=np.float32))
    with pytest.raises(ConfigError, match=message):
        load_cross_encoder(asked(vectors.folder, make(kind, labels, paired), **settings), vectors)


def test_vectors_without_texts_and_folders_without_a_model_are_refused(make: Make, write_vectors: Write) -> None:
    vectors = write_vectors(np.eye(2, dtype=np.float32), keep_text=False)
    with pytest.raises(DataError, match=r"^rerank \(.*\) reads texts, and vectors \(.*\) has none: embed them"):
        load_cross_encoder(asked(vectors.folder, make("regression")), vectors)
    vectors = write_vectors(np.eye(2, dtype=np.float32), name="kept")
    with pytest.raises(CheckpointError, match=r"^rerank /none "):
        load_cross_encoder(asked(vectors.folder, "/none"), vectors)


def test_settings_of_reranking() -> None:
    assert [asked("v", "m", top=top).candidates for top in (10, 100, 500)] == [100, 100, 500]
    assert asked("v", "m", top=5, rerank_top=7).candidates == 7
    assert Search(vectors="v", queries="x", top=5).candidates == 5
    with pytest.raises(ConfigError, match=r"^rerank_top \(7\) must be at least top \(10\)$"):
        asked("v", "m", rerank_top=7)
    for name, value in (("rerank_top", 7), ("rerank_label", "yes")):
        with pytest.raises(ConfigError, match=rf"^{name} \({value}\) needs rerank, which is not given: name"):
            Search(vectors="v", queries="x", **{name: value})


def test_the_command_finds_more_texts_than_it_shows(
    tiny_run: Path, make: Make, write_vectors: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load(str(tiny_run), ModelPlacement(device="cpu"), None, ())
    vectors = write_vectors(model.vectors(WORDS), model=describe(model), texts=WORDS, ids=[*"abcdef"])
    command = ["--vectors", vectors.folder, "--queries", "kar lost", "--placement.device", "cpu", "--top", "2"]
    output, folder = tmp_path / "found.jsonl", make("regression")
    assert main([*command, "--rerank", folder, "--output", str(output)]) == 0
    results = json.loads(output.read_text())["results"]
    answers = api.load(folder, "cpu").predict([("kar lost", word) for word in WORDS])
    scores = {id: answer["score"] for id, answer in zip("abcdef", answers)}
    assert [result["id"] for result in results] == sorted(scores, key=lambda id: -scores[id])[:2]
    assert results[0].keys() == {"id", "score", "rerank_score", "chunk", "start", "end", "text"}
    capsys.readouterr()
    assert main([*command, "--rerank", folder, "--rerank-top", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["rank", "rerank", "score", "id", "text"]


def test_a_table_has_both_scores() -> None:
    one = Found(id="t", score=0.5, rerank_score=-3.25, chunk=2, start=0, end=1, title=None, text="text")
    assert result_table(QUERIES[0], [one]).splitlines()[1:] == [
        "rank   rerank   score  id   text",
        "   1  -3.2500  0.5000  t#2  text",
    ]
