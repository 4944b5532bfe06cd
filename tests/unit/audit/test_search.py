"""Texts are found at exactly the steps at which the rows of a run show them."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.audit.receipt import receipt
from pipeline.audit.search import search
from pipeline.audit.steps import TrainedRun
from pipeline.audit.texts import read_texts
from pipeline.config.audit import Audit
from pipeline.config.jobs import Pretrain
from pipeline.config.phases import TwoPhases
from pipeline.config.training import Batch, Checkpoints
from pipeline.corpus.order import slots_at
from pipeline.errors import DataError
from pipeline.reporting import no_op
from pipeline.saved import run
from pipeline.show.rows import text_of as decoded
from pipeline.show.seen import recompute_rows
from pipeline.train import run_identity
from tests.conftest import text_of
from tests.in_process import InProcessExecutor

SENTENCES = text_of(7).removesuffix(".").split(". ")
LONG, SHORT, NOWHERE = ". ".join(SENTENCES[3:6]), f"{SENTENCES[4].upper()}?", " ".join(SENTENCES[5].split()[::-1])
"""23 words over three sentences of a document, the ten words of one of these, and seven words of no document."""

EVERY = [sentence for number in range(30) for sentence in text_of(number).split(". ")]


def record(training, config: Pretrain, folder: Path) -> None:
    """Write what the folder of a run has beside its positions: its settings, its vocabulary, and its corpus."""
    corpus = shutil.copytree(training.corpus.folder, folder / "corpus")
    run_identity.save_run_vocabulary(str(folder), training.vocabulary, config.model.maximum_positions)
    identity = run_identity.identity(config, training.corpus, training.vocabulary)
    run.write_run(str(folder), identity, config.steps, "0a1b", str(corpus))
    windows = {
        split: [list(asdict(window).values()) for window in getattr(training.corpus, split)]
        for split in ("train", "heldout")
    }
    about = {"fingerprint": training.corpus.fingerprint, "counts": {}, "dropped": {}, "sources": {}}
    (folder / "corpus" / "manifest.json").write_text(json.dumps(windows | about))


def audited(folder: Path, *texts: str) -> dict[str, Any]:
    """Audit texts, in tasks that run in another order than that of the rows."""
    file = folder / "test.txt"
    file.write_text("\n".join(texts))
    trained = TrainedRun.of(str(folder))
    given = read_texts(Audit(run=str(folder), text=(str(file),)), no_op)
    return receipt(trained, given, *search(trained, given, no_op, InProcessExecutor()))["test.txt"]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def has_part(line: str, text: str) -> bool:
    """Whether a line of words has 13 words in a row of a text, or the whole text if it is shorter."""
    wanted = words(text)
    return any(f" {' '.join(wanted[at : at + 13])} " in f" {line} " for at in range(max(1, len(wanted) - 12)))


def rows_of_seen(folder: Path, steps: int) -> Iterator[tuple[int, int, str, set[str]]]:
    """Each step and row as `show seen` has it: its words before masking, and the pieces that were masked."""
    config = run.settings_of(run.recorded_run(str(folder)))
    for step in range(1, steps + 1):
        phase = config.phase_at(step - 1)
        rows = slots_at(step - 1 - phase.first, phase.batch) * phase.batch.slot_rows
        for row, seen in enumerate(recompute_rows(str(folder), step, 0, rows)):
            answers = dict(zip(seen.row["masked_positions"], seen.row["masked_labels"]))
            ids = [answers.get(at, id) for at, id in enumerate(seen.row["ids"])]
            ordinary = set(seen.vocabulary.ordinary_ids.tolist())
            line = " ".join(words(decoded(seen.vocabulary, [id for id in ids if id in ordinary])))
            yield step, row, line, {seen.vocabulary.tokens[label].removeprefix("##") for label in answers.values()}


def masked(shown: str) -> list[str]:
    return re.findall(r"\[(\w+)\]", shown)


def assert_found_where_seen(folder: Path, about: dict[str, Any], steps: int) -> None:
    rows = list(rows_of_seen(folder, steps))
    for text in about["found"]:
        expected = [(step, row, pieces) for step, row, line, pieces in rows if has_part(line, text["text"])]
        assert [(sight["step"], sight["row"]) for sight in text["sights"]] == [at[:2] for at in expected]
        assert text["times"] == len(expected) > 0
        for sight, (_, _, pieces) in zip(text["sights"], expected):
            assert has_part(" ".join(words(text_of(int(sight["document"].removesuffix("#0"))))), text["text"])
            assert all(any(piece in word for piece in pieces) for word in masked(sight["shown"]))


@pytest.fixture(scope="module")
def resumed(training, tiny_config: Pretrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs that was stopped after step 8 and continued, with a position every 5 steps."""
    folder = tmp_path_factory.mktemp("resumed")
    config = replace(tiny_config, steps=24, checkpoint=Checkpoints(every=5, keep=1))
    with pytest.raises(KeyboardInterrupt):
        training.run(config, folder, {}, stop_at=8)
    training.run(config, folder, {})
    record(training, config, folder)
    return folder


