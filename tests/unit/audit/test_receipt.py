"""The lines and the file of an audit, and the one-line errors."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient

from jobs.audit import main
from pipeline.audit.receipt import lines, log, receipt, write
from pipeline.audit.search import MOST_SIGHTS, InCorpus, Sight, Sightings
from pipeline.audit.steps import StepFinder, Stretch, TrainedRun
from pipeline.audit.texts import AuditTexts
from pipeline.config.jobs import Pretrain
from pipeline.config.phases import Phase
from pipeline.config.training import Batch
from pipeline.corpus.prepared import Corpus, Window
from pipeline.corpus.stream import StreamSettings
from pipeline.errors import ConfigError
from pipeline.export.audited import audited
from pipeline.saved import run
from pipeline.text.vocabulary import Vocabulary
from tests.conftest import new_store

BATCH = Batch(rows_per_step=4, rows_per_slot=2)
PHASE = Phase(first=0, end=9, sampling=Pretrain().sampling, batch=BATCH)
STRETCHES = (
    Stretch(phase=PHASE, before=0, until=3, first=0, skipped=0, last=1, read=2),
    Stretch(phase=PHASE, before=3, until=6, first=1, skipped=2, last=3, read=5),
)
STEPS = StepFinder([(STRETCHES[0], range(2)), (STRETCHES[1], range(1, 4))], {0: 10, 1: 7, 2: 0, 3: 8})
"""Twelve rows in the first three steps: ten of window 0, two of window 1; then five of window 1, and window 3's."""


def sight(window: int, row: int, words: int = 13) -> Sight:
    return Sight(window=window, row=row, words=words, document=f"d{window}", shown="a [b] c")


def test_steps_of_rows() -> None:
    assert [STEPS.step_of(0, row) for row in (0, 3, 4, 9)] == [(1, 0), (1, 3), (2, 0), (3, 1)]
    assert [STEPS.step_of(1, row) for row in (0, 1, 2, 6)] == [(3, 2), (3, 3), (4, 0), (5, 0)]
    assert STEPS.step_of(3, 0) == (5, 1) and STEPS.step_of(3, 4) == (6, 1)


CORPUS = Corpus(
    folder="", fingerprint="", heldout=(), counts={}, dropped={}, sources={},
    train=(Window(shard="", row_group=0, documents=1, characters=9),) * 3,
)  # fmt: skip
SETTINGS = StreamSettings(
    corpus=CORPUS, vocabulary=Vocabulary(tokens=(), lowercase=True), sampling=PHASE.sampling, batch=BATCH, seed=0
)


def a_run(folder: Path) -> TrainedRun:
    """A run of which only these are asked: folder, record and stretches."""
    recorded = {"identity": {"init.fingerprint": "0"}, "mlflow_run_id": "1"}
    return TrainedRun(folder=str(folder), recorded=recorded, settings=SETTINGS, stretches=STRETCHES)


TEXTS = AuditTexts(
    texts=["word " * 20, "five words and no more", "words that none has ever seen", "too short", "in the corpus only"],
    splits={"dev": np.array([0, 1, 2, 3]), "test": np.array([1, 4])},
    too_short=np.array([False, False, False, True, False]),
)
IN_CORPUS = InCorpus(texts=[0, 1, 4], windows=np.ones(4, bool))


def test_each_split_has_three_numbers_and_its_worst_texts_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")
    seen = {
        1: Sightings(times=2, sights=[sight(0, 4, 5), sight(3, 0, 5)]),
        0: Sightings(times=1, sights=[sight(1, 2, 14)]),
    }
    splits = receipt(a_run(tmp_path), TEXTS, IN_CORPUS, STEPS, seen)
    names = ("step", "texts", "seen", "not_seen", "too_short", "in_corpus")
    assert [splits["dev"][name] for name in names] == [6, 4, 2, 1, 1, 2]
    assert [splits["test"][name] for name in names] == [6, 2, 1, 1, 0, 2]
    assert [text["words_seen"] for text in splits["dev"]["found"]] == [14, 5]
    assert splits["dev"]["found"][1]["sights"] == [
        {"step": 2, "row": 0, "document": "d0", "words": 5, "shown": "a [b] c"},
        {"step": 5, "row": 1, "document": "d3", "words": 5, "shown": "a [b] c"},
    ]
    assert list(lines(a_run(tmp_path), splits)) == [
        "texts that the run has seen in its 6 steps, 2 epochs begun:",
        "split  texts  seen  not seen  too short",
        "dev        4     2         1          1",
        "test       2     1         1          0",
        "1 of the texts not seen are in the corpus, but in no row of the 6 steps",
        "the run began with the weights of another model, and what that model saw is not known here",
        f"'{('word ' * 20)[:60]}…' (dev)",
        "    14 of 20 words, in 1 row, at step 4",
        "    document d1",
        "    masked in brackets: a [b] c",
        f"    python jobs/show.py seen {tmp_path} 4 --row 0",
        *(
            line
            for split in ("dev", "test")
            for line in (
                f"'five words and no more' ({split})",
                "    5 of 5 words, in 2 rows, at steps 2, 5",
                "    document d0 and 1 more",
                "    masked in brackets: a [b] c",
                f"    python jobs/show.py seen {tmp_path} 2 --row 0",
            )
        ),
    ]


