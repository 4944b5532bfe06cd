"""The job's own main on a small corpus: what is killed goes on, on any number of workers, as if it never was, and has
the rows and losses of the loop without Ray.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
import ray
import torch
from mlflow.tracking import MlflowClient
from safetensors.torch import load_file, save_file

from pipeline import api
from pipeline.command_line.command import Command
from pipeline.config.audit import Audit
from pipeline.config.data import GivenPairs, Sampling, Sentences, VocabularySettings
from pipeline.config.jobs import Pretrain, with_words_rate
from pipeline.config.model import Model
from pipeline.config.objective import Contrastive, DistilledVectors
from pipeline.config.phases import SeveralPhases
from pipeline.config.training import AdamW, Batch, Checkpoints
from pipeline.corpus.embeddings import counted_embeddings
from pipeline.corpus.order import cursor_for_phase, offset
from pipeline.corpus.prepared import load_corpus, read_window
from pipeline.corpus.stream import settings_for_phase
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.objectives.table import Pretraining
from pipeline.presets.table import PRESETS
from pipeline.saved.run import read_run, run_folder
from pipeline.show.rows import text_of as shown_text
from pipeline.show.run_end import CORPUS, LOSS, as_png, end_pictures
from pipeline.show.seen import recompute_rows, rows_after
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.tracking.curves import DPI, LEARNING_CURVE, THROUGHPUT, pictures
from pipeline.train.building import build_module
from pipeline.train.checkpoint import State
from pipeline.train.loop import advance
from pipeline.train.run_data import find_corpus, stream_settings
from pipeline.train.slots import make_slot
from pipeline.train.start import read_start, word_embeddings
from pipeline.train.summary import summary_text
from pipeline.workflows.audit import audit
from pipeline.workflows.pretrain import pretrain
from tests.conftest import CPU, Training, text_of
from tests.ray.listening import listening

pytestmark = pytest.mark.usefixtures("local_ray")

STEPS, EVALUATED, SAVED = 60, 25, 10
LOSS_TOLERANCE = 1e-4  # float32 sums in another order, after 60 updates
OPTIONS = f"""--steps {STEPS} --prepare.window-characters 6000 --prepare.piece-characters 1000
    --prepare.heldout-share 0.1 --prepare.near-duplicates None --vocabulary.size 150 --sampling.maximum-length 32
    --model.layers 1 --model.width 32 --model.feed-forward 64 --model.maximum-positions 32
    --batch.rows-per-step 16 --batch.rows-per-slot 4 optimizer:adam-w --optimizer.learning-rate 1e-2
    --evaluation.every {EVALUATED} --evaluation.rows 64 --checkpoint.every {SAVED} --checkpoint.keep 2
    --tracking.every 1 --placement.precision float32 --placement.compile off --placement.device cpu
    --placement.threads 1 --placement.data-cpus 1""".split()
"""36 words repeat themselves in the corpus, so near duplicates stay."""
WORD = r"\w+"
History = dict[str, dict[int, float]]


@pytest.fixture(scope="module")
def options(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [*OPTIONS, "--corpus", str(small_corpus), "--output", str(tmp_path_factory.mktemp("output"))]


@pytest.fixture(scope="module")
def config(options: list[str]) -> Pretrain:
    command = Command(prog="", about="", settings=Pretrain)
    return command.parse(command.words(options), PRESETS["bert-tiny"])


def history(summary: dict[str, Any]) -> History:
    """Return metric -> step -> value of a run from its MLflow database; fail if a step occurs twice."""
    client = MlflowClient(tracking_uri=summary["mlflow_uri"])
    found: History = {}
    for key in client.get_run(summary["mlflow_run_id"]).data.metrics:
        points = client.get_metric_history(summary["mlflow_run_id"], key)
        found[key] = {point.step: point.value for point in points}
        assert len(found[key]) == len(points), f"{key} holds a step twice"
    return found


class AsWorker(Training):
    """The loop without Ray, with the initial weights of a worker."""

    def module(self, config: Pretrain) -> Pretraining:
        return build_module(config, self.vocabulary.size, CPU, "float32")


@pytest.fixture(scope="module")
def undisturbed(config: Pretrain, one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Metrics of the same training in this process, which nothing stops."""
    stream, logged = stream_settings(config, find_corpus(config, print), None, print), dict[int, dict[str, float]]()
    padded = replace(config, model=config.model.for_padding(stream.vocabulary.pad_id))
    folder = tmp_path_factory.mktemp("undisturbed")
    AsWorker(corpus=stream.corpus, vocabulary=stream.vocabulary).run(padded, folder, logged)
    names = {name for metrics in logged.values() for name in metrics}
    return {name: {step: metrics[name] for step, metrics in logged.items() if name in metrics} for name in names}


