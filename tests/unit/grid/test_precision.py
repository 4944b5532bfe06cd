"""The precision in trials' names: that of the nodes on which they run, whatever the driver's machine is."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.placement import TrialPlacement
from pipeline.config.recipe import Recipe
from pipeline.fine_tuned.model import open_tuned
from pipeline.finetune import trials
from pipeline.finetune.problems import Problem, digest, read_problems
from pipeline.finetune.trials import make_trial
from pipeline.grid import precision
from pipeline.grid.precision import this_node_precision, with_common_precision, with_precision
from pipeline.tasks import sequences
from pipeline.tasks.glue import TASKS
from pipeline.tasks.tables import read_split
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial

WIDE = 768


def ignore(line: str) -> None:
    """Say nothing."""


@pytest.mark.parametrize("driver_has_gpu", [False, True])
def test_a_trial_is_named_by_the_nodes_whatever_the_driver_has(
    glue: Path, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, driver_has_gpu: bool
) -> None:
    cutting = Truncation(maximum_length=32, stride=8)
    train = sequences.prepare(TASKS["cola"], read_split(TASKS["cola"], str(glue), "train"), tiny_vocabulary, cutting)
    problem = Problem(task=TASKS["cola"], cutting=cutting, train=train, splits={}, digest=digest([train]))
    initial = Initial(folder="f", fingerprint="e", model=Model(width=WIDE), vocabulary=tiny_vocabulary)
    config = Finetune(checkpoint="c", task=("cola",), data="d")
    there = make_trial(
        replace(config, placement=TrialPlacement(precision="bfloat16")), problem, initial, 0, {}, "report"
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: driver_has_gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **named: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    monkeypatch.setattr(precision, "on_this_machine", lambda: False)
    monkeypatch.setattr(precision, "node_precisions", lambda *given: ["bfloat16", "bfloat16"])
    assert make_trial(config, problem, initial, 0, {}, "report").name != there.name, (
        "by the driver's own device it would be another trial"
    )
    assert (
        make_trial(
            with_precision(config, WIDE, {"CPU": 1.0, "GPU": 1.0}, ignore), problem, initial, 0, {}, "report"
        ).name
        == there.name
    )


def test_a_single_machine_decides_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Finetune(checkpoint="c", task=("cola",), data="d")
    monkeypatch.setattr(precision, "on_this_machine", lambda: True)
    monkeypatch.setattr(precision, "node_precisions", lambda *given: pytest.fail("nothing else is asked"))
    for capable, name in (({"avx512_bf16": True}, "bfloat16"), ({}, "float32")):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda capable=capable: capable)
        assert with_precision(config, WIDE, {"CPU": 1.0}, ignore).placement.precision == name
        assert with_precision(config, 128, {"CPU": 1.0}, ignore).placement.precision == "float32"
    monkeypatch.setattr(precision, "node_precisions", lambda *given: ["bfloat16"])
    assert with_precision(config, WIDE, {"CPU": 1.0, "GPU": 1.0}, ignore).placement.precision == "bfloat16", (
        "a driver that sees no GPU asks those that do"
    )


def test_nodes_that_differ_compute_in_float32_and_it_is_said() -> None:
    config, said = Finetune(checkpoint="c", task=("cola",), data="d"), []
    assert (
        with_common_precision(config, ["bfloat16", "float32", "bfloat16"], said.append).placement.precision == "float32"
    )
    assert said == [
        "placement.precision auto: 2 of 3 machines would compute in bfloat16 "
        "and the others in float32, so all trials use float32"
    ]
    explicit = replace(config, placement=TrialPlacement(precision="bfloat16"))
    assert with_precision(explicit, WIDE, {"CPU": 1.0}, said.append) == explicit and len(said) == 1


def test_a_node_answers_for_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **named: True)
    assert (
        this_node_precision(TrialPlacement(), 128, gpu=True) == "bfloat16"
        and this_node_precision(TrialPlacement(), WIDE, gpu=False) == "float32"
    )


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_model_says_in_which_precision_it_was_trained(tmp_path: Path, tiny_vocabulary: Vocabulary, name: str) -> None:
    (tmp_path / "my.csv").write_text("text,label\n" + "".join(f"kar {row},{row % 2}\n" for row in range(40)))
    config = Finetune(
        checkpoint="c",
        train=str(tmp_path / "my.csv"),
        output=str(tmp_path),
        random_weights=True,
        recipe=Recipe(epochs=1),
        placement=TrialPlacement(device="cpu", threads=1, precision=name),  # type: ignore[arg-type]
    )
    sizes = Model(layers=1, width=8, heads=2, feed_forward=8, maximum_positions=32)
    initial = Initial(folder="f", fingerprint="e", model=sizes, vocabulary=tiny_vocabulary)
    config = config.for_model(sizes)
    trial = make_trial(config, problem := read_problems(config, initial, ignore)[0], initial, 0, {}, "report")
    trials.load_or_train(trial, problem, initial)
    assert open_tuned(f"{trial.folder}/model").about.lineage["precision"] == name
