import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.show import main
from pipeline.config.data import Sampling, SentenceOrder, SpanMasking
from pipeline.config.flat import flatten, unflatten
from pipeline.config.jobs import Pretrain
from pipeline.config.phases import TwoPhases
from pipeline.config.training import Batch, Checkpoints
from pipeline.corpus.order import Cursor
from pipeline.errors import ConfigError, DataError
from pipeline.saved import run
from pipeline.show.seen import documents_of, position_before, recompute_rows
from pipeline.train import run_identity
from pipeline.train.positions import write_position
from pipeline.train.run_stream import stream_of_run


@pytest.fixture(scope="module")
def finished(training, tiny_config: Pretrain, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pretrain]:
    """A run of 12 steps with a checkpoint every 5."""
    config, folder = replace(tiny_config, checkpoint=Checkpoints(every=5, keep=1)), tmp_path_factory.mktemp("finished")
    training.run(config, folder, {})
    return folder, config


@pytest.fixture
def trained(training, finished: tuple[Path, Pretrain], tmp_path: Path) -> tuple[str, Pretrain]:
    """A copy of that run, and its corpus with a manifest."""
    folder, config = finished
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    record(training, config, tmp_path)
    return str(tmp_path), config


def record(training, config: Pretrain, tmp_path: Path) -> None:
    corpus = shutil.copytree(training.corpus.folder, f"{tmp_path}/corpus", dirs_exist_ok=True)  # others share the first
    run_identity.save_run_vocabulary(str(tmp_path), training.vocabulary, config.model.maximum_positions)
    run.write_run(
        str(tmp_path),
        run_identity.identity(config, training.corpus, training.vocabulary),
        config.steps,
        "0a1b",
        corpus,
    )
    windows = {
        split: [list(asdict(window).values()) for window in getattr(training.corpus, split)]
        for split in ("train", "heldout")
    }
    about = {"fingerprint": training.corpus.fingerprint, "counts": {}, "dropped": {}, "sources": {}}
    Path(corpus, "manifest.json").write_text(json.dumps(windows | about))


