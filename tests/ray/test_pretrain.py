"""The job's own main on a small corpus: every world sees the same global batches, and what is killed goes on as if it
never was.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import BytesIO
from itertools import islice
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
import ray
import torch
from mlflow.tracking import MlflowClient
from safetensors.torch import load_file, save_file

from pipeline import api, storage
from pipeline.config.data import GivenPairs, Preparation, Sampling, Sentences, TwoCrops, VocabularySettings
from pipeline.config.jobs import Pretrain, with_words_rate
from pipeline.config.model import Model
from pipeline.config.objective import Contrastive, DistilledVectors
from pipeline.config.phases import TwoPhases
from pipeline.config.placement import Placement
from pipeline.config.training import (
    AdamW,
    Batch,
    Checkpoints,
    ConstantRate,
    Evaluation,
    LinearDecay,
    Tracking,
    WarmupStableDecay,
)
from pipeline.corpus.embeddings import counted_embeddings
from pipeline.corpus.order import cursor_for_phase, offset
from pipeline.corpus.prepared import load_corpus
from pipeline.corpus.stream import settings_for_phase
from pipeline.errors import ConfigError, DataError
from pipeline.pictures.run_end import CORPUS, LOSS, as_png, end_pictures
from pipeline.show.seen import recompute_rows, rows_after
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.checkpoint import State
from pipeline.train.loop import advance
from pipeline.train.pictures import DPI, LEARNING_CURVE, THROUGHPUT, pictures
from pipeline.train.run import read_run, run_folder
from pipeline.train.run_data import find_corpus, stream_settings
from pipeline.train.slots import make_slot
from pipeline.train.start import read_start, word_embeddings
from pipeline.train.summary import summary_text
from pipeline.workflows.pretrain import pretrain
from tests.conftest import text_of
from tests.ray.listening import listening

pytestmark = pytest.mark.usefixtures("local_ray")

STEPS = 120
LOSS_TOLERANCE = 1e-4  # float32 sums in another order, after 120 updates
History = dict[str, dict[int, float]]


@pytest.fixture(scope="module")
def config(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Pretrain:
    return Pretrain(
        corpus=(str(small_corpus),),
        output=str(tmp_path_factory.mktemp("output")),
        steps=STEPS,
        prepare=Preparation(
            window_characters=6_000, piece_characters=1_000, heldout_share=0.1, near_duplicates=None
        ),  # 36 words repeat themselves
        vocabulary=VocabularySettings(size=150),
        sampling=Sampling(maximum_length=32),
        model=Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32),
        batch=Batch(rows_per_step=16, rows_per_slot=4),
        optimizer=AdamW(learning_rate=1e-2),
        schedule=LinearDecay(warmup_share=0.1),
        evaluation=Evaluation(every=50, rows=64),
        checkpoint=Checkpoints(every=20, keep=2),
        tracking=Tracking(every=1),
        placement=Placement(precision="float32", compile="off", device="cpu", threads=1),
    )


def history(config: Pretrain, summary: dict) -> History:
    """Return metric -> step -> value of a run from its MLflow database; fail if a step occurs twice."""
    client = MlflowClient(tracking_uri=summary["mlflow_uri"])
    found: History = {}
    for key in client.get_run(summary["mlflow_run_id"]).data.metrics:
        points = client.get_metric_history(summary["mlflow_run_id"], key)
        found[key] = {point.step: point.value for point in points}
        assert len(found[key]) == len(points), f"{key} holds a step twice"
    return found


def assert_same_training(one: History, other: History) -> None:
    for key in ("train/mlm_loss", "train/nsp_loss", "train/gradient_norm", "stream/rows_crc32"):
        assert sorted(other[key]) == sorted(one[key]) == list(range(1, STEPS + 1))
    assert other["stream/rows_crc32"] == one["stream/rows_crc32"]
    for key in ("train/mlm_loss", "train/nsp_loss", "heldout/mlm_loss"):
        assert other[key] == pytest.approx(one[key], abs=LOSS_TOLERANCE), key


def assert_pictures_show(logged: History, summary: dict) -> None:
    """Assert that the pictures among the run's artifacts are drawn from its metrics in MLflow."""
    run = MlflowClient(tracking_uri=summary["mlflow_uri"]).get_run(summary["mlflow_run_id"])
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    drawn = pictures(run.info.run_name, logged)
    assert drawn.keys() == {LEARNING_CURVE, THROUGHPUT}
    for path, figure in drawn.items():
        figure.savefig(written := BytesIO(), dpi=DPI)
        assert (folder / path).read_bytes() == written.getvalue(), path


