"""Serve a model over HTTP until the command is stopped."""

import os
import threading
from dataclasses import replace

from pipeline.command_line.environment import submission_id
from pipeline.command_line.stopping import interrupt_on_sigterm
from pipeline.config.locations import with_absolute_locations
from pipeline.config.serve import REGISTERED, TOKEN, Serve
from pipeline.reporting import Report
from pipeline.serve import one_process
from pipeline.serve.address import bound, listen
from pipeline.serve.gate import token_digest
from pipeline.serve.uses import COMMON, ROUTES, ServedDescription, processes


def serve(config: Serve, report: Report) -> None:
    """Serve the model until the process is interrupted.

    Raises ConfigError if the address is taken, if it needs a token and none is set, or as `replicas_ready` does.
    """
    interrupt_on_sigterm()
    config = with_absolute_locations(_registered(config, report))
    token = token_digest(config)
    if config.ray_setting:
        _serve_with_ray(config, token, report)
    else:
        _serve_from_this_process(config, token, report)


def _serve_with_ray(config: Serve, token: str | None, report: Report) -> None:
    """Serve with the replicas of Ray Serve."""
    from pipeline.serve.ray_serve import replicas_ready  # imported here because Ray takes seconds

    with replicas_ready(config, token, report) as described:
        for line in started_lines(config, described):
            report(line)
        threading.Event().wait()


def _serve_from_this_process(config: Serve, token: str | None, report: Report) -> None:
    """Serve with one model in this process. When stopped, it answers the requests that it has accepted."""
    with bound(config) as address:
        report(f"loading the model {config.checkpoint}")
        process = one_process.OneProcess(config, one_process.load_model(config))
        listen(address, config)
        for line in started_lines(config, process.described):
            report(line)
        one_process.server_of(process, token, report).run(sockets=[address])


def _registered(config: Serve, report: Report) -> Serve:
    """Return the settings with the location of the model's files, if the model is named as in MLflow."""
    if not config.checkpoint.startswith(REGISTERED):
        return config
    report(f"asking MLflow for {config.checkpoint}")
    from pipeline.export.registry import folder_of  # imported here because MLflow takes seconds
    from pipeline.tracking.runs import tracking_uri

    uri = tracking_uri(config.mlflow_uri, "output", "mlflow_uri")
    name = config.name or config.checkpoint.removeprefix(REGISTERED)
    return replace(config, checkpoint=folder_of(config.checkpoint, uri), name=name)


def started_lines(config: Serve, described: ServedDescription) -> list[str]:
    """Return the lines that say where the model is served, and how to ask it."""
    at = f"http://{f'[{config.host}]' if ':' in config.host else config.host}:{config.port}"
    vectors = f", {described.dimension} numbers per vector" if described.dimension else ""
    route = ROUTES[described.uses[0]]
    stop = f"ray job stop {job}" if (job := submission_id()) else "Ctrl-C"
    header = f' -H "Authorization: Bearer ${TOKEN}"' if os.environ.get(TOKEN) else ""
    example = EXAMPLES["pair" if described.paired else route]
    return [
        f"{described.name} ({described.kind}, {described.precision}{vectors}) is served at {at} by "
        f"{processes(config.replicas)}; {stop} stops it",
        f"routes: {', '.join((*described.routes, *COMMON))}",
        f"try: curl {at}{route}{header} -H 'Content-Type: application/json' -d '{example}'",
    ]


EXAMPLES = {
    "/embed": '{"inputs": ["a text", "another"]}',
    "/predict": '{"inputs": "a text"}',
    "pair": '{"inputs": ["a text", "another"]}',
    "/tags": '{"inputs": "a text"}',
    "/answers": '{"question": "a question?", "context": "a text"}',
}
"""Route, or pair for a model of pairs -> body of an example request."""
