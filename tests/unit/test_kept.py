"""Folders that earlier code wrote: they open, answer as before, and are accepted by the commands that continue them."""

import ast
import importlib
import json
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from pipeline.ablation.budget import streams_of, with_token_budget
from pipeline.ablation.command import read_ablate
from pipeline.ablation.variants import variants_of
from pipeline.command_line.command import Command
from pipeline.config.embed import Embed
from pipeline.config.finetune import Finetune
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.config.predict import Predict
from pipeline.corpus.prepared import load_corpus
from pipeline.corpus.stream import StreamSettings
from pipeline.embed import folder
from pipeline.embed.embedding import about as about_vectors
from pipeline.embed.model import describe_on_cpu
from pipeline.embed.texts import text_files
from pipeline.fine_tuned.model import open_tuned
from pipeline.finetune.settings import with_setting
from pipeline.finetune.trial_state import resume_step
from pipeline.finetune.trials import load_or_train, make_trial, result_of
from pipeline.grid.inputs import read_inputs
from pipeline.objectives.table import Pretraining
from pipeline.predict import model
from pipeline.predict.answering import CHARACTERS_PER_PART, about
from pipeline.predict.inputs import inputs_of
from pipeline.predict.parts import Parts, unified
from pipeline.presets.table import PRESETS
from pipeline.reporting import no_op
from pipeline.saved.naming import identifying_settings
from pipeline.saved.run import read_run, settings_of
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.train.building import build_module
from pipeline.train.start import read_start
from tests.conftest import CPU, Training
from tests.kept import answers, commands
from tests.kept.answers import CODE, EXPECTED
from tests.kept.comparing import assert_same
from tests.kept.copying import FOLDERS, copy_folders

SERVING = {
    "pipeline.errors",
    "pipeline.export.inference",
    "pipeline.export.trained",
    "pipeline.predict.answers",
    "pipeline.text.vocabulary_loading",
    "pipeline.train.tuned",
}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    target = tmp_path_factory.mktemp("copies") / "kept"
    return target, copy_folders(target)