def assert_end_pictures_show(summary: dict) -> None:
    """Assert that the artifacts have the pictures of the summary and the corpus, and that the groups of the loss by
    frequency add up to the held-out loss.
    """
    run = MlflowClient(tracking_uri=summary["mlflow_uri"]).get_run(summary["mlflow_run_id"])
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    corpus = load_corpus(storage.read_json(str(Path(summary["export"]).parent / "run.json"))["corpus"])
    drawn = end_pictures(summary, corpus)
    assert drawn.keys() == {LOSS, CORPUS}
    assert all((folder / path).read_bytes() == as_png(figure) for path, figure in drawn.items())
    tokens, nats = (
        sum(group["counts"] * group.get(name, 1) for group in summary["loss_by_frequency"]) for name in ("", "model")
    )
    assert nats / tokens == pytest.approx(summary["heldout_after"]["heldout/mlm_loss"], rel=1e-4)


@pytest.fixture(scope="module")
def refused() -> list[str]:
    """Errors of a second driver of the undisturbed run."""
    return []


@pytest.fixture(scope="module")
def undisturbed(config: Pretrain, refused: list[str]) -> tuple[dict, History]:
    lines: list[str] = []

    def and_start_another(line: str) -> None:
        lines.append(line)
        if step_of(line) and not refused:
            with pytest.raises(ConfigError) as error:
                pretrain(replace(config, name="world-1"), print)
            refused.append(str(error.value))

    summary = pretrain(replace(config, name="world-1"), and_start_another)
    assert any("tokens/s" in line and "left" in line for line in lines)
    return summary, history(config, summary)


def test_it_learns_and_summarises_what_it_learnt(undisturbed: tuple[dict, History]) -> None:
    summary, _ = undisturbed
    after, beside = summary["heldout_after"], summary["baselines"]
    assert (
        after["heldout/mlm_loss"] < beside["baseline/unigram_mlm_loss"] < summary["heldout_before"]["heldout/mlm_loss"]
    )
    assert 0 < after["heldout/mlm_accuracy"] < 1 and 0 < beside["baseline/unigram_mlm_accuracy"] < 1
    assert 0.5 <= beside["baseline/majority_nsp_accuracy"] < 0.7
    assert summary["steps"] == STEPS and summary["tokens"] > 0 and summary["tokens_per_second"] > 0
    blanks = summary["blanks"]
    assert len(blanks["random"]) == 3 and 0 <= blanks["right"] <= blanks["candidates"] <= 256
    assert all(len(blank["guesses"]) == 5 and "____" in blank["text"] for blank in blanks["random"] + blanks["surest"])
    assert all(blank["guesses"][0][0] == blank["answer"] for blank in blanks["surest"])


