"""Resources that trials request, and the search for their results, without Ray."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.tune.execution.class_cache import _ActorClassCache

from pipeline.config.finetune import Finetune, Trials
from pipeline.config.placement import TrialPlacement
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.finetune.trials import STOPPED, Trial
from pipeline.grid.tune import LOGINS, Watch, at_once, connect, fit, published, resources
from pipeline.on_ray import cluster


def config(output: str = "o", **settings) -> Finetune:
    return Finetune(checkpoint="c", task=("sst2",), output=output, **settings)


def trial(output: Path, name: str) -> Trial:
    return Trial(problem="sst2", config=config(str(output)), seed=0, name=name, chosen={}, stage="report")


@pytest.mark.parametrize(
    ("settings", "total", "asked"),
    [
        ({}, {"CPU": 2}, {"CPU": 1.0}),
        ({}, {"CPU": 2, "GPU": 4}, {"CPU": 1.0, "GPU": 1.0}),
        ({"trials": Trials(gpus=0.25)}, {"CPU": 2, "GPU": 1}, {"CPU": 1.0, "GPU": 0.25}),
        ({"placement": TrialPlacement(device="cpu")}, {"CPU": 2, "GPU": 1}, {"CPU": 1.0}),
        ({"placement": TrialPlacement(device="cuda")}, {"CPU": math.inf, "GPU": math.inf}, {"CPU": 1.0, "GPU": 1.0}),
    ],
)
def test_a_trial_asks_for_what_is_there(settings: dict, total: dict[str, float], asked: dict[str, float]) -> None:
    assert fit(config(**settings), total) == asked


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"trials": Trials(gpus=0.5)},
            "trials.gpus (0.5) must be at most 0, the number of GPUs in the cluster: lower trials.gpus, or leave it "
            "out",
        ),
        (
            {"trials": Trials(gpus=0.5, workers=2), "total": {"CPU": 2, "GPU": 1}},
            "trials.gpus (0.5) with trials.workers (2): workers of a trial cannot share a GPU; give each "
            "worker 1, or use one worker",
        ),
        ({"trials": Trials(cpus=3)}, "trials.cpus (3) must be at most 2, the number of CPUs in the cluster"),
        ({"placement": TrialPlacement(device="cuda")}, "placement.device cuda needs GPUs, and the cluster has none"),
    ],
)
def test_more_than_there_is_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        total = settings.get("total", {"CPU": 2})
        fit(config(**{name: value for name, value in settings.items() if name != "total"}), total)
    assert str(refused.value) == message


def test_a_cluster_that_scales_itself_is_taken_as_it_will_be() -> None:
    one = config(placement=TrialPlacement(autoscaled=True, device="cuda"), trials=Trials(at_once=6, cpus=4))
    assert resources(one) == {"CPU": 4, "GPU": 1.0} and at_once(one) == 6  # no Ray runs here


def test_results_that_this_machine_does_not_see_are_an_error(tmp_path: Path) -> None:
    ones = [trial(tmp_path, "a"), trial(tmp_path, "b")]
    storage.write_json(f"{ones[0].folder}/result.json", {"scores": {}})
    last = {"epoch": 2, "score": -0.5, "value": 0.5}
    for search in (None, "s"):
        with pytest.raises(DataError) as lost:
            published(ones, {1: last | {"last": True}}, search)
        assert (
            str(lost.value)
            == f"this machine does not see the results of 1 trials, the first of them in {ones[1].folder}: set output "
            f"to a folder that all machines share, or to a URL"
        )
        assert not storage.exists(f"{ones[1].folder}/{STOPPED}")
    assert published(ones, {1: last | {"last": False}}, "s")["b"] == {
        "stopped_after_epoch": 2,
        "score": 0.5,
        "chosen": {},
        "stage": "report",
        "search": "s",
    }
    assert storage.exists(f"{ones[1].folder}/{STOPPED}")


def test_epochs_are_told_as_they_end_and_a_trial_s_end_once(tmp_path: Path) -> None:
    one, told = trial(tmp_path, "a"), []
    watch, running = (
        Watch([one], lambda trial, state, news: told.append((state, dict(news)))),
        SimpleNamespace(config={"number": 0}),
    )
    watch.on_trial_start(0, [], running)
    watch.on_trial_result(1, [], running, {"score": -0.5, "value": 0.5, "epoch": 1, "last": False})
    watch.on_trial_result(2, [], running, {"score": -0.4, "value": 0.4, "epoch": 1, "last": True})
    storage.write_json(f"{one.folder}/result.json", {"scores": {}})
    watch.on_trial_complete(3, [], running)
    assert told == [("running", {}), ("running", {"epoch": 1, "value": 0.5}), ("done", {"scores": {}})]


def test_ray_tune_hands_no_logins_to_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime environment stands in Ray's logs as it is."""
    for name in LOGINS:
        monkeypatch.setenv(name, "planted")
    for name in ("TUNE_DISABLE_SIGINT_HANDLER", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "RAY_AIR_NEW_OUTPUT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(cluster, "connect", lambda address: None)
    connect(config())
    assert "planted" not in _ActorClassCache().get(object)._default_options["runtime_env"]["env_vars"].values()
