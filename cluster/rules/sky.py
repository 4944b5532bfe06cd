"""Rules for SkyPilot files: documented fields, nodes that stop, closed ports, tokens, pinned versions.

SkyPilot cannot be installed with the versions of cluster/requirements.txt (it needs click below 8.2 and uvicorn below
0.36), so its fields are listed here. In an environment that has SkyPilot, its own parser reads the file too.
"""

import copy
import importlib.util
import os
import re
from collections.abc import Iterator
from typing import Any

from cluster.rules.problems import Problem
from cluster.rules.software import OWN_IMAGE, RAY_IMAGE, environment_problems, pip_problems, right_image

TASK = {
    **dict.fromkeys(("name", "setup", "run"), str),
    **dict.fromkeys(("resources", "envs", "secrets", "file_mounts", "volumes", "config"), dict),
    **{"num_nodes": int, "workdir": (str, dict)},
}
RESOURCES = {
    **dict.fromkeys(("infra", "instance_type", "disk_tier", "network_tier", "image_id"), str),
    **dict.fromkeys(("cpus", "memory", "disk_size"), (str, int, float)),
    **dict.fromkeys(("accelerators", "autostop", "job_recovery"), (str, int, dict)),
    **dict.fromkeys(("accelerator_args", "labels"), dict),
    **dict.fromkeys(("any_of", "ordered"), list),
    **{"use_spot": bool, "ports": (str, int, list), "max_hourly_cost": (int, float)},
}
NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a mapping",
    list: "a list",
}


def task(document: dict) -> Iterator[Problem]:
    """Yield unknown fields, then problems found by SkyPilot's own parser, where installed, and by our rules."""
    resources = document.get("resources", {})
    refused = list(unknown(document, TASK, ""))
    if isinstance(resources, dict):
        refused += unknown(resources, RESOURCES, "resources.")
    yield from refused
    if refused:
        return
    yield from parsed(document)
    yield from nodes(document.get("num_nodes", 1), resources)
    yield from variables(document)
    for line in document.get("setup", "").splitlines():
        for message in pip_problems(line):
            yield "setup", message
    yield from commands(document.get("run", ""))


def unknown(given: dict, known: dict[str, Any], prefix: str) -> Iterator[Problem]:
    for key, value in given.items():
        kinds = known.get(key)
        kinds = kinds if isinstance(kinds, tuple | None) else (kinds,)
        if kinds is None:
            yield f"{prefix}{key}", "no such field of SkyPilot"
        elif not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            yield f"{prefix}{key}", f"{value!r} must be {' or '.join(NAMES[kind] for kind in kinds)}"


def parsed(document: dict) -> Iterator[Problem]:
    """Yield problems that SkyPilot's own parser finds, where installed, with made-up values for those given to `sky
    launch`.
    """
    if not has_skypilot():
        return
    document = copy.deepcopy(document)  # the parser takes fields out of it
    os.environ.setdefault("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
    from sky import Task

    blanks = {
        key: [(name, "x") for name, value in document.get(key, {}).items() if value is None]
        for key in ("envs", "secrets")
    }
    try:
        Task.from_yaml_config(document, env_overrides=blanks["envs"], secrets_overrides=blanks["secrets"])
    except Exception as error:  # its checks raise whatever they meet
        yield "", f"is refused by SkyPilot: {' '.join(str(error).split())}"


def has_skypilot() -> bool:
    return importlib.util.find_spec("sky") is not None


def nodes(number: int, resources: dict) -> Iterator[Problem]:
    """Yield nodes that never stop, are publicly reachable, have any type of GPU, or another version of Ray."""
    autostop = resources.get("autostop")
    if number < 1:
        yield "num_nodes", f"{number}; 1 or more"
    if not (isinstance(autostop, dict) and autostop.get("down") is True):
        yield (
            "resources.autostop",
            f"{autostop or 'missing'}; nodes would stay and be paid for: {{idle_minutes: 10, down: true}}",
        )
    if "ports" in resources:
        yield "resources.ports", f"{resources['ports']}; SkyPilot opens them to the world: leave it out, and ssh -L"
    if "accelerators" not in resources:
        yield "resources.accelerators", "missing; the type and number of GPUs of a node, as L4:4"
    image = resources.get("image_id", "missing")
    if not right_image(image.removeprefix("docker:")):
        yield "resources.image_id", f"{image}; docker:{RAY_IMAGE}, or your own {OWN_IMAGE}"


def variables(document: dict) -> Iterator[Problem]:
    """Yield missing variables that would leave Ray open or report usage, and secrets in plain text."""
    envs = document.get("envs", {})
    if envs.get("RAY_AUTH_MODE") != "token":
        yield "envs.RAY_AUTH_MODE", f"{envs.get('RAY_AUTH_MODE', 'missing')}; an open Ray port is an open shell: token"
    if envs.get("RAY_USAGE_STATS_ENABLED") != "0":
        yield "envs.RAY_USAGE_STATS_ENABLED", f'{envs.get("RAY_USAGE_STATS_ENABLED", "missing")}; "0"'
    if "RAY_AUTH_TOKEN" not in document.get("secrets", {}):
        yield (
            "secrets.RAY_AUTH_TOKEN",
            "missing; nodes must share a token: null, and sky launch --secret RAY_AUTH_TOKEN",
        )
    for name, value in envs.items():
        if name != "RAY_AUTH_MODE":
            yield from environment_problems(name, value or "", f"envs.{name}")
    for name, value in document.get("secrets", {}).items():
        if value is not None:
            yield f"secrets.{name}", f"is written out; null, and sky launch --secret {name}"


def commands(run: str) -> Iterator[Problem]:
    """Yield a publicly reachable dashboard, and commands that SkyPilot's own Ray on every node does not go with."""
    if (host := re.search(r"--dashboard-host[= ](\S+)", run)) and host[1] != "127.0.0.1":
        yield "run", f"--dashboard-host={host[1]}; leave it out, and ssh -L 8265:127.0.0.1:8265"
    for word, why in (
        ("symmetric-run", "it refuses nodes where a Ray runs, and SkyPilot's does: ray start --block"),
        ("stop", "it stops SkyPilot's Ray too: end your ray start --block with kill"),
    ):
        if re.search(rf"\bray {word}\b", run):
            yield "run", f"ray {word}; {why}"