def assert_same_training(undisturbed: History, other: History) -> None:
    for key in ("train/mlm_loss", "train/nsp_loss", "train/gradient_norm", "stream/rows_crc32"):
        assert sorted(other[key]) == sorted(undisturbed[key]) == list(range(1, STEPS + 1))
    assert other["stream/rows_crc32"] == undisturbed["stream/rows_crc32"]
    for key in ("train/mlm_loss", "train/nsp_loss", "heldout/mlm_loss"):
        assert other[key] == pytest.approx(undisturbed[key], abs=LOSS_TOLERANCE), key


def train_workers() -> list[psutil.Process]:
    """Return the processes of Ray Train workers that descend from this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            found += [process] if "RayTrainWorker" in " ".join(process.cmdline()) else []
    return found


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


@dataclass(frozen=True, kw_only=True)
class Continued:
    """A run whose driver is killed, and that this process continues on another number of workers."""

    config: Pretrain
    summary: dict[str, Any]
    history: History
    lines: list[str]
    refused: list[str]
    """Errors of a driver that is started while this process trains."""
    addresses: dict[str, set[str]]
    """Name of a process -> addresses on which it listens, just before the driver is killed."""


@pytest.fixture(scope="module")
def continued(local_ray: None, options: list[str], config: Pretrain) -> Continued:
    two = replace(config, name="killed-driver", workers=2)
    command = [sys.executable, "jobs/pretrain.py", "bert-tiny", "--name", str(two.name), "--workers", "1", *options]
    environment = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address, "PYTHONUNBUFFERED": "1"}
    addresses: dict[str, set[str]] = {}

    def look_and_kill() -> None:
        addresses.update(listening(os.getpid()))
        driver.kill()

    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as driver,
        killing(two, SAVED, look_and_kill),
    ):
        seen, _ = driver.communicate(timeout=180)
    assert driver.returncode == -signal.SIGKILL, seen
    lines: list[str] = []
    refused: list[str] = []

    def and_start_another(line: str) -> None:
        lines.append(line)
        if line.startswith("step ") and not refused:
            with pytest.raises(ConfigError) as error:
                pretrain(two, print)
            refused.append(str(error.value))

    summary = pretrain(two, and_start_another)
    return Continued(
        config=two, summary=summary, history=history(summary), lines=lines, refused=refused, addresses=addresses
    )


def test_a_killed_driver_continues_on_another_world(continued: Continued, undisturbed: History) -> None:
    assert f"run killed-driver: continuing, {STEPS} steps on 2 CPU workers" in continued.lines
    (after,) = (line for line in continued.lines if line.startswith("continuing after step "))
    assert SAVED <= int(after.split()[-1]) < STEPS
    # MLflow has all losses, because they were sent before the checkpoint was published
    assert not any(line.startswith("MLflow has no loss") for line in continued.lines)
    assert_same_training(undisturbed, continued.history)


@pytest.mark.second  # beside it: tests/unit/audit/test_search.py
def test_an_audit_finds_texts_at_the_steps_of_several_epochs_and_of_both_worlds(
    continued: Continued, tmp_path: Path
) -> None:
    folder = run_folder(continued.config)
    corpus = load_corpus(read_run(folder)["corpus"])
    text = read_window(corpus, corpus.train[0])["text"][0].as_py()
    (tmp_path / "test.txt").write_text("\n".join(["These are words of no text.", *text.split(". ")]))
    about = audit(Audit(run=folder, text=(str(tmp_path / "test.txt"),)), print)["test.txt"]
    shown: list[tuple[int, int, str, int]] = []
    for step in range(1, STEPS + 1):
        for place, seen in enumerate(recompute_rows(folder, step, 0, continued.config.batch.rows_per_step)):
            answers = dict(zip(seen.row["masked_positions"], seen.row["masked_labels"]))
            ids = [answers.get(at, id) for at, id in enumerate(seen.row["ids"])]
            plain = shown_text(seen.vocabulary, [id for id in ids if id in seen.vocabulary.ordinary_ids])
            shown.append((step, place, f" {' '.join(re.findall(WORD, plain))} ", seen.row["epoch"]))
    epochs = set[int]()
    for found in about["found"]:
        line = f" {' '.join(re.findall(WORD, found['text'].lower()))} "
        expected = [(step, place) for step, place, row, _ in shown if line in row]
        assert [(sight["step"], sight["row"]) for sight in found["sights"]] == expected
        epochs |= {epoch for step, place, row, epoch in shown if line in row}
    assert about["step"] == STEPS and about["not_seen"] >= 1 and epochs >= {1, 2}
    client = MlflowClient(tracking_uri=continued.summary["mlflow_uri"])
    assert "audit.json" in [file.path for file in client.list_artifacts(continued.summary["mlflow_run_id"])]


def test_processes_listen_on_this_machine_alone(continued: Continued) -> None:
    names = continued.addresses
    assert any("RayTrainWorker" in name for name in names) and any("gcs_server" in name for name in names)
    assert set().union(*names.values()) == {"127.0.0.1"}, names


def test_it_learns_and_summarises_what_it_learnt(continued: Continued) -> None:
    summary = continued.summary
    after, beside = summary["heldout_after"], summary["baselines"]
    assert (
        after["heldout/mlm_loss"] < beside["baseline/unigram_mlm_loss"] < summary["heldout_before"]["heldout/mlm_loss"]
    )
    assert 0 < after["heldout/mlm_accuracy"] < 1 and 0 < beside["baseline/unigram_mlm_accuracy"] < 1
    assert 0.5 <= beside["baseline/majority_nsp_accuracy"] < 0.7
    assert summary["steps"] == STEPS and summary["tokens"] > 0 and summary["tokens_per_second"] > 0
    blanks = summary["blanks"]
    assert len(blanks["random"]) == 10 and 0 <= blanks["right"] <= blanks["candidates"] == blanks["plain"] <= 256
    assert all(len(blank["guesses"]) == 5 and "____" in blank["text"] for blank in blanks["random"] + blanks["surest"])
    assert all(blank["guesses"][0][0] == blank["answer"] for blank in blanks["surest"])
    assert any("tokens/s" in line for line in continued.lines)


def assert_pictures_show(logged: History, summary: dict[str, Any]) -> None:
    """Assert that the pictures among the run's artifacts are drawn from its metrics in MLflow."""
    run = MlflowClient(tracking_uri=summary["mlflow_uri"]).get_run(summary["mlflow_run_id"])
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    drawn = pictures(run.info.run_name, logged)
    assert drawn.keys() == {LEARNING_CURVE, THROUGHPUT}
    for path, figure in drawn.items():
        figure.savefig(written := BytesIO(), dpi=DPI)
        assert (folder / path).read_bytes() == written.getvalue(), path


