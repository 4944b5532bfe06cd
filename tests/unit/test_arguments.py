"""The order of words that the parser is given."""

import importlib.util
from pathlib import Path

import pytest

from pipeline.config.arguments import choices, in_order
from pipeline.config.finetune import Finetune
from pipeline.config.jobs import Pretrain
from pipeline.presets import PRESETS

MINI = PRESETS["bert-mini"]


def test_settings_of_several_kinds_are_found() -> None:
    assert list(choices(Pretrain)) == ["sampling.pairs", "sampling.masking", "phases", "optimizer", "schedule"]
    assert list(choices(Finetune)) == ["adapter"]


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        ("--steps 5 --corpus a --corpus b", "--steps 5 --corpus a --corpus b"),
        ("--optimizer.learning-rate 1e-4 --steps 5", "--steps 5 optimizer:adam-w --optimizer.learning-rate 1e-4"),
        ("optimizer:lamb --steps 5 --optimizer.beta2=0.9", "--steps 5 optimizer:lamb --optimizer.beta2=0.9"),
        ("schedule:constant-rate optimizer:lamb --schedule.warmup-steps 3", "optimizer:lamb schedule:constant-rate --schedule.warmup-steps 3"),
        ("--sampling.masking.share 0.2 --sampling.maximum_length 64", "--sampling.maximum_length 64 sampling.masking:whole-word-masking --sampling.masking.share 0.2"),
        ("--corpus optimizer:lamb --steps", "--corpus optimizer:lamb --steps"),  # a value is no kind
        ("books/ s3://bucket:9/a", "books/ s3://bucket:9/a"),
        ("--optimizer.learning-rate 1e-4 --help", "--optimizer.learning-rate 1e-4 --help"),
    ],
)
def test_kinds_come_last_and_stand_before_their_options(given: str, ordered: str) -> None:
    wanted = ordered.replace("whole-word-masking", kind_of_masking())
    assert in_order(given.split(), Pretrain, MINI) == wanted.split()


def kind_of_masking() -> str:
    return {"TokenMasking": "token-masking", "WholeWordMasking": "whole-word-masking"}[type(MINI.sampling.masking).__name__]


def test_without_defaults_the_kind_is_the_classes_own() -> None:
    assert in_order(["--adapter.rank", "4", "--seeds", "1"], Finetune) == ["--seeds", "1", "adapter:no-adapter", "--adapter.rank", "4"]
    assert in_order(["--schedule.warmup-share", "0.1"], Pretrain) == ["schedule:linear-decay", "--schedule.warmup-share", "0.1"]


def test_options_of_the_defaults_kinds_work_in_any_order(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("pretrain_job", Path(__file__).parents[2] / "jobs/pretrain.py")
    assert spec and spec.loader
    job = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(job)
    given = "bert-mini schedule:warmup-stable-decay --optimizer.learning-rate 0.5 --steps 700 --schedule.decay-share 0.4 --sampling.masking.share 0.25 --show"
    assert job.main(given.split()) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {"optimizer = 'AdamW'", "optimizer.learning_rate = 0.5", "steps = 700", "schedule.decay_share = 0.4", "sampling.masking.share = 0.25"} <= set(shown)