def test_rows_of_fixed_copies_are_recomputed_in_later_epochs(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    """With one copy, every epoch shows each window's same rows, in an order of its own."""
    sampling = replace(tiny_config.sampling, copies=1)
    config = replace(tiny_config, sampling=sampling, checkpoint=Checkpoints(every=5, keep=1))
    training.run(config, tmp_path, {})
    record(training, config, tmp_path)
    blocks, later = training.blocks(config), 12
    block = (later - 1) * config.batch.rows_per_step // config.batch.rows_per_slot
    (seen,) = recompute_rows(str(tmp_path), later, 0)
    assert seen.row == blocks[block].slice(0, 1).to_pylist()[0] and seen.row["epoch"] > 0
    rows = [row for table in blocks for row in table.to_pylist() if row["epoch"] == 0]
    assert seen.row["ids"] in [row["ids"] for row in rows]


def test_rows_are_those_that_were_trained_on(training, trained: tuple[str, Pretrain]) -> None:
    folder, config = trained
    blocks = training.blocks(config)
    assert (
        position_before(folder, 3) == (0, None)
        and position_before(folder, 7)[0] == 5
        and position_before(folder, 10)[0] == 10
    )
    for step, row in ((1, 0), (3, 7), (5, 15), (6, 0), (8, 3), (11, 0), (12, 15)):
        block, place = divmod((step - 1) * config.batch.rows_per_step + row, config.batch.rows_per_slot)
        assert [found.row for found in recompute_rows(folder, step, row)] == blocks[block].slice(place, 1).to_pylist()


def test_several_rows_are_one_after_the_other_also_in_the_next_window(trained: tuple[str, Pretrain]) -> None:
    folder, config = trained
    rows = config.batch.rows_per_step
    together = {step: recompute_rows(folder, step, 0, rows) for step in range(1, 13)}
    crossing = [step for step, found in together.items() if len({at.row["window"] for at in found}) > 1]
    assert crossing
    alone = [recompute_rows(folder, crossing[0], row)[0] for row in range(rows)]
    assert [at.row for at in together[crossing[0]]] == [at.row for at in alone]
    assert all(at.documents.equals(other.documents) for at, other in zip(together[crossing[0]], alone))


def test_rows_of_two_phases_and_of_a_growing_batch(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    growing = Batch(
        rows_per_step=16, rows_per_slot=4, warmup_steps=4, warmup_rows=8
    )  # 8, 8, 12, 12, 16, ... rows a step
    short = replace(tiny_config.sampling, maximum_length=16)
    config = replace(
        tiny_config,
        sampling=short,
        batch=growing,
        phases=TwoPhases(share=0.25, maximum_length=32, rows_per_step=8, rows_per_slot=2),
    )
    blocks = training.blocks(config)
    record(training, config, tmp_path)
    state, _ = training.run(config, tmp_path, {})
    for step, row, place in ((1, 7, 7), (2, 0, 8), (3, 11, 27), (6, 5, 16 + 24 + 16 + 5)):
        (found,) = recompute_rows(str(tmp_path), step, row)
        assert (
            found.row == pa.concat_tables(blocks).slice(place, 1).to_pylist()[0]
            and found.phase.sampling.maximum_length == 16
        )
    with pytest.raises(ConfigError, match=r"row \(8\) must be from 0 to 7: step 2 has 8 rows"):
        recompute_rows(str(tmp_path), 2, 8)
    later = pa.concat_tables(training.blocks(config, state))
    assert (
        0 < state.cursor.row < later["rows_in_window"][0].as_py()
    )  # the window that the first phase ended in would have rows left
    for step, row, place in ((10, 0, 0), (12, 7, 23)):
        (found,) = recompute_rows(str(tmp_path), step, row)
        assert found.row == later.slice(place, 1).to_pylist()[0] and found.phase.sampling.maximum_length == 32


def test_a_second_phase_that_has_not_begun_is_refused(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    config = replace(
        tiny_config,
        checkpoint=Checkpoints(every=5),
        phases=TwoPhases(share=1 / 3, maximum_length=32, rows_per_step=8, rows_per_slot=2),
    )
    record(training, config, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        training.run(config, tmp_path, {}, stop_at=7)
    assert recompute_rows(str(tmp_path), 8, 0)[0].phase.first == 0
    with pytest.raises(
        ConfigError,
        match=r"step \(9\) is in the phase that begins at step 9, and the run has not reached that phase: "
        r"its newest saved position is after step 5$",
    ):
        recompute_rows(str(tmp_path), 9, 0)


def test_its_documents_hold_its_words(trained: tuple[str, Pretrain]) -> None:
    found = recompute_rows(trained[0], 2, 3)[0]
    answers = dict(zip(found.row["masked_positions"], found.row["masked_labels"]))
    ids = [answers.get(place, id) for place, id in enumerate(found.row["ids"])]
    first = (
        found.documents.slice(found.row["document_a"], 1)["text"][0].as_py().lower().replace(" ", "").replace("\n", "")
    )
    words = "".join(found.vocabulary.tokens[id].removeprefix("##") for id in ids[1 : found.row["first_length"] - 1])
    assert words.replace("[UNK]", "") in first
    assert found.documents.equals(
        documents_of(stream_of_run(trained[0], run.read_run(trained[0])), found.row["epoch"], found.row["window"])
    )


def test_what_is_not_there_is_refused(trained: tuple[str, Pretrain], tmp_path: Path) -> None:
    folder, _ = trained
    with pytest.raises(ConfigError, match=r"^row \(16\) must be from 0 to 15: step 3 has 16 rows$"):
        recompute_rows(folder, 3, 16)
    with pytest.raises(ConfigError, match=r"^number \(2\) must be from 1 to 1 with row 15: step 1 has 16 rows$"):
        recompute_rows(folder, 1, 15, 2)
    with pytest.raises(ConfigError, match="is not the folder of a run: run.json is missing"):
        recompute_rows(str(tmp_path / "none"), 1, 0)
    recorded = run.read_run(folder)
    recorded["identity"]["corpus.fingerprint"] = "other"
    with pytest.raises(
        DataError, match=r"is no longer the corpus of this run: .*fingerprint .*0123456789ab, the run's is other"
    ):
        stream_of_run(folder, recorded)
    recorded = run.read_run(folder)
    Path(folder, run.RUN).write_text(
        json.dumps(recorded | {"identity": recorded["identity"] | {"version.sentencex": "0.1"}})
    )
    with pytest.raises(DataError, match="was trained with version.sentencex '0.1', but this environment has '1"):
        recompute_rows(folder, 1, 0)


def test_steps_that_a_finished_run_never_trained_are_refused(trained: tuple[str, Pretrain]) -> None:
    Path(trained[0], run.SUMMARY).write_text('{"steps": 12}')
    assert recompute_rows(trained[0], 12, 0)[0].known == 12
    for step in (0, 13, 100_000):
        with pytest.raises(ConfigError, match=rf"^step \({step}\) must be from 1 to 12: the run trained 12 steps$"):
            recompute_rows(trained[0], step, 0)


def test_an_unfinished_run_may_be_ahead_of_its_newest_checkpoint(
    trained: tuple[str, Pretrain], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = trained
    recorded = run.read_run(folder)
    recorded["steps"] = 14
    Path(folder, run.RUN).write_text(json.dumps(recorded))
    assert main(("seen", folder, "13")) == 0
    assert (
        "the run's newest checkpoint is of step 12: these are the rows of step 13, which the run may not have trained "
        "yet" in capsys.readouterr().out
    )
    unfinished = "the run is not finished, and its newest checkpoint is of step 12$"
    with pytest.raises(ConfigError, match=rf"^step \(15\) must be from 1 to 14: {unfinished}"):
        recompute_rows(folder, 15, 0)
    del recorded["identity"]["steps"]  # as under schedules in which the steps may grow
    Path(folder, run.RUN).write_text(json.dumps(recorded))
    assert main(("seen", folder, "13")) == 0


def test_nothing_is_printed_before_the_rows_are_checked(
    trained: tuple[str, Pretrain], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("seen", trained[0], "1", "--row", "15", "--number", "2")) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: number (2)")
    assert main(("seen", trained[0], "12", "--row", "14", "--number", "2")) == 0
    text = capsys.readouterr().out
    assert "step 12, row 14: epoch" in text and "step 12, row 15: epoch" in text and "newest checkpoint" not in text


def test_positions_are_written_and_the_newest_before_a_step_is_found(tmp_path: Path) -> None:
    cursors = {step: Cursor(epoch=0, window=step, row=1, rows_in_window=9) for step in (20, 100)}
    for step, cursor in cursors.items():
        write_position(str(tmp_path), step, cursor)
    assert [position_before(str(tmp_path), step) for step in (19, 20, 99, 100, 500)] == [
        (0, None),
        *((at, cursors[at]) for at in (20, 20, 100, 100)),
    ]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(maximum_length=64, pairs=SentenceOrder(short_probability=0.3), masking=SpanMasking(longest=5)),
    ],
)
def test_settings_come_back_from_their_flat_names(sampling: Sampling) -> None:
    config = Pretrain(sampling=sampling, batch=Batch(rows_per_step=64, rows_per_slot=16), corpus=("a", "b"))
    assert unflatten(Pretrain, flatten(config)) == config
    assert unflatten(Sampling, flatten(config), "sampling.") == sampling