def assert_end_pictures_show(summary: dict[str, Any]) -> None:
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


def test_mlflow_has_pictures_and_a_description_of_the_whole_run(continued: Continued) -> None:
    """The second driver draws what the first one logged, too."""
    config, summary, logged = continued.config, continued.summary, continued.history
    assert_pictures_show(logged, summary)
    assert_end_pictures_show(summary)
    mlm, nsp = pictures(str(config.name), logged)[LEARNING_CURVE].axes
    (training, heldout, untrained, unigram), before = mlm.get_lines(), summary["heldout_before"]
    assert (
        dict(zip(*training.get_data(), strict=True)) == logged["train/mlm_loss"] and len(training.get_xdata()) == STEPS
    )
    assert dict(zip(*heldout.get_data(), strict=True)) == logged["heldout/mlm_loss"] and list(heldout.get_xdata()) == [
        *range(0, STEPS, EVALUATED),
        STEPS,
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
    recorded = read_run(run_folder(config))
    inputs = {one.tags[0].value: one.dataset for one in run.inputs.dataset_inputs}
    assert inputs.keys() == {"training", "evaluation"}
    assert {one.digest for one in inputs.values()} == {recorded["identity"]["corpus.fingerprint"][:36]}
    assert json.loads(inputs["training"].source) == {"uri": recorded["corpus"], "sources": list(config.corpus)}
    said = run.data.tags["mlflow.note.content"]
    assert (
        said.startswith(f"Pretraining run **{config.name}**\n")
        and f"| export, when it is done | {summary['export']} |" in said
        and "| held-out MLM loss | " in said
    )
    assert run.data.tags["command"] and run.data.tags["mlflow.source.name"] and "stream/rows_crc32" in run.data.metrics


def test_a_second_driver_is_refused(continued: Continued) -> None:
    assert f"run {run_folder(continued.config)} is being trained already by job " in continued.refused[0]


def test_several_epochs_are_one_sequence(continued: Continued) -> None:
    epochs = continued.history["stream/epoch"]
    assert epochs[1] == 0 and epochs[STEPS] >= 2


def test_a_finished_run_is_only_summarised_again(continued: Continued) -> None:
    lines: list[str] = []
    assert pretrain(continued.config, lines.append) == continued.summary
    assert "run killed-driver is finished; another --name, --seed or setting starts another run" in lines


def test_a_run_with_other_settings_is_refused(continued: Continued) -> None:
    with pytest.raises(
        ConfigError,
        match="run killed-driver was started with other settings: seed was 0 and is now 1; choose another --name",
    ):
        pretrain(replace(continued.config, seed=1), print)
    lines = list[str]()
    with pytest.raises(ConfigError, match=rf"started with other settings: steps was {STEPS} and is now 2 "):
        pretrain(replace(continued.config, tokens="800"), lines.append)  # rows have about 25 tokens
    assert lines[-2:] == ["counting the rows of the text for tokens (800)", "tokens (800): 2 steps"]


@pytest.mark.long  # its parts: the killed driver above, tests/unit/train/test_loop.py
def test_a_killed_worker_of_three_changes_nothing(config: Pretrain, undisturbed: History) -> None:
    three = replace(config, name="killed-worker", workers=3)
    lines: list[str] = []
    with killing(three, SAVED, kill_a_worker):
        summary = pretrain(three, lines.append)
    assert summary["workers"] == 3 and any(line.startswith("continuing after step ") for line in lines), lines
    assert_same_training(undisturbed, history(summary))


def rows_by_hand(config: Pretrain) -> dict[int, float]:
    """Step -> CRC of all rows up to it, from the windows in their order: each phase begins at the window after the last
    one of the phase before.
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


@pytest.mark.long  # beside it: tests/unit/train/test_phases.py, tests/unit/train/test_one_process.py
def test_a_growing_batch_and_three_phases_are_one_run(config: Pretrain) -> None:
    """The workers go on from phase to phase; one that is killed in the second phase changes nothing."""
    phases = replace(
        config,
        name="three-phases",
        workers=2,
        steps=120,
        sampling=Sampling(maximum_length=16),
        batch=Batch(rows_per_step=16, rows_per_slot=4, warmup_steps=10, warmup_rows=8),
        phases=SeveralPhases(
            parts=(1 / 6, 2 / 3, 1 / 6),
            maximum_lengths=(32, 24),
            rows_per_step=(4, 12),
            rows_per_slot=(2, 4),
            masking_shares=(0.15, 0.3),
        ),
    )
    lines: list[str] = []
    with killing(phases, 25, kill_a_worker):
        summary = pretrain(phases, lines.append)
    logged = history(summary)
    first, second, continuing, again, third = (
        line for line in lines if line.startswith(("steps ", "continuing after step "))
    )
    assert first == "steps 1 to 20: sequences of at most 16 tokens, 15% masked"
    assert second == again == "steps 21 to 100: sequences of at most 32 tokens, 15% masked"
    assert 25 <= int(continuing.removeprefix("continuing after step ")) < 100
    assert third == "steps 101 to 120: sequences of at most 24 tokens, 30% masked"
    assert logged["stream/rows_crc32"] == rows_by_hand(phases)
    assert logged["heldout/maximum_length"] == {0: 16, 20: 16} | dict.fromkeys((25, 50, 75, 100), 32) | {120: 24}
    assert summary["maximum_length"] == 24
    steps = {20: 16, 21: 32, 100: 32, 101: 24}
    assert steps == {
        step: recompute_rows(run_folder(phases), step, 3)[0].phase.sampling.maximum_length for step in steps
    }


@pytest.mark.second
def test_a_damaged_shard_is_named_at_once(config: Pretrain, undisturbed: History, tmp_path: Path) -> None:
    shutil.copytree(Path(config.output) / "corpora", tmp_path / "corpora")
    shutil.copytree(Path(config.output) / "vocabularies", tmp_path / "vocabularies")
    shard = next((tmp_path / "corpora").rglob("train/*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-100])
    lines: list[str] = []
    with pytest.raises(DataError, match=f"{shard} cannot be read .* and prepare it again"):
        pretrain(replace(config, name="damaged", output=str(tmp_path)), lines.append)
    assert not any(line.startswith("step ") for line in lines)


@pytest.mark.long  # beside it: tests/unit/train/test_initial.py, tests/unit/train/test_start.py
def test_pretraining_continues_from_a_published_model(config: Pretrain, continued: Continued, tmp_path: Path) -> None:
    summary, lines = continued.summary, []
    again = replace(
        config,
        name="continued",
        init=summary["export"],
        model=Model(),
        steps=4,
        optimizer=AdamW(learning_rate=1e-3),
        vocabulary=VocabularySettings(),
    )
    with pytest.raises(
        ConfigError, match=r"^sampling.maximum_length .128. must be at most model.maximum_positions .32."
    ):
        pretrain(replace(again, sampling=Sampling()), print)
    trained = pretrain(again, lines.append)
    assert any(line.startswith(f"init: weights of {summary['export']}, ") for line in lines)
    # The exported weights are those that were measured last: on the same held-out words and rows they give the same
    # figures.
    before = {name: value for name, value in trained["heldout_before"].items() if name != "heldout/maximum_length"}
    assert before == pytest.approx(summary["heldout_after"], abs=1e-5)
    assert {"heldout/bits_per_byte", "heldout/nats_per_word"} <= trained["heldout_after"].keys()
    assert history(trained)["heldout/bits_per_byte"].keys() == {0, 4}
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


def assert_world_and_kill_change_nothing(config: Pretrain, loss: str) -> dict[str, Any]:
    """Assert that one worker, and two of which one is killed, have the same rows and losses; return a summary."""
    one = pretrain(replace(config, name=f"{config.name}-1"), print)
    two = replace(config, name=f"{config.name}-2", workers=2)
    with killing(two, two.checkpoint.every, kill_a_worker):
        killed = pretrain(two, print)
    logged = [history(summary) for summary in (one, killed)]
    for key in (f"train/{loss}", f"heldout/{loss}", "train/gradient_norm"):
        assert logged[1][key] == pytest.approx(logged[0][key], rel=1e-5), key
    assert logged[1]["stream/rows_crc32"] == logged[0]["stream/rows_crc32"]
    return one


@pytest.mark.long  # beside it: tests/unit/train/test_contrastive_workers.py, tests/unit/train/test_contrastive_loop.py
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
    given = replace(config, name="given", corpus=(f"{table}::format=pairs",), steps=24, checkpoint=Checkpoints(every=6))
    summary = assert_world_and_kill_change_nothing(
        replace(given, objective=Contrastive(), sampling=sampling), "contrastive_loss"
    )
    assert summary["blanks"] is None and summary["loss_by_frequency"] == []
    assert "held-out right texts found" in summary_text(summary) and "MLM" not in summary_text(summary)
    assert api.load(summary["export"]).embed(["kar mist", "lond"]).shape == (2, 32)


@pytest.mark.long  # beside it: tests/unit/train/test_vector_workers.py, tests/unit/train/test_vector_loop.py
def test_a_teachers_vectors_give_the_same_losses_in_every_world_and_after_a_kill(
    config: Pretrain, continued: Continued
) -> None:
    """The student has another width than its teacher, so a linear layer is trained too."""
    teacher = continued.summary["export"]
    taught = replace(
        config,
        name="taught",
        steps=12,
        model=replace(config.model, width=16),
        objective=DistilledVectors(teacher=teacher),
        sampling=replace(config.sampling, pairs=Sentences(most=2)),
        checkpoint=Checkpoints(every=4),
    )
    summary = assert_world_and_kill_change_nothing(taught, "vectors_loss")
    assert "held-out vector loss" in summary_text(summary) and summary["teacher"] == teacher
    vectors = [api.load(model).embed(["kar mist"]) for model in (summary["export"], teacher)]
    assert vectors[0].shape == vectors[1].shape == (1, 32)


@pytest.mark.long  # its parts: tests/unit/train/test_initial.py, tests/unit/train/test_start.py
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
