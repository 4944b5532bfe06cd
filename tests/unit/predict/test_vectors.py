"""Vectors of an encoder scored by the command: the model beside baselines, and settings that do not fit in one line."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobs.score import main
from pipeline import api
from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Score
from pipeline.embed.encoders import AGAINST, MODEL, UNTRAINED, load_encoders, untrained
from pipeline.embed.retrieval import RERANKED, reranked, score_retrieval, vectors_with
from pipeline.embed.similarity import score_similarity, score_triplets
from pipeline.predict import cross_encoder
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.prompts import OF_DOCUMENTS, OF_QUERIES

CPU = ["--placement.device", "cpu"]


def run_of(tiny_run: Path) -> list[str]:
    return ["--checkpoint", str(tiny_run), *CPU]


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_the_untrained_encoder_has_other_weights_and_the_same_tokens(tiny_run: Path) -> None:
    model = api.load(str(tiny_run), "cpu")
    first, second = untrained(model), untrained(model)
    texts = ["kar lost kand", "mir"]
    np.testing.assert_array_equal(first.embed(texts), second.embed(texts))
    assert np.abs(first.embed(texts) - model.embed(texts)).max() > 0.01
    assert first.tokenize(texts[0]).pieces == model.tokenize(texts[0]).pieces


def test_similarity_with_a_second_encoder(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "dev.tsv"
    file.write_text("sentence1\tsentence2\tscore\nkar lost\tkar lost\t5\nkar lost\tkar mir\t3\nkar\tnel sup\t0\n")
    assert main([*run_of(tiny_run), "--similarity", str(file), "--against", str(tiny_run)]) == 0
    lines = said(capsys)
    assert lines[0] == f"{file}: 3 pairs" and f"against: {tiny_run}" in lines[1]
    table = {line.split()[0]: line.split()[1:] for line in lines[3:]}
    assert list(table) == ["%", "words", UNTRAINED, MODEL, AGAINST]
    assert table["words"][1] == "100.00" and table[MODEL] == table[AGAINST] != table[UNTRAINED]
    found = score_similarity(Score(checkpoint=str(tiny_run), similarity=str(file)).measurement, lambda line: None)
    assert f"{100 * found['spearman']:.2f}" == table[MODEL][1] and found["words spearman"] == 1


def test_triplets_with_a_tie(tiny_run: Path, tmp_path: Path) -> None:
    rows = [("kar lost", "kar lost", "nel sup mir"), ("kar", "nel sup", "nel sup"), ("kar", "mir", "kar")]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(dict(zip(("anchor", "positive", "negative"), row))) + "\n" for row in rows))
    found = score_triplets(Score(checkpoint=str(tiny_run), triplets=str(file)).measurement, lambda line: None)
    assert found["accuracy"] == found["words accuracy"] == 0.5  # right, a tie, wrong


def write_collection(folder: Path) -> None:
    """A collection of three documents; each of two queries is the text of its relevant document."""
    documents = {"a": "kar lost kand", "b": "mir nel", "c": "sup sup sup"}
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": id, "text": text}) + "\n" for id, text in documents.items())
    )
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "kar lost kand"}\n{"_id": "2", "text": "mir nel"}\n')
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\tb\t1\n")


def test_retrieval(tiny_run: Path, tmp_path: Path) -> None:
    write_collection(tmp_path)
    lines: list[str] = []
    found = score_retrieval(Score(checkpoint=str(tiny_run), retrieval=str(tmp_path)).measurement, lines.append)
    # each query is a document's whole text: the model and BM25 rank the document first
    assert [found[name] for name in ("ndcg@10", "mrr@10", "map", "recall@100", "BM25 ndcg@10")] == [1] * 5
    assert lines[0] == f"{tmp_path}: 3 documents, 2 queries, 2 relevant judgements"
    assert lines[-3] == f"ndcg@10 of {MODEL} minus BM25: +0.0 (0.0 to 0.0)" and "paired bootstrap" in lines[-1]


@pytest.fixture(scope="module")
def judge(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cross-encoder whose number is far lower for equal texts than for others."""
    texts = [("kar lost kand", "kar lost kand"), ("mir nel", "mir nel"), ("kar lost kand", "mir nel")]
    texts += [("mir nel", "kar lost kand"), ("kar lost kand", "sup sup sup"), ("mir nel", "sup sup sup")]
    fitted = api.load(str(tiny_run), "cpu").fit(
        texts * 8, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0] * 8, kind="regression", epochs=20, learning_rate=1e-2
    )
    fitted.save(folder := str(tmp_path_factory.mktemp("judge") / "model"))
    return folder


def test_a_cross_encoder_reranks_the_best_documents(judge: str) -> None:
    encoder = cross_encoder.load(judge, None, ModelPlacement(device="cpu"))
    documents, lines = ["kar lost kand", "mir nel", "sup sup sup", "mir nel"], list[str]()
    rankings = [np.array([0, 1, 2, 3]), np.array([3, 1]), np.array([], np.int64), np.array([2])]
    found = reranked(encoder, ["kar lost kand", "mir nel", "mir", "mir nel"], documents, rankings, 3, lines.append)
    # the highest number first, equal numbers in their order, and the rest after the first three as before
    assert [ranked.tolist() for ranked in found] == [[2, 1, 0, 3], [3, 1], [], [2]]
    assert lines == ["reranked by its number of lists: 5 pairs, computed in float32"]