def test_mlflow_has_pictures_and_a_description_of_the_run(config: Pretrain, undisturbed: tuple[dict, History]) -> None:
    summary, logged = undisturbed
    assert_pictures_show(logged, summary)
    assert_end_pictures_show(summary)
    mlm, nsp = pictures("world-1", logged)[LEARNING_CURVE].axes
    (training, heldout, untrained, unigram), before = mlm.get_lines(), summary["heldout_before"]
    assert (
        dict(zip(*training.get_data(), strict=True)) == logged["train/mlm_loss"] and len(training.get_xdata()) == STEPS
    )
    assert dict(zip(*heldout.get_data(), strict=True)) == logged["heldout/mlm_loss"] and list(heldout.get_xdata()) == [
        0,
        50,
        100,
        120,
    ]
    assert (
        untrained.get_ydata()[0] == before["heldout/mlm_loss"]
        and unigram.get_ydata()[0] == summary["baselines"]["baseline/unigram_mlm_loss"]
    )
    assert dict(zip(*nsp.get_lines()[0].get_data(), strict=True)) == logged["train/nsp_loss"]
    for name, value in summary["baselines"].items():
        assert logged[f"heldout_{name}"] == {0: value, STEPS: value}

    run = MlflowClient(tracking_uri=summary["mlflow_uri"]).get_run(summary["mlflow_run_id"])
    assert run.info.experiment_id == summary["mlflow_experiment_id"]
    recorded = read_run(run_folder(replace(config, name="world-1")))
    inputs = {one.tags[0].value: one.dataset for one in run.inputs.dataset_inputs}
    assert inputs.keys() == {"training", "evaluation"}
    assert {one.digest for one in inputs.values()} == {recorded["identity"]["corpus.fingerprint"][:36]}
    assert json.loads(inputs["training"].source) == {"uri": recorded["corpus"], "sources": list(config.corpus)}
    said = run.data.tags["mlflow.note.content"]
    assert (
        said.startswith("Pretraining run **world-1**\n")
        and f"| export, when it is done | {summary['export']} |" in said
        and "| held-out MLM loss | " in said
    )
    assert run.data.tags["command"] and run.data.tags["mlflow.source.name"] and "stream/rows_crc32" in run.data.metrics


def test_a_second_driver_is_refused(config: Pretrain, undisturbed: tuple[dict, History], refused: list[str]) -> None:
    assert f"run {run_folder(replace(config, name='world-1'))} is being trained already by job " in refused[0]


def test_several_epochs_are_one_sequence(undisturbed: tuple[dict, History]) -> None:
    epochs = undisturbed[1]["stream/epoch"]
    assert epochs[1] == 0 and epochs[STEPS] >= 2


def test_a_finished_run_is_only_summarised_again(config: Pretrain, undisturbed: tuple[dict, History]) -> None:
    lines: list[str] = []
    assert pretrain(replace(config, name="world-1"), lines.append) == undisturbed[0]
    assert "run world-1 is finished; another --name, --seed or setting starts another run" in lines


def test_a_run_with_other_settings_is_refused(config: Pretrain, undisturbed: tuple[dict, History]) -> None:
    with pytest.raises(
        ConfigError, match="run world-1 was started with other settings: seed was 0 and is now 1; choose another --name"
    ):
        pretrain(replace(config, name="world-1", seed=1), print)
    with pytest.raises(
        ConfigError,
        match="steps was 120 and is now 240 .steps may grow only in a run of one phase with schedule:constant-rate",
    ):
        pretrain(replace(config, name="world-1", steps=240), print)


# Below, a run of two that is killed is compared row by row, and a killed driver's three in the same way
@pytest.mark.long
@pytest.mark.parametrize("world", [2, 3, 4])
def test_every_world_sees_the_same_batches_and_losses(
    config: Pretrain, undisturbed: tuple[dict, History], world: int
) -> None:
    summary = pretrain(replace(config, name=f"world-{world}", workers=world), print)
    assert summary["workers"] == world
    assert_same_training(undisturbed[1], history(config, summary))


@pytest.mark.long
def test_text_vectors_have_the_same_losses_in_every_world(config: Pretrain) -> None:
    sampling = replace(config.sampling, pairs=TwoCrops())
    vectors = replace(config, steps=12, objective=Contrastive(), sampling=sampling, checkpoint=Checkpoints(every=6))
    one, three = (pretrain(replace(vectors, name=f"vectors-{world}", workers=world), print) for world in (1, 3))
    logged = [history(vectors, summary) for summary in (one, three)]
    for key in ("train/contrastive_loss", "heldout/contrastive_loss", "train/gradient_norm"):
        assert logged[1][key] == pytest.approx(logged[0][key], rel=1e-5), key
    assert logged[1]["stream/rows_crc32"] == logged[0]["stream/rows_crc32"]
    assert one["blanks"] is None and one["loss_by_frequency"] == [] and one["baselines"] == three["baselines"]
    assert "held-out right texts found" in summary_text(one) and "MLM" not in summary_text(one)
    assert api.load(one["export"]).embed(["kar mist", "lond"]).shape == (2, 32)


