"""The application for Ray Serve's configuration files: its settings, and what it refuses."""

from pathlib import Path

import pytest
from ray import serve

from pipeline.config.serve import TOKEN, Batching, Limits, Serve
from pipeline.errors import ConfigError
from pipeline.serve.application import build, settings_from


def test_arguments_are_the_settings_of_the_job() -> None:
    arguments = {"checkpoint": "m", "replicas": 2, "cpus": 0.5, "limits.waiting": 9, "batching.wait": 0}
    expected = Serve(
        checkpoint="m", replicas=2, cpus=0.5, limits=Limits(waiting=9), batching=Batching(wait=0.0), host="0.0.0.0"
    )
    assert settings_from(arguments) == expected
    assert settings_from({"checkpoint": "m", "limits.truncate": True}).limits.truncate
    assert not settings_from({"checkpoint": "m", "limits.truncate": False}).limits.truncate


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"checkpoint": "m", "port": 80}, r"args has port \(80\): write it into http_options instead"),
        ({"checkpoint": "models:/m/1"}, r"which only the MLflow of a run knows: give the folder or URL of the model"),
        ({"checkpoint": "m", "mlflow-uri": "x"}, r"args has mlflow_uri \(x\), which has no effect in a cluster"),
        ({"checkpoint": "m", "start_timeout": 9}, r"args has start_timeout \(9\), which has no effect in a cluster"),
        ({"checkpoint": "m", "replicas": 0}, r"replicas \(0\) must be at least 1"),
        ({"checkpoint": "m", "limits.wait": 0}, "option --limits.wait does not exist"),
        ({"replicas": 1}, "checkpoint"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from(arguments)


def test_the_model_is_described_before_replicas_start_and_needs_a_token(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    with pytest.raises(ConfigError, match=f"set the environment variable {TOKEN} to a secret"):
        build({"checkpoint": str(tiny_run)})
    monkeypatch.setenv(TOKEN, "secret")
    assert isinstance(build({"checkpoint": str(tiny_run)}), serve.Application)
    with pytest.raises(ConfigError, match="does not exist"):
        build({"checkpoint": str(tmp_path / "nothing")})
