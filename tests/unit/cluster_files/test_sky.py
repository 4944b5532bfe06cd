"""The check of SkyPilot's file, on the shipped one with one thing wrong."""

import shlex
from pathlib import Path

import pytest
import yaml

from cluster.rules.software import LOCK, OWN_IMAGE, RAY_IMAGE
from jobs import pretrain
from tests.unit.cluster_files.changing import ROOT, Change, changed, lines


def resources(**values: object) -> Change:
    return lambda task: task["resources"].update(values)


WRONG: list[tuple[Change, str]] = [
    (lambda task: task.update(nodes=2), "nodes: no such field of SkyPilot"),
    (lambda task: task.update(num_nodes="2"), "num_nodes: '2' must be a whole number"),
    (lambda task: task.update(num_nodes=0), "num_nodes: 0; 1 or more"),
    (lambda task: task.update(resources=[]), "resources: [] must be a mapping"),
    (resources(gpus="L4:4"), "resources.gpus: no such field of SkyPilot"),
    (resources(use_spot=1), "resources.use_spot: 1 must be true or false"),
    (resources(disk_size=True), "resources.disk_size: True must be text or a whole number or a number"),
    (
        resources(autostop=10),
        "resources.autostop: 10; nodes would stay and be paid for: {idle_minutes: 10, down: true}",
    ),
    (resources(ports=8265), "resources.ports: 8265; SkyPilot opens them to the world: leave it out, and ssh -L"),
    (
        lambda task: task["resources"].pop("accelerators"),
        "resources.accelerators: missing; the type and number of GPUs of a node, as L4:4",
    ),
    (
        resources(image_id="docker:rayproject/ray:latest"),
        f"resources.image_id: docker:rayproject/ray:latest; docker:{RAY_IMAGE}, or your own {OWN_IMAGE}",
    ),
    (
        lambda task: task["envs"].pop("RAY_AUTH_MODE"),
        "envs.RAY_AUTH_MODE: missing; an open Ray port is an open shell: token",
    ),
    (lambda task: task["envs"].pop("RAY_USAGE_STATS_ENABLED"), 'envs.RAY_USAGE_STATS_ENABLED: missing; "0"'),
    (
        lambda task: task["envs"].update(HF_TOKEN="a"),
        "envs.HF_TOKEN: HF_TOKEN is written out; a secret by reference (on Kubernetes valueFrom.secretKeyRef), "
        "or a role",
    ),
    (
        lambda task: task["secrets"].update(RAY_AUTH_TOKEN="a"),
        "secrets.RAY_AUTH_TOKEN: is written out; null, and sky launch --secret RAY_AUTH_TOKEN",
    ),
    (
        lambda task: task["secrets"].pop("RAY_AUTH_TOKEN"),
        "secrets.RAY_AUTH_TOKEN: missing; nodes must share a token: null, and sky launch --secret RAY_AUTH_TOKEN",
    ),
    (
        lambda task: task.update(setup="pip install ray==2.1.0 --no-deps"),
        f"setup: ray==2.1.0; cluster/requirements.txt has {LOCK['ray']}",
    ),
    (
        lambda task: task.update(run="ray start --head --dashboard-host=0.0.0.0"),
        "run: --dashboard-host=0.0.0.0; leave it out, and ssh -L 8265:127.0.0.1:8265",
    ),
    (
        lambda task: task.update(run="ray symmetric-run --address head:6379 -- python jobs/pretrain.py"),
        "run: ray symmetric-run; it refuses nodes where a Ray runs, and SkyPilot's does: ray start --block",
    ),
    (
        lambda task: task.update(run="ray start --head; python jobs/pretrain.py; ray stop"),
        "run: ray stop; it stops SkyPilot's Ray too: end your ray start --block with kill",
    ),
]


def test_one_wrong_thing_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [lines(changed("sky.yaml", change, tmp_path), capsys) for change, _ in WRONG]
    assert found == [[line] for _, line in WRONG]


def test_its_job_is_a_job_of_this_project(capsys: pytest.CaptureFixture[str]) -> None:
    run = yaml.safe_load((ROOT / "cluster/sky.yaml").read_text())["run"]
    words = shlex.split(run[run.index("python jobs/") :])
    assert words[:2] == ["python", "jobs/pretrain.py"]
    assert pretrain.main([*words[2:], "--show"]) == 0
    assert "$CORPUS" in capsys.readouterr().out  # the nodes' shell puts it in