def test_of_many_rows_the_first_are_kept_and_all_are_counted() -> None:
    seen = Sightings()
    for number in (3, 1, 2):
        seen.add(1_000, [sight(number, row) for row in range(MOST_SIGHTS)])
    assert seen.times == 3_000 and seen.sights == [sight(1, row) for row in range(MOST_SIGHTS)]


def test_a_later_audit_replaces_only_its_own_splits_and_the_card_shows_all(tmp_path: Path) -> None:
    splits = receipt(a_run(tmp_path), TEXTS, IN_CORPUS, STEPS, {})
    write(a_run(tmp_path), splits)
    write(a_run(tmp_path), {"test": splits["test"] | {"seen": 7, "step": 9}})
    found = run.read_audit(str(tmp_path))
    assert found.keys() == {"dev", "test"} and found["test"]["seen"] == 7
    section = audited(found)
    assert section.startswith("## Test sets in the training text\n") and "up to step 6, 9." in section
    assert "| dev | 4 | 0 | 3 | 1 |\n| test | 2 | 7 | 2 | 0 |" in section
    assert audited(run.read_audit(str(tmp_path / "other"))) == ""
    with pytest.raises(ConfigError, match="/x/audit.json cannot be written: .*Not a directory.*; give access"):
        write(a_run(tmp_path / "audit.json" / "x"), splits)


def test_the_table_in_mlflow_has_the_splits_of_earlier_audits_too(tmp_path: Path) -> None:
    splits = receipt(a_run(tmp_path), TEXTS, IN_CORPUS, STEPS, {})
    folder, store = tmp_path / "runs" / "a", new_store(tmp_path)
    client = MlflowClient(store)
    experiment = client.create_experiment("a", artifact_location=f"file://{tmp_path}/artifacts")
    run_id = client.create_run(experiment).info.run_id
    trained = replace(a_run(folder), recorded={"identity": {}, "mlflow_run_id": run_id})
    (folder / "summary.json").parent.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"steps": 6, "mlflow_uri": store}))
    for name in splits:
        write(trained, {name: splits[name]})
        log(trained, pytest.fail)
    logged = json.loads(next(tmp_path.glob("artifacts/*/artifacts/audit.json")).read_text())
    assert logged["data"] == [["dev", 4, 0, 3, 1, 6], ["test", 2, 0, 2, 0, 6]]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


def test_what_cannot_be_audited_is_refused_in_one_line(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test.txt").write_text("Too few words.\nOf these too.\n")
    text, folder = ("--text", str(tmp_path / "test.txt")), str(tiny_run)
    assert "runs/x is not the folder of a run: run.json is missing" in refused(capsys, str(tmp_path / "runs/x"), *text)
    assert "text and benchmark are not given: give --text or --benchmark" in refused(capsys, folder)
    assert "benchmark and data must be given together" in refused(capsys, folder, "--benchmark", "blimp")
    data = ("--data", str(tmp_path))
    assert "benchmark (gleu) is unknown; choose from blimp, glue" in refused(
        capsys, folder, "--benchmark", "gleu", *data
    )
    assert f"data ({tmp_path}) has no file of squad, such as train-v1.1.json" in refused(
        capsys, folder, "--benchmark", "squad", *data
    )
    assert "the 2 texts of test.txt have fewer than 5 words, too few to tell from chance" in refused(
        capsys, folder, *text
    )
    assert "gone.txt: no such file or folder" in refused(capsys, folder, "--text", str(tmp_path / "gone.txt"))
    moved = tmp_path / "runs" / "moved"
    moved.mkdir(parents=True)
    recorded = json.loads((tiny_run / "run.json").read_text()) | {"corpus": str(tmp_path / "gone")}
    (moved / "run.json").write_text(json.dumps(recorded))
    assert "gone does not hold a prepared corpus (manifest.json is missing)" in refused(capsys, str(moved), *text)
