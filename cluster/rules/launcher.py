"""Rules for `ray up` files: idle heads, nodes that stop, closed ports, tokens, pinned versions."""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from cluster.rules.node_config import node_configs
from cluster.rules.problems import Problem
from cluster.rules.software import OWN_IMAGE, RAY_IMAGE, environment_problems, pip_problems, right_image

RAISED_BY_RAY = (AssertionError, KeyError, NotImplementedError, TypeError, ValueError)
"""Exceptions of Ray's checks for files that its schema allows: no image, no provider, an unknown provider, a null where
a default would be filled in, and a head that is no node type.
"""
NETWORKS = {
    "aws": (
        "SecurityGroupIds",
        "Ray would make a group that opens port 22 to 0.0.0.0/0; name the one of cluster/aws-account.yaml",
    ),
    "gcp": (
        "networkInterfaces",
        "Ray would take the default network, which opens port 22 to 0.0.0.0/0; name a subnetwork of your own",
    ),
}


def launcher(config: dict) -> Iterator[Problem]:
    """Yield problems found by Ray's schema, then by the cloud's description of a node and by our rules."""
    from jsonschema import ValidationError
    from ray.autoscaler._private.util import prepare_config, validate_config

    try:
        _require_types(config)
        quiet = io.StringIO()  # Ray warns of mounted files
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            config = prepare_config(config)
            validate_config(config)
    except ValidationError as error:
        yield ".".join(map(str, error.absolute_path)), error.message
        return
    except RAISED_BY_RAY as error:
        yield "", f"is refused by Ray: {type(error).__name__}: {error}"
        return
    for rules in (node_types, zone, network, node_configs, start_commands, options, mounts, software):
        yield from rules(config)


def _require_types(config: dict) -> None:
    """Raise ValidationError if a field has another type than in Ray's schema.

    Ray fills in defaults before it validates, and would fail there without naming the field. Fields may be missing.
    """
    import ray.autoscaler
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    errors = [error for error in validator_for(schema)(schema).iter_errors(config) if error.validator != "required"]
    if errors:
        raise best_match(errors)


def node_types(config: dict) -> Iterator[Problem]:
    """Yield a head that takes work, nodes that never stop, and GPU nodes whose cores are not reserved for trainers."""
    head = config["head_node_type"]
    for name, node in config["available_node_types"].items():
        field = f"available_node_types.{name}"
        resources = node["resources"]
        if node["min_workers"] != 0:
            yield f"{field}.min_workers", f"{node['min_workers']} nodes would stay and be paid for; 0"
        if name == head:
            for kind in ("CPU", "GPU"):
                if resources.get(kind) != 0:
                    yield (
                        f"{field}.resources.{kind}",
                        f"{resources.get(kind, 'left to Ray')}; the head must take no work: 0",
                    )
            if node["max_workers"] != 0:
                yield f"{field}.max_workers", f"{node['max_workers']}; there is one head: 0"
        elif resources.get("GPU", 0) < resources.get("CPU", 0) and resources.get("GPU"):
            instead = f"data stages would take the trainers' cores, one for each GPU is enough: {resources['GPU']}"
            yield f"{field}.resources.CPU", f"{resources['CPU']}; {instead}"
    if config["provider"]["type"] == "aws" and config["provider"].get("cache_stopped_nodes", True):
        yield "provider.cache_stopped_nodes", "true, and disks of stopped nodes are paid for; false"


def zone(config: dict) -> Iterator[Problem]:
    """Yield GPU nodes that may start in several zones: traffic between zones is slow and costs money."""
    given = config["provider"].get("availability_zone", "")
    trainers = [node for node in config["available_node_types"].values() if node["resources"].get("GPU")]
    subnets = {tuple(node["node_config"].get("SubnetIds", ())) for node in trainers}
    one_subnet = len(subnets) == 1 and len(*subnets) == 1
    if config["provider"]["type"] in NETWORKS and trainers and not one_subnet and (not given or "," in given):
        instead = "GPU nodes would start in several zones, which is slow and paid for; name one"
        yield "provider.availability_zone", f"{given or 'missing'}; {instead}"


