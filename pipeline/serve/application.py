"""The application for Ray Serve's own configuration files, such as serveConfigV2 of KubeRay's RayService."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ray import serve

from pipeline.command_line.command import Command
from pipeline.config.locations import with_absolute_locations
from pipeline.config.serve import REGISTERED, Serve
from pipeline.errors import ConfigError
from pipeline.serve.deployments import application
from pipeline.serve.gate import token_digest
from pipeline.serve.model import describe_on_cpu

OF_HTTP = ("host", "port")
"""Settings of jobs/serve.py that Ray Serve's configuration has in http_options."""
OF_COMMAND = ("mlflow_uri", "start_timeout", "placement.address", "placement.autoscaled")
"""Settings of jobs/serve.py that find a model or a cluster or wait for it, and have no effect here."""
EVERYWHERE = "0.0.0.0"


def build(arguments: dict[str, Any]) -> serve.Application:
    """Return the application of a model; `arguments` as in `settings_from`.

    Raises ConfigError for wrong settings and if BERTSTREAM_SERVE_TOKEN is not set, because other machines can ask. Also
    raises errors as `describe_on_cpu` does.
    """
    config = with_absolute_locations(settings_from(arguments))
    token = token_digest(config)
    return application(config, describe_on_cpu(config), token)


def settings_from(arguments: Mapping[str, Any]) -> Serve:
    """Return the settings for a mapping such as {"checkpoint": "s3://…", "limits.waiting": 512}.

    The names are those of jobs/serve.py's options. Raises ConfigError for unknown names and wrong values, and for
    settings of OF_HTTP and OF_COMMAND.
    """
    named = {name.replace("-", "_"): value for name, value in arguments.items()}
    if given := [name for name in OF_HTTP if name in named]:
        raise ConfigError(f"args has {given[0]} ({named[given[0]]}): write it into http_options instead")
    if given := [name for name in OF_COMMAND if name in named]:
        raise ConfigError(f"args has {given[0]} ({named[given[0]]}), which has no effect in a cluster: leave it out")
    config = Command(prog="args", about="", settings=Serve).read(list(_words(arguments)))
    if config.checkpoint.startswith(REGISTERED):
        raise ConfigError(
            f"args has checkpoint ({config.checkpoint}), which only the MLflow of a run knows: give the folder or URL "
            "of the model"
        )
    return replace(config, host=EVERYWHERE)


def _words(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of a command line with these settings."""
    for name, value in arguments.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            group, _, last = option.rpartition(".")
            yield f"--{group}{'.' if group else ''}{'' if value else 'no-'}{last}"
        else:
            yield from (f"--{option}", str(value))
