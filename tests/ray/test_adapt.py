"""jobs/adapt.py: a job that stops in its second training continues, scores both encoders, and keeps what is done."""

import json
from pathlib import Path

import numpy as np
import pytest

from jobs.adapt import main
from jobs.search import main as search
from pipeline.saved.checkpoints import steps_saved
from pipeline.workflows import adapt as workflow
from tests.conftest import WORDS

pytestmark = [pytest.mark.second, pytest.mark.usefixtures("local_ray")]
SMALL = (
    "--maximum-length 24 --masked-steps 4 --contrastive-steps 4 --batch.rows-per-step 16 --batch.rows-per-slot 8 "
    "--placement.threads 1"
)


@pytest.fixture(scope="module")
def given(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options of a job: documents with titles, queries and judgements, and an encoder."""
    folder, draw = tmp_path_factory.mktemp("given"), np.random.default_rng(0)
    documents = [
        {"id": f"d{number}", "title": " ".join(draw.choice(WORDS, 3)), "text": " ".join(draw.choice(WORDS, 40)) + "."}
        for number in range(240)
    ]
    (folder / "text.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    queries = [{"id": f"q{number}", "text": documents[number]["text"]} for number in range(8)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    judged = "".join(f"q{number}\td{number}\t1\n" for number in range(8))
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    files = f"--corpus {folder}/text.jsonl --queries {folder}/queries.jsonl --judgements {folder}/qrels.tsv"
    return [*files.split(), "--init", str(tiny_run), *SMALL.split()]


def test_a_stopped_job_continues_and_compares_the_encoders(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, train = [*given, "--output", str(tmp_path)], workflow.pretrain

    def stop_before_contrastive(run, report) -> None:
        if run.name == "contrastive":
            raise KeyboardInterrupt
        train(run, report)

    monkeypatch.setattr(workflow, "pretrain", stop_before_contrastive)
    assert main(asked) == 130
    assert capsys.readouterr().err.endswith("stopped; the same command continues\n")
    monkeypatch.setattr(workflow, "pretrain", train)
    assert main([*asked, "--plan"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "timing a few steps on this machine, for at most a minute"
    states = [line.rpartition("; ")[2] for line in said[2:11:2]]
    assert states == ["done", "done", "to do", "to do", "to do"]

    assert main(asked) == 0
    said = capsys.readouterr().out.splitlines()
    assert "run masked is finished" in said
    assert "contrastive: 4 steps (0.3 epochs), with a title and a paragraph of its document" in "\n".join(said)
    assert steps_saved(str(tmp_path / "runs/contrastive"))[-1] == 4
    table = {
        line.split()[0]: line.split()[1:] for line in said if line.startswith(("BM25  ", "untouched  ", "adapted  "))
    }
    assert {system: len(values) for system, values in table.items()} == {"BM25": 4, "untouched": 4, "adapted": 4}
    assert all(0 <= float(value) <= 100 for values in table.values() for value in values)
    assert any(line.startswith("ndcg@10 of adapted minus untouched: ") for line in said)
    assert said[-1].endswith(f'python jobs/search.py --vectors {tmp_path}/vectors/after --queries "…"')
    assert search(["--vectors", f"{tmp_path}/vectors/after", "--queries", "kar lost", "--top", "1"]) == 0
    assert "text.jsonl:" in capsys.readouterr().out

    without = [
        word
        for word in asked
        if word not in ("--queries", "--judgements") and not word.endswith(("ies.jsonl", "qrels.tsv"))
    ]
    assert main(without) == 0
    said = capsys.readouterr().out.splitlines()
    examples = [line for line in said if "its text" in line]
    assert sum("(untouched: " in line for line in examples) == sum("(adapted: " in line for line in examples) == 5
    titles = {
        document["title"]
        for document in map(json.loads, Path(without[without.index("--corpus") + 1]).read_text().splitlines())
    }
    assert all(line.partition(" (")[0] in titles for line in examples)
    (head,) = [line for line in said if line.startswith("held out of the trainings: whole documents; from there, ")]
    pairs = int(head.partition("from there, ")[2].partition(" ")[0])
    assert pairs >= 20 and f"{pairs} documents" in head and " of them of the training text:" in head
    assert any(line.startswith("ndcg@10 of adapted minus untouched: ") for line in said)
    assert any(line.startswith("recall@10 of adapted minus untouched: ") for line in said)
    assert "comparing the encoders" in "\n".join(said)
    before, after = (
        json.loads((tmp_path / f"vectors/{name}/manifest.json").read_text()) for name in ("before", "after")
    )
    assert before["model"]["maximum_length"] == after["model"]["maximum_length"] == 32
    assert before["counts"]["vectors"] == after["counts"]["vectors"]
    assert "run contrastive is finished" in said
    assert main([*without, "--seed", "1"]) == 2
    assert "has an encoder adapted with seed 0, not with seed 1: choose another --output" in capsys.readouterr().err