def network(config: dict) -> Iterator[Problem]:
    """Yield nodes without a network of their own: Ray's default opens port 22 to the world."""
    key, instead = NETWORKS.get(config["provider"]["type"], ("", ""))
    for name, node in config["available_node_types"].items() if key else ():
        interfaces = node["node_config"].get(key)
        named = [one.get("subnetwork", "default") for one in interfaces or () if isinstance(one, dict)]
        if not interfaces or any(str(subnetwork).endswith("default") for subnetwork in named):
            yield f"available_node_types.{name}.node_config.{key}", f"{interfaces or 'missing'}; {instead}"


def start_commands(config: dict) -> Iterator[Problem]:
    """Yield commands that start Ray without a token, with a publicly reachable server, or with usage reports."""
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        for index, command in enumerate(config[key]):
            field = f"{key}.{index}"
            starts = "ray start" in command
            if starts and "RAY_AUTH_MODE=token" not in command:
                yield field, "starts Ray without a token; begin with export RAY_AUTH_MODE=token;"
            if starts and "RAY_USAGE_STATS_ENABLED=0" not in command:
                yield field, "reports usage; export RAY_USAGE_STATS_ENABLED=0"
            if "ray start --head" in command and not re.search(r"--dashboard-host[= ]127\.0\.0\.1\b", command):
                host = re.search(r"--dashboard-host[= ](\S+)", command)
                given = f"--dashboard-host={host[1] if host else '(missing)'}"
                yield field, f"{given}; --dashboard-host=127.0.0.1, and an SSH tunnel to it"
            if "mlflow server" in command and not re.search(r"--host[= ]127\.0\.0\.1\b", command):
                yield field, "the MLflow server has no login; --host 127.0.0.1, and an SSH tunnel to it"


def options(config: dict) -> Iterator[Problem]:
    """Yield containers without tokens, and secrets in plain text."""
    for key in ("run_options", "head_run_options", "worker_run_options"):
        for index, option in enumerate(config["docker"].get(key, [])):
            name, _, value = option.removeprefix("--env=").partition("=")
            yield from environment_problems(name, value, f"docker.{key}.{index}")
    if "aws_credentials" in config["provider"]:
        yield "provider.aws_credentials", "keys are written out; leave them to aws configure, and to the nodes' roles"


def mounts(config: dict) -> Iterator[Problem]:
    """Yield settings that keep the token or the nodes' key from the nodes."""
    if not any(remote.endswith("/.ray/auth_token") for remote in config["file_mounts"]):
        yield "file_mounts", "the token does not reach the nodes; /home/ray/.ray/auth_token: ~/.ray/auth_token"
    for index, pattern in enumerate(config["rsync_exclude"]):
        if any(fnmatch(name, pattern) for name in ("ray-autoscaler.pem", "auth_token", "ray_bootstrap_config.yaml")):
            instead = "it would keep the nodes' key, token or settings from them: leave it out"
            yield f"rsync_exclude.{index}", f"{pattern}; {instead}"


def software(config: dict) -> Iterator[Problem]:
    """Yield images and packages with other versions than the pinned ones."""
    docker = config["docker"]
    for key in ("image", *(key for key in ("head_image", "worker_image") if key in docker)):
        if not right_image(docker.get(key)):
            yield f"docker.{key}", f"{docker.get(key) or 'missing'}; {RAY_IMAGE}, or your own {OWN_IMAGE}"
    common = len(config["setup_commands"])  # Ray puts these before those of head and workers
    shares = {
        "initialization_commands": 0,
        "setup_commands": 0,
        "head_setup_commands": common,
        "worker_setup_commands": common,
    }
    for key, shared in shares.items():
        for index, command in enumerate(config.get(key, [])[shared:]):
            for message in pip_problems(command):
                yield f"{key}.{index}", message
