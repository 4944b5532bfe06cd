"""Versions, images and environment variables: those of cluster/requirements.txt, and no secrets in plain text."""

import re
from collections.abc import Iterator
from pathlib import Path

from cluster.rules.problems import Problem

ROOT = Path(__file__).parents[2]
LOCK = dict(line.split("==") for line in (ROOT / "cluster/requirements.txt").read_text().splitlines() if "==" in line)
VERSION = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
RAY_IMAGE = f"rayproject/ray:{LOCK['ray']}-py311"
OWN_IMAGE = f"bertstream:{VERSION}"


def right_image(image: str | None) -> bool:
    return image == RAY_IMAGE or (image or "").endswith(f"/{OWN_IMAGE}")


def environment_problems(name: str, value: str, field: str) -> Iterator[Problem]:
    """Yield variables that turn tokens off or hold a secret in plain text."""
    if name == "RAY_AUTH_MODE" and value != "token":
        yield field, f"RAY_AUTH_MODE={value}; an open Ray port is an open shell: token"
    if re.search("TOKEN|SECRET|PASSWORD|_KEY", name) and value:
        by = "a secret by reference (on Kubernetes valueFrom.secretKeyRef), or a role"
        yield field, f"{name} is written out; {by}"


def pip_problems(command: str) -> Iterator[str]:
    """Yield packages that a command installs with other versions than requirements.txt."""
    for name, version in re.findall(r"([\w.-]+)==([\w.+]+)", command):
        pinned = {normal(key): value for key, value in LOCK.items()}.get(normal(name))
        if version != pinned:
            yield f"{name}=={version}; cluster/requirements.txt has {pinned or 'none'}"
    if re.search(r"\.whl\b|ray-wheels", command):
        yield "installs a wheel by its address; the lock's version, from the index"
    elif "pip install" in command and not re.search(r"--constraint \S*requirements\.txt|--no-deps", command):
        yield "pip install without the lock; --constraint cluster/requirements.txt"


def normal(name: str) -> str:
    """Return a distribution's name in pip's normal form."""
    return name.lower().replace("_", "-")
