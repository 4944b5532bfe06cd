"""Build kustomize folders with kubectl, and list their files where kubectl is missing."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml

SETTINGS = "kustomization.yaml"


class Refused(Exception):
    """kustomize's own error for a folder it cannot build."""


def command() -> list[str] | None:
    """Return the command of the installed program: kubectl includes kustomize."""
    programs = {"kubectl": ["kubectl", "kustomize"], "kustomize": ["kustomize", "build"]}
    return next((words for name, words in programs.items() if shutil.which(name)), None)


def put_together(folder: Path) -> str:
    """Return the documents that `kubectl apply -k` would apply, as YAML. Raises Refused."""
    done = subprocess.run([*(command() or ()), str(folder)], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise Refused(" ".join(done.stderr.split()))
    return done.stdout


def files(folder: Path) -> Iterator[Path]:
    """Yield every file of a folder: its settings, then its resources and components, also of other folders."""
    settings = folder / SETTINGS
    yield settings
    content = yaml.safe_load(settings.read_text())
    for name in [*content.get("resources", []), *content.get("components", [])]:
        inner = folder / name
        yield from files(inner) if inner.is_dir() else [inner]