@pytest.mark.long
def test_given_pairs_have_the_same_losses_in_every_world_and_after_a_kill(config: Pretrain, tmp_path: Path) -> None:
    """Pairs with up to three hard negatives, of which each epoch draws two, from a table to the export."""
    texts = [text_of(number) for number in range(120)]
    rows = [
        {"query": text[:40], "positive": text[60:150], "negatives": [texts[n - k][150:220] for k in range(n % 4)]}
        for n, text in enumerate(texts)
    ]
    table = tmp_path / "pairs.jsonl"
    table.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    sampling = replace(config.sampling, pairs=GivenPairs(negatives=2))
    given = replace(config, corpus=(f"{table}::format=pairs",), steps=24, objective=Contrastive(), sampling=sampling)
    one, two, four = (pretrain(replace(given, name=f"given-{world}", workers=world), print) for world in (1, 2, 4))
    stopped = replace(given, name="given-killed", workers=2, checkpoint=Checkpoints(every=6))
    with killing(stopped, 6, kill_a_worker):
        killed = pretrain(stopped, print)
    first, *others = [history(given, summary) for summary in (one, two, four, killed)]
    for logged in others:
        for key in ("train/contrastive_loss", "heldout/contrastive_loss"):
            assert logged[key] == pytest.approx(first[key], rel=1e-5), key
        assert logged["stream/rows_crc32"] == first["stream/rows_crc32"]
    with pytest.raises(ConfigError, match=r"^sampling.pairs \(NextSentence\) needs a corpus of documents, but"):
        pretrain(replace(config, corpus=given.corpus, name="masked"), print)


@pytest.mark.long
def test_a_teachers_vectors_give_the_same_losses_in_every_world_and_after_a_kill(
    config: Pretrain, undisturbed: tuple[dict, History]
) -> None:
    """The student has another width than its teacher, so a linear layer is trained too."""
    summary, _ = undisturbed
    taught = replace(
        config,
        steps=12,
        model=replace(config.model, width=16),
        objective=DistilledVectors(teacher=summary["export"]),
        sampling=replace(config.sampling, pairs=Sentences(most=2)),
    )
    one, two = (pretrain(replace(taught, name=f"taught-{world}", workers=world), print) for world in (1, 2))
    stopped = replace(taught, name="taught-killed", workers=2, checkpoint=Checkpoints(every=4))
    with killing(stopped, 4, kill_a_worker):
        killed = pretrain(stopped, print)
    first, *others = [history(taught, found) for found in (one, two, killed)]
    for logged in others:
        for key in ("train/vectors_loss", "heldout/vectors_loss", "train/gradient_norm"):
            assert logged[key] == pytest.approx(first[key], rel=1e-5), key
        assert logged["stream/rows_crc32"] == first["stream/rows_crc32"]
    assert "held-out vector loss" in summary_text(one) and one["teacher"] == summary["export"]
    student, teacher = (api.load(found["export"]) for found in (one, summary))
    assert student.embed(["kar mist"]).shape == teacher.embed(["kar mist"]).shape == (1, 32)


