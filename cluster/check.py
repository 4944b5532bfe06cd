"""Check cluster files without a cloud: schemas, closed ports, tokens, an idle head, pinned versions.

    python -m cluster.check
    python -m cluster.check my-cluster.yaml my-kustomize-folder/

Prints one line per problem and exits with code 2, or one line per file and exits with 0. Needs what `make test`
installs (pip install 'bertstream[test]'); kustomize folders are built by kubectl, where it is installed.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from cluster.rules import kustomize
from cluster.rules.account import account
from cluster.rules.image import dockerfile
from cluster.rules.kuberay import manifest
from cluster.rules.launcher import launcher
from cluster.rules.problems import Problem, open_ranges
from cluster.rules.sky import task

CLUSTER = Path(__file__).parent
FILES = (
    *("aws.yaml", "gcp.yaml", "aws-account.yaml", "sky.yaml"),
    *("kuberay/cluster", "kuberay/job", "kuberay/service", "Dockerfile"),
)
UNKNOWN = (
    "is neither a file of ray up (provider), nor of Kubernetes (apiVersion), nor of CloudFormation "
    "(AWSTemplateFormatVersion), nor of SkyPilot (run)"
)


def main(arguments: Sequence[str]) -> int:
    """Print every problem of the named files, or of the project's own; return 0 without problems, 2 with."""
    failed = False
    for path in [Path(word) for word in arguments] or [shown(CLUSTER / name) for name in FILES]:
        problems = list(check(path))
        failed |= bool(problems)
        for field, message in problems:
            print(f"{path}: {field}: {message}" if field else f"{path}: {message}")
        if not problems:
            print(f"{path}: fine{notes(path)}")
    return 2 if failed else 0


def shown(path: Path) -> Path:
    """Return a path relative to the working directory where possible."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def notes(path: Path) -> str:
    """Return words to follow `fine`: what the user must fill in, and what was not checked."""
    lines = [line for file in parts(path) for line in file.read_text().splitlines()]
    blanks = sum(line.partition("#")[0].count("FILL_IN") for line in lines)
    alone = path.is_dir() and not kustomize.command()
    missing = "; each file alone: kubectl, which puts them together, is not installed" if alone else ""
    return (f"; FILL_IN left: {blanks}" if blanks else "") + missing


def parts(path: Path) -> list[Path]:
    return list(kustomize.files(path)) if path.is_dir() else [path]


def check(path: Path) -> Iterator[Problem]:
    """Yield the problems of one file or kustomize folder; its contents decide which rules apply."""
    try:
        if path.is_dir():
            yield from overlay(path)
        elif path.name == "Dockerfile":
            yield from dockerfile(path.read_text(), path)
        else:
            yield from documents(path.read_text())
    except OSError as error:
        yield "", f"cannot be read: {error.strerror}" + (f" ({error.filename})" if path.is_dir() else "")
    except yaml.YAMLError as error:
        yield "", "is no YAML: " + " ".join(str(error).split())


def overlay(folder: Path) -> Iterator[Problem]:
    """Yield the problems of a folder as kubectl builds it; without kubectl, those of each file in it."""
    if not kustomize.command():
        for file in kustomize.files(folder):
            if file.name != kustomize.SETTINGS:
                for field, message in check(file):
                    yield f"{file.name}: {field}", message
        return
    try:
        text = kustomize.put_together(folder)
    except kustomize.Refused as error:
        yield "", f"is refused by kustomize: {error}"
        return
    yield from documents(text)
    for document in yaml.safe_load_all(text):
        if document["kind"] == "RayJob" and not {"rayClusterSpec", "clusterSelector"} & set(document["spec"]):
            yield "spec.rayClusterSpec", "missing; the job has no cluster to run on: see replacements in kuberay/job"
        if document["kind"] == "RayService" and "rayClusterConfig" not in document["spec"]:
            yield "spec.rayClusterConfig", "missing; the model has no cluster: see replacements in kuberay/service"


def documents(text: str) -> Iterator[Problem]:
    found = [document for document in yaml.safe_load_all(text) if document is not None]
    if not found or not all(isinstance(document, dict) for document in found):
        yield "", "must hold one mapping or more"
        return
    for document in found:
        yield from open_ranges(document)
        if "AWSTemplateFormatVersion" in document:
            yield from account(text, document)
        elif "apiVersion" in document:
            yield from manifest(document)
        elif "provider" in document:
            yield from launcher(document)
        elif "run" in document:
            yield from task(document)
        else:
            yield "", UNKNOWN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