def test_texts_are_found_at_the_steps_at_which_they_were_seen(resumed: Path) -> None:
    about = audited(resumed, LONG, SHORT, NOWHERE, "Kar lond mip.")
    assert [about[name] for name in ("texts", "seen", "not_seen", "too_short")] == [4, 2, 1, 1]
    assert [text["text"] for text in about["found"]] == [LONG, SHORT]
    assert_found_where_seen(resumed, about, 24)
    assert about["found"][0]["words"] == 23 and 13 <= about["found"][0]["words_seen"] <= 23
    steps = [sight["step"] for sight in about["found"][0]["sights"]]
    assert {recompute_rows(str(resumed), step, 0)[0].row["epoch"] for step in steps} >= {1, 2}
    assert any(masked(sight["shown"]) for text in about["found"] for sight in text["sights"])


def test_steps_of_a_growing_batch_and_of_a_second_phase(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    config = replace(
        tiny_config,
        sampling=replace(tiny_config.sampling, maximum_length=24),
        batch=Batch(rows_per_step=16, rows_per_slot=4, warmup_steps=4, warmup_rows=8),
        phases=TwoPhases(share=0.5, maximum_length=32, rows_per_step=8, rows_per_slot=2),
    )
    training.run_phases(config, tmp_path, {})
    record(training, config, tmp_path)
    about = audited(tmp_path, *EVERY)
    assert_found_where_seen(tmp_path, about, 12)
    assert {sight["step"] > 6 for text in about["found"] for sight in text["sights"]} == {False, True}


def test_a_text_of_the_corpus_counts_only_once_a_row_has_shown_it(resumed: Path, tmp_path: Path) -> None:
    """The same run, of which only the first 5 steps are known."""
    early = shutil.copytree(resumed, tmp_path / "early")
    for number in (8, 10, 15, 20, 24):
        for file in early.glob(f"positions/step-{number:08d}.json"):
            file.unlink()
    moved = json.loads((early / "run.json").read_text()) | {"corpus": str(early / "corpus")}
    (early / "run.json").write_text(json.dumps(moved))
    about, later = audited(early, *EVERY), audited(resumed, *EVERY)
    assert about["step"] == 5 and later["step"] == 24
    assert about["in_corpus"] == later["in_corpus"] >= later["seen"] > about["seen"] > 0
    before = {text["text"]: text["sights"] for text in about["found"]}
    for text in later["found"]:
        assert before.get(text["text"], []) == [sight for sight in text["sights"] if sight["step"] <= 5]


def test_a_run_without_a_checkpoint_is_refused(resumed: Path, tmp_path: Path) -> None:
    early = shutil.copytree(resumed, tmp_path / "early", ignore=shutil.ignore_patterns("positions"))
    with pytest.raises(DataError, match="early has no checkpoint yet: audit the run after its first checkpoint"):
        TrainedRun.of(str(early))