def test_queries_and_documents_have_their_own_prompts(tiny_run: Path) -> None:
    model = api.load(str(tiny_run), "cpu")
    both = replace(model, recipe=replace(model.recipe, prompts={"query": "kar ", "passage": "mir "}))
    one = replace(model, recipe=replace(model.recipe, prompts={"query": "kar "}, default_prompt="sup "))
    for encoder, prompts, words in (
        (both, OF_QUERIES, "kar "),
        (both, OF_DOCUMENTS, "mir "),
        (one, OF_DOCUMENTS, "sup "),
    ):
        vectors = vectors_with(encoder, prompts, ["nel", "lost kand"])
        np.testing.assert_array_equal(vectors, model.embed([f"{words}nel", f"{words}lost kand"]))


def test_retrieval_with_a_cross_encoder(tiny_run: Path, judge: str, tmp_path: Path) -> None:
    write_collection(tmp_path)
    lines: list[str] = []
    asked = Score(
        checkpoint=str(tiny_run), retrieval=str(tmp_path), rerank=judge, placement=ModelPlacement(device="cpu")
    )
    found = score_retrieval(asked.measurement, lines.append)
    # the relevant document, first before, is last of three now: 1 / log2(4)
    assert [found[f"{RERANKED} {name}"] for name in ("ndcg@10", "mrr@10", "recall@100")] == [0.5, 1 / 3, 1]
    assert f"{RERANKED}: the first 100 documents of {MODEL}, in the order of {judge}" in lines
    assert [line.split()[0] for line in lines if line.startswith((RERANKED, MODEL, "BM25 "))][-2:] == [MODEL, RERANKED]
    assert lines[-2] == f"ndcg@10 of {RERANKED} minus {MODEL}: -50.0 (-50.0 to -50.0)"
    assert lines[-4] == f"ndcg@10 of {MODEL} minus BM25: +0.0 (0.0 to 0.0)"
    one = score_retrieval(replace(asked, rerank_top=1).measurement, lines.append)
    assert one[f"{RERANKED} ndcg@10"] == one["ndcg@10"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "x", "--input", "a.csv"], "against (x) is for similarity, retrieval, trip"),
        (["--similarity", "a.tsv", "--placement.precision", "bfloat16"], "placement.precision (bfloat16): vectors ar"),
        (["--similarity", "a.tsv", "--split", "test"], "split (test) is for task and retrieval, and has no ef"),
        (["--triplets", "a.tsv", "--split", "dev"], "has no effect on triplets: leave split out"),
        (["--input", "a.tsv", "--split", "dev"], "has no effect on input: leave split out"),
        (["--similarity", "a.tsv", "--negative", "n"], "negative (n) is for triplets, and has no effect"),
        (["--retrieval", "a", "--text", "t"], "text (t) is for input and similarity and triplets, and has"),
        (["--retrieval", "a", "--pair", "p"], "pair (p) is for input and similarity and triplets, and has"),
        (["--retrieval", "a", "--label", "l"], "label (l) is for input and similarity, and has no effect"),
        (["--similarity", "a.tsv", "--rerank", "x"], "rerank (x) is for retrieval, and has no effect on similar"),
        (["--input", "a.tsv", "--rerank-top", "7"], "rerank_top (7) is for retrieval, and has no effect on inp"),
        (["--retrieval", "a", "--rerank-top", "7"], "rerank_top (7) needs rerank, which is not given: name a cr"),
        (["--retrieval", "a", "--rerank-label", "l"], "rerank_label (l) needs rerank, which is not given"),
        (["--retrieval", "a", "--rerank", "x", "--rerank-top", "0"], "rerank_top (0) must be at least 1"),
        (["--task", "cola", "--data", "d", "--text", "t"], "has no effect on task: leave text out"),
        (["--similarity", "a.tsv", "--triplets", "b.tsv"], "or triplets (b.tsv): give exactly one"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--checkpoint", "m", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_predictions_have_no_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--predictions", "answers.json", "--retrieval", "folder"]) == 2
    assert "retrieval (folder) scores a model, not predictions: give checkpoint" in capsys.readouterr().err


def test_vectors_have_length_1_although_the_model_s_files_do_not_scale_them(tiny_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(folder_of(str(tiny_run), 3), tmp_path / "model")
    steps = [{"type": f"sentence_transformers.models.{kind}", "path": ""} for kind in ("Transformer", "Pooling")]
    (folder / "modules.json").write_text(json.dumps(steps))
    encoders = load_encoders(Score(checkpoint=str(folder), similarity="a.tsv", against=str(folder)).measurement)
    assert list(encoders) == [UNTRAINED, MODEL, AGAINST]
    for encoder in encoders.values():
        assert np.linalg.norm(encoder.embed(["kar lost"])) == pytest.approx(1, abs=1e-6)