@pytest.fixture
def expected(copies: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what was recorded, in the folder with the copies."""
    monkeypatch.chdir(copies[0])
    return copies[1]


@pytest.mark.parametrize("name", answers.PRETRAINED)
def test_a_pretrained_model_answers_as_before(expected: dict[str, Any], name: str) -> None:
    assert_same(answers.pretrained(answers.PRETRAINED[name]), expected["answers"][name])


@pytest.mark.parametrize("name", [*commands.TUNINGS, "moods"])
def test_a_tuned_model_answers_as_before(expected: dict[str, Any], name: str) -> None:
    assert_same(answers.tuned(f"models/{name}"), expected["answers"][f"{name} (tuned)"])


def test_the_bottleneck_adapter_is_loaded(expected: dict[str, Any]) -> None:
    assert Path("models/ratings/adapters.safetensors").exists()
    assert any(
        "adapter" in name for name, _ in open_tuned(str(Path("models/ratings").absolute())).module.named_parameters()
    )


def test_a_search_with_the_index_finds_the_same_texts(expected: dict[str, Any]) -> None:
    graph = Path("vectors/index/vectors.usearch")
    before = graph.stat().st_mtime_ns
    assert_same(answers.found(), expected["answers"]["search"])
    assert graph.stat().st_mtime_ns == before, "the index was built anew"


def test_models_in_mlflow_answer_as_before(expected: dict[str, Any]) -> None:
    assert_same(answers.mlflow_answers(), expected["answers"]["mlflow"])


def test_code_in_mlflow_finds_what_it_imports() -> None:
    """Registered models hold this code, so it must not change, and its modules and names stay importable."""
    recorded = json.loads((FOLDERS / EXPECTED).read_text())
    imported = [
        (str(part.module), alias.name)
        for name in CODE
        for part in ast.parse((FOLDERS / name).read_text()).body
        if isinstance(part, ast.ImportFrom) and str(part.module).startswith("pipeline")
        for alias in part.names
    ]
    assert {module for module, _ in imported} == SERVING
    assert {name: sha256((FOLDERS / name).read_bytes()).hexdigest() for name in CODE} == recorded["code"]
    assert [one for one in imported if not hasattr(importlib.import_module(one[0]), one[1])] == []


class AsWorker(Training):
    """The loop without Ray, with the initial weights of a worker."""

    def module(self, config: Any) -> Pretraining:
        return build_module(config, self.vocabulary.size, CPU, "float32")


@pytest.mark.usefixtures("one_thread")
def test_a_stopped_run_continues_with_the_losses_of_the_whole_run(expected: dict[str, Any], tmp_path: Path) -> None:
    folder = shutil.copytree("output/runs/stopped", tmp_path / "runs" / "stopped")
    recorded, command = read_run(str(folder)), Command(prog="", about="", settings=Pretrain)
    assert recorded is not None
    preset, *words = commands.PRETRAIN
    vocabulary, corpus = load_vocabulary(f"{folder}/vocabulary", None), load_corpus(recorded["corpus"])
    config = replace(command.parse(command.words(words), PRESETS[preset]), output=str(tmp_path))
    config = replace(config, model=config.model.for_padding(vocabulary.pad_id))
    assert identifying_settings(settings_of(recorded)) == identifying_settings(config)
    stream = StreamSettings(
        corpus=corpus, vocabulary=vocabulary, sampling=config.sampling, batch=config.batch, seed=config.seed
    )
    start = read_start(config, stream, None)
    assert (start.continuing, start.done, start.identity) == (True, commands.STOPPED, recorded["identity"])
    logged: dict[int, dict[str, float]] = {}
    AsWorker(corpus=corpus, vocabulary=vocabulary).run(config, folder, logged)
    assert list(logged) == list(range(commands.STOPPED + 1, commands.STEPS + 1))
    for name, points in expected["losses"].items():
        before = {step: points[str(step)] for step in logged}
        assert {step: metrics[name] for step, metrics in logged.items()} == pytest.approx(before, abs=1e-5), name


def test_a_stopped_grid_knows_its_trials_and_their_results(expected: dict[str, Any]) -> None:
    config = with_absolute_locations(Command(prog="", about="", settings=Finetune).read(commands.GRID))
    inputs = read_inputs(config, no_op)
    (problem,) = inputs.problems.values()
    trials = [
        make_trial(with_setting(inputs.config, chosen), problem, inputs.initial, seed, chosen, stage)
        for seed, stage in ((0, "select"), (1, "report"))
        for chosen in ({"optimizer.learning_rate": 1e-3}, {"optimizer.learning_rate": 1e-2})
    ]
    assert expected["trials"].keys() < {trial.name for trial in trials}
    done = {trial.name: result for trial in trials if (result := result_of(trial))}
    assert len(done) == 1
    assert {name: result["scores"] for name, result in done.items()} == {
        name: expected["trials"][name]["scores"] for name in done
    }


def test_a_stopped_trial_of_a_low_rank_adapter_continues(expected: dict[str, Any]) -> None:
    config = with_absolute_locations(Command(prog="", about="", settings=Finetune).read(commands.LOW_RANK))
    inputs = read_inputs(config, no_op)
    (problem,) = inputs.problems.values()
    trial = make_trial(inputs.config, problem, inputs.initial, 0, {}, "report")
    assert resume_step(trial.folder) == 3 * commands.DONE_EPOCHS  # 48 rows, 16 per step
    result = load_or_train(trial, problem, inputs.initial)
    assert_same({name: result[name] for name in ("scores", "curve")}, expected["trial"])
    assert open_tuned(f"{trial.folder}/model").about.task.name == "moods"


def test_a_stopped_ablation_knows_its_runs(expected: dict[str, Any]) -> None:
    config = read_ablate(commands.ABLATE, "")
    variants, counts = variants_of(config), Path("ablation/ablations/steps").absolute()
    before = {path: path.stat().st_mtime_ns for path in counts.iterdir()}
    sized = with_token_budget(config, variants, streams_of(variants, no_op), str(counts), no_op)
    names = [str(variant.run(0).name) for variant in sized]
    assert {path: path.stat().st_mtime_ns for path in counts.iterdir()} == before, "the steps were counted anew"
    assert sorted(names) == sorted(expected["ablation"])
    assert [Path("ablation/runs", name, "summary.json").exists() for name in names] == [True, False]


def test_stopped_predictions_are_continued(expected: dict[str, Any]) -> None:
    config = with_absolute_locations(Command(prog="", about="", settings=Predict).read(commands.PREDICT))
    files = inputs_of(config.input, config.output, config.format, tags=False)
    parts = Parts(folder=f"{config.output}.parts")
    parts.begin(about(config, files, model.identify(config.checkpoint)[1]), CHARACTERS_PER_PART)
    assert parts.done() == {(0, 0), (0, 1)} and parts.counts() == {0: 2} and parts.missing(len(files))
    rows = [row for table in parts.tables(unified(parts.counted().schemas)) for row in table.to_pylist()]
    assert_same(rows, expected["predictions"][: len(rows)])


def test_finished_vectors_are_kept_and_stopped_ones_continued(expected: dict[str, Any]) -> None:
    for words, finished in ((commands.VECTORS, True), (commands.STOPPED_VECTORS, False)):
        config = with_absolute_locations(Command(prog="", about="", settings=Embed).read(words))
        asked = about_vectors(config, text_files(config), describe_on_cpu(config))
        assert folder.begin(config.output, asked, False) is finished
        assert len(folder.parts_in(config.output).done()) == (4 if finished else commands.DONE_PARTS)