def test_a_damaged_shard_is_named_at_once(config: Pretrain, undisturbed: tuple[dict, History], tmp_path: Path) -> None:
    shutil.copytree(Path(config.output) / "corpora", tmp_path / "corpora")
    shutil.copytree(Path(config.output) / "vocabularies", tmp_path / "vocabularies")
    shard = next((tmp_path / "corpora").rglob("train/*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-100])
    lines: list[str] = []
    with pytest.raises(DataError, match=f"{shard} cannot be read .* and prepare it again"):
        pretrain(replace(config, name="damaged", output=str(tmp_path)), lines.append)
    assert not any(line.startswith("step ") for line in lines)


@pytest.mark.long  # its parts: tests/unit/train/test_initial.py, tests/unit/text/test_cooccurrence.py
def test_word_embeddings_are_counted_once_and_started_from(config: Pretrain) -> None:
    lines: list[str] = []
    counted = replace(
        config, name="counted", word_embeddings="cooccurrence", steps=2, optimizer=AdamW(learning_rate=1e-9)
    )
    summary = pretrain(counted, lines.append)
    (said,) = [line for line in lines if line.startswith("word embeddings: ") and " entries in " in line]
    folder = Path(said.rsplit(", in ", 1)[1])
    words = load_file(folder / "words.safetensors")["words"]
    seen = words.any(1)
    assert f" {seen.sum():,} of {len(words)} entries" in said and 30 < seen.sum() < len(words)
    trained = load_file(Path(summary["export"]) / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    assert torch.allclose(trained[seen], words[seen], atol=1e-6)
    assert read_run(run_folder(counted))["identity"]["optimizer.word_embeddings_rate"] == 0.1

    with pytest.raises(
        ConfigError,
        match="run counted was started with other settings: .*word_embeddings was 'cooccurrence' and is now 'random'",
    ):
        pretrain(replace(counted, word_embeddings="random"), print)
    stream = stream_settings(counted, find_corpus(counted, print), None, lines.append)
    lines.clear()
    assert (
        counted_embeddings(
            stream.corpus, CachedTokenizer(stream.vocabulary), counted.model.width, counted.output, lines.append
        )
        == str(folder)
        and not lines
    )
    (folder / "words.safetensors").write_bytes(b"cut")
    with pytest.raises(
        DataError, match=r"word embeddings .* are damaged \(.*\); delete this folder to compute them again"
    ):
        pretrain(replace(counted, name="counted-damaged"), print)
    assert read_run(run_folder(replace(counted, name="counted-damaged"))) is None

    # stopped at its last checkpoint, the run needs no counts
    Path(run_folder(counted), "summary.json").unlink()
    start = read_start(with_words_rate(counted), stream, None)
    assert (start.done, start.continuing) == (2, True)
    assert word_embeddings(counted, stream, start, print) is None


def test_pretraining_continues_from_a_published_model(
    config: Pretrain, undisturbed: tuple[dict, History], tmp_path: Path
) -> None:
    summary, lines = undisturbed[0], []
    again = replace(
        config,
        name="continued",
        init=summary["export"],
        model=Model(),
        steps=20,
        optimizer=AdamW(learning_rate=1e-3),
        vocabulary=VocabularySettings(),
    )
    with pytest.raises(
        ConfigError, match=r"^sampling.maximum_length .128. must be at most model.maximum_positions .32."
    ):
        pretrain(replace(again, sampling=Sampling()), print)
    continued = pretrain(again, lines.append)
    assert any(line.startswith(f"init: weights of {summary['export']}, ") for line in lines)
    # The exported weights are those that were measured last: on the same held-out words and rows they give the same
    # figures.
    before = {name: value for name, value in continued["heldout_before"].items() if name != "heldout/maximum_length"}
    assert before == pytest.approx(summary["heldout_after"], abs=1e-5)
    assert {"heldout/bits_per_byte", "heldout/nats_per_word"} <= continued["heldout_after"].keys()
    assert history(config, continued)["heldout/bits_per_byte"].keys() == {0, 20}
    other = shutil.copytree(summary["export"], tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    save_file(
        weights | {"cls.predictions.bias": weights["cls.predictions.bias"] + 1},
        other / "model.safetensors",
        {"format": "pt"},
    )
    (other / "manifest.json").unlink()  # it has the sums of the files as they were
    with pytest.raises(
        ConfigError,
        match="run continued was started with other settings: init.fingerprint was '[0-9a-f]{64}' and is "
        "now '[0-9a-f]{64}'",
    ):
        pretrain(replace(again, init=str(other)), print)


@pytest.mark.long
def test_a_constant_rate_may_go_on_but_not_back(config: Pretrain) -> None:
    short = replace(config, name="growing", steps=20, schedule=ConstantRate(warmup_steps=5))
    assert pretrain(short, print)["steps"] == 20
    lines: list[str] = []
    assert pretrain(replace(short, steps=40), lines.append)["steps"] == 40
    assert "continuing after step 20" in lines
    Path(run_folder(short), "summary.json").unlink()  # as if it had been stopped at step 40
    with pytest.raises(
        ConfigError, match="steps .30. must be at least 40, the steps that run growing has done: set more steps"
    ):
        pretrain(replace(short, steps=30), print)


@pytest.mark.long  # tests/unit/train/test_phases.py has the same without Ray
def test_a_run_that_has_decayed_grows_from_where_it_began_to(config: Pretrain) -> None:
    short = replace(
        config,
        name="decaying",
        steps=20,
        schedule=WarmupStableDecay(warmup_steps=5, decay_share=0.25),
        checkpoint=Checkpoints(every=50, keep=1),
    )
    decayed = pretrain(short, print)
    lines: list[str] = []
    longer = replace(short, steps=30)
    grown = pretrain(longer, lines.append)
    assert (
        "run decaying: going back from step 20 to 15, where its learning rate began to decay; "
        "from there the run is tracked as a new MLflow run" in lines
    )
    rates = history(longer, grown)["train/learning_rate"]
    assert list(rates) == list(range(16, 31)) and [rates[step] for step in (16, 22, 23, 30)] == pytest.approx(
        [1e-2, 1e-2, 1e-2 * 8 / 9, 1e-2 / 9]
    )
    tags = MlflowClient(tracking_uri=grown["mlflow_uri"]).get_run(grown["mlflow_run_id"]).data.tags
    assert tags["continues"] == f"{decayed['mlflow_run_id']} from step 15"


def train_workers() -> list[psutil.Process]:
    """Return the processes of Ray Train workers that descend from this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            found += [process] if "RayTrainWorker" in " ".join(process.cmdline()) else []
    return found


def step_of(line: str) -> int:
    return int(line.split()[1].split("/")[0]) if line.startswith("step ") else 0


@contextmanager
def killing(config: Pretrain, step: int, kill: Callable[[], None]) -> Iterator[None]:
    """Call `kill` as soon as the run has a checkpoint after `step` or later; what a driver prints comes up to a second
    later, when a small run may be over.
    """
    stop, called = threading.Event(), threading.Event()

    def wait() -> None:
        while not stop.wait(0.01):
            if any(
                int(manifest.parent.name.removeprefix("step-")) >= step
                for manifest in Path(run_folder(config)).glob("checkpoints/step-*/manifest.json")
            ):
                kill()
                called.set()
                return

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert called.is_set(), f"the run ended without a checkpoint from step {step} on"


def kill_a_worker() -> None:
    train_workers()[0].send_signal(signal.SIGKILL)


@pytest.mark.long  # a worker of two phases is killed below, and a driver
def test_a_killed_worker_changes_nothing(config: Pretrain, undisturbed: tuple[dict, History]) -> None:
    two = replace(config, name="killed-worker", workers=2)
    lines: list[str] = []
    with killing(two, 20, kill_a_worker):
        summary = pretrain(two, lines.append)
    assert summary["workers"] == 2 and any(line.startswith("continuing after step ") for line in lines), lines
    assert_same_training(undisturbed[1], history(config, summary))


def rows_by_hand(config: Pretrain) -> dict[int, float]:
    """Step -> CRC of all rows up to it, from the windows in their order: the second phase begins at the window after
    the first one's last.
    """
    stream, state, found = stream_settings(config, find_corpus(config, print), None, print), State(), {}
    for phase in config.all_phases:
        tables = rows_after(settings_for_phase(stream, phase), cursor_for_phase(state.cursor, phase, phase.first))
        rows = pa.concat_tables([table for table, _ in islice(tables, 60)])
        size = phase.batch.rows_per_slot
        for step in range(phase.first, phase.end):
            starts = range(offset(step - phase.first, phase.batch), offset(step + 1 - phase.first, phase.batch), size)
            state = advance(
                state,
                [make_slot(rows.slice(start, size), place, lambda _: {}).record for place, start in enumerate(starts)],
            )
            found[state.step] = float(state.crc32)
    return found


@pytest.mark.long
def test_a_growing_batch_and_two_phases_are_one_run(config: Pretrain) -> None:
    """Run on two workers, one of which is killed in the second phase; all ports are bound to 127.0.0.1."""
    two = replace(
        config,
        name="two-phases",
        workers=2,
        steps=90,
        sampling=Sampling(maximum_length=16),
        batch=Batch(rows_per_step=16, rows_per_slot=4, warmup_steps=10, warmup_rows=8),
        phases=TwoPhases(share=2 / 3, maximum_length=32, rows_per_step=8, rows_per_slot=2),
    )
    lines: list[str] = []
    addresses: dict[str, set[str]] = {}

    def look_and_kill() -> None:
        addresses.update(listening(os.getpid()))
        kill_a_worker()

    with killing(two, 31, look_and_kill):
        summary = pretrain(two, lines.append)
    assert any("RayTrainWorker" in name for name in addresses) and any("gcs_server" in name for name in addresses)
    assert set().union(*addresses.values()) == {"127.0.0.1"}, addresses
    logged = history(two, summary)
    continued = [line for line in lines if line.startswith("continuing after step ")]
    assert (
        "steps 1 to 30: sequences of at most 16 tokens" in lines
        and "steps 31 to 90: sequences of at most 32 tokens" in lines
    )
    assert continued[0] == "continuing after step 30" and len(continued) == 2 and continued[1] != continued[0]
    assert logged["stream/rows_crc32"] == rows_by_hand(two)
    assert logged["heldout/maximum_length"] == {0: 16, 30: 16, 50: 32, 90: 32} and summary["maximum_length"] == 32
    assert [recompute_rows(run_folder(two), step, 7)[0].phase.sampling.maximum_length for step in (30, 31)] == [16, 32]


def flags(config: Pretrain) -> list[str]:
    """Return `config` as a command line."""
    return [
        *("--corpus", config.corpus[0], "--output", config.output, "--steps", str(STEPS)),
        *(
            "--prepare.window-characters",
            "6000",
            "--prepare.piece-characters",
            "1000",
            "--prepare.heldout-share",
            "0.1",
            "--prepare.near-duplicates",
            "None",
        ),
        *("--vocabulary.size", "150", "--sampling.maximum-length", "32", "--model.maximum-positions", "32"),
        *(
            "--model.layers",
            "1",
            "--model.width",
            "32",
            "--model.feed-forward",
            "64",
            "--batch.rows-per-step",
            "16",
            "--batch.rows-per-slot",
            "4",
        ),
        *("--evaluation.every", "50", "--evaluation.rows", "64"),
        *("--checkpoint.every", "20", "--checkpoint.keep", "2", "--tracking.every", "1"),
        *(
            "--placement.precision",
            "float32",
            "--placement.compile",
            "off",
            "--placement.device",
            "cpu",
            "--placement.threads",
            "1",
        ),
        *("optimizer:adam-w", "--optimizer.learning-rate", "1e-2"),
    ]


def test_a_killed_driver_continues_on_another_world(config: Pretrain, undisturbed: tuple[dict, History]) -> None:
    command = [
        sys.executable,
        "jobs/pretrain.py",
        "bert-tiny",
        "--name",
        "killed-driver",
        "--workers",
        "1",
        *flags(config),
    ]
    environment = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address, "PYTHONUNBUFFERED": "1"}
    same = replace(config, name="killed-driver", workers=3)
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as driver,
        killing(same, 20, driver.kill),
    ):
        seen, _ = driver.communicate(timeout=180)
    assert driver.returncode == -signal.SIGKILL, seen
    lines: list[str] = []
    summary = pretrain(same, lines.append)
    assert "run killed-driver: continuing, 120 steps on 3 CPU workers" in lines
    assert not any(
        line.startswith("MLflow has no loss") for line in lines
    )  # they were sent before the checkpoint was published
    assert_pictures_show(history(config, summary), summary)  # of the whole run, not only of what the second driver saw
    assert_same_training(undisturbed[1], history(config, summary))
