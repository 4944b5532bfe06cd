"""The package mteb evaluates an encoder with the figures of jobs/score.py, and keeps results of other weights apart."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import api
from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Score
from pipeline.embed.mteb import MtebModel
from pipeline.embed.retrieval import score_retrieval
from pipeline.embed.similarity import score_similarity
from pipeline.saved.recipe import VectorRecipe

mteb = pytest.importorskip("mteb", reason="needs the package mteb")

WORDS = ("kar", "lost", "kand", "mir", "nel", "sup", "mist", "kap")
CPU = ModelPlacement(device="cpu")


def about(name: str, kind: str, measure: str) -> Any:
    from mteb.abstasks.task_metadata import TaskMetadata

    return TaskMetadata(
        name=name, dataset={"path": "local", "revision": "1"}, description="Made up", type=kind, category="t2t",
        modalities=["text"], eval_splits=["test"], eval_langs=["eng-Latn"], main_score=measure,
    )  # fmt: skip


def text(number: int, words: int = 4) -> str:
    return " ".join(WORDS[(number * (place + 1) + place) % len(WORDS)] for place in range(words))


def similarity_task(rows: list[tuple[str, str, float]]) -> Any:
    from datasets import Dataset
    from mteb.abstasks.sts import AbsTaskSTS

    class Similarity(AbsTaskSTS):
        metadata = about("MadeUpSimilarity", "STS", "cosine_spearman")

        def load_data(self, **_: Any) -> None:
            first, second, scores = (list(column) for column in zip(*rows))
            self.dataset = {"test": Dataset.from_dict({"sentence1": first, "sentence2": second, "score": scores})}
            self.data_loaded = True

    return Similarity()


def retrieval_task(documents: dict[str, str], queries: dict[str, str], grades: dict[str, dict[str, int]]) -> Any:
    from mteb.abstasks import AbsTaskRetrieval

    class Retrieval(AbsTaskRetrieval):
        metadata = about("MadeUpRetrieval", "Retrieval", "ndcg_at_10")

        def load_data(self, **_: Any) -> None:
            self.corpus, self.queries, self.relevant_docs = {"test": documents}, {"test": queries}, {"test": grades}
            self.data_loaded = True

    return Retrieval()


def evaluated(model: MtebModel, task: Any, cache: Path | None = None) -> dict[str, Any]:
    kept = None if cache is None else mteb.ResultCache(cache)
    result = mteb.evaluate(model, [task], cache=kept, show_progress_bar=False)
    return result.task_results[0].scores["test"][0]


def test_similarity_is_that_of_score(tiny_run: Path, tmp_path: Path) -> None:
    rows = [(text(number), text(number * 3 + 1), number % 6) for number in range(40)]
    file = tmp_path / "pairs.tsv"
    file.write_text("sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t{score}\n" for a, b, score in rows))
    ours = score_similarity(
        Score(checkpoint=str(tiny_run), similarity=str(file), placement=CPU).measurement, lambda line: None
    )
    model, task = MtebModel(model=api.load(str(tiny_run), "cpu")), similarity_task(rows)
    theirs = evaluated(model, task, tmp_path / "cache")
    assert 0 < abs(ours["spearman"]) < 1
    assert [theirs["cosine_spearman"], theirs["spearman"]] == pytest.approx([ours["spearman"]] * 2, abs=1e-4)
    assert theirs["cosine_pearson"] == pytest.approx(ours["pearson"], abs=1e-4)
    other = MtebModel(model=replace(model.model, recipe=VectorRecipe(pooling="cls")))
    assert abs(evaluated(other, task, tmp_path / "cache")["spearman"] - theirs["spearman"]) > 1e-3


def test_retrieval_is_that_of_score(tiny_run: Path, tmp_path: Path) -> None:
    documents = {f"d{number}": text(number, 6) for number in range(60)}
    queries = {f"q{number}": text(number * 5 + 2) for number in range(12)}
    grades = {query: {f"d{(row * 7 + step * 11) % 60}": step for step in (1, 2)} for row, query in enumerate(queries)}
    (tmp_path / "qrels").mkdir()
    for name, texts in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps({"_id": id, "text": content}) + "\n" for id, content in texts.items()]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    judged = [f"{query}\t{id}\t{grade}\n" for query, of_query in grades.items() for id, grade in of_query.items()]
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    asked = Score(checkpoint=str(tiny_run), retrieval=str(tmp_path), placement=CPU)
    ours = score_retrieval(asked.measurement, lambda line: None)
    theirs = evaluated(MtebModel(model=api.load(str(tiny_run), "cpu")), retrieval_task(documents, queries, grades))
    assert 0 < ours["ndcg@10"] < 1
    for name, of_mteb in {"ndcg@10": "ndcg_at_10", "map": "map_at_1000", "recall@100": "recall_at_100"}.items():
        assert theirs[of_mteb] == pytest.approx(ours[name], abs=1e-4)
