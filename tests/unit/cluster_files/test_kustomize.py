"""kubectl's output for the folders of cluster/kuberay, and the check of changed folders."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.rules import kustomize
from tests.unit.cluster_files.changing import ROOT, lines

KUBERAY = ROOT / "cluster/kuberay"
SERVE_PORT = {"port": 8000, "protocol": "TCP"}
needs_kubectl = pytest.mark.skipif(not kustomize.command(), reason="needs kubectl")


def applied(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the objects that kubectl would apply, by kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(kustomize.put_together(folder))}


def copied(folder: Path, name: str, old: str, new: str) -> Path:
    """Copy cluster/kuberay, with other words in one of its files."""
    shutil.copytree(KUBERAY, folder / "kuberay")
    file = folder / "kuberay" / name
    assert file.read_text().count(old) == 1
    file.write_text(file.read_text().replace(old, new))
    return folder / "kuberay"


@needs_kubectl
def test_the_job_has_the_cluster_of_the_base_and_no_other_cluster_is_applied() -> None:
    stays, goes = applied(KUBERAY / "cluster"), applied(KUBERAY / "job")
    shared = {"ServiceAccount", "PersistentVolumeClaim", "NetworkPolicy"}
    assert set(stays) == shared | {"RayCluster"} and set(goes) == shared | {"RayJob"}
    assert goes["RayJob"]["spec"]["rayClusterSpec"] == stays["RayCluster"]["spec"]
    assert [group["groupName"] for group in stays["RayCluster"]["spec"]["workerGroupSpecs"]] == ["cpu", "gpu"]


@needs_kubectl
def test_the_service_has_the_cluster_of_the_base_with_its_token_and_without_mlflow() -> None:
    objects = applied(KUBERAY / "service")
    assert set(objects) == {"ServiceAccount", "NetworkPolicy", "RayService"}
    base, own = applied(KUBERAY / "cluster")["RayCluster"]["spec"], objects["RayService"]["spec"]["rayClusterConfig"]
    assert {name: value for name, value in own.items() if name not in ("headGroupSpec", "workerGroupSpecs")} == {
        name: value for name, value in base.items() if name not in ("headGroupSpec", "workerGroupSpecs")
    }
    pods = [own["headGroupSpec"]["template"]["spec"], *(group["template"]["spec"] for group in own["workerGroupSpecs"])]
    assert [[container["name"] for container in pod["containers"]] for pod in pods] == [["ray"]] * 3
    assert all({"secretRef": {"name": "bertstream-serve"}} in pod["containers"][0]["envFrom"] for pod in pods)
    assert not any("volumes" in pod for pod in pods)
    (rule,) = [rule for rule in objects["NetworkPolicy"]["spec"]["ingress"] if rule.get("ports") == [SERVE_PORT]]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"bertstream-client": "true"}}}]


@needs_kubectl
@pytest.mark.parametrize("overlay", ["cluster", "job", "service"])
def test_registry_and_type_of_gpu_are_written_once_for_all_pods(overlay: str, tmp_path: Path) -> None:
    folder = copied(tmp_path, "settings/kustomization.yaml", "FILL_IN/bertstream", "ghcr.io/me/bertstream")
    settings = folder / "settings/kustomization.yaml"
    settings.write_text(settings.read_text().replace("nvidia.com/gpu.product: NVIDIA-L4", "gpu/type: l40s"))
    text = kustomize.put_together(folder / overlay)
    images = {line.split("image: ")[1] for line in text.splitlines() if "image: " in line}
    assert images == {"ghcr.io/me/bertstream:0.1.0"}
    assert "gpu/type: l40s" in text and "NVIDIA-L4" not in text


@needs_kubectl
@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("job/kustomization.yaml", "spec.rayClusterSpec", "spec.clusterSpec", "spec: Additional properties"),
        ("job/kustomization.yaml", "replacements:", "# replacements:", "is refused by kustomize: "),
        ("settings/kustomization.yaml", "value: gpu}", "value: cpu}", "is refused by kustomize: "),
        (
            "base/cluster.yaml",
            "maxReplicas: 4",
            "maxReplicas: 4.5",
            "spec.rayClusterSpec.workerGroupSpecs.1.maxReplicas: 4.5",
        ),
        ("base/kustomization.yaml", "account.yaml", "accounts.yaml", "is refused by kustomize: "),
    ],
)
def test_a_folder_that_does_not_fit_together_is_a_line(
    name: str, old: str, new: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines(copied(tmp_path, name, old, new) / "job", capsys)[0].startswith(line)


def test_without_kubectl_each_file_of_a_folder_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(tmp_path, "base/cluster.yaml", "maxReplicas: 4", "maxReplicas: 4.5")
    monkeypatch.setenv("PATH", "/nowhere")
    (line,) = lines(folder / "job", capsys)
    assert line == "cluster.yaml: spec.workerGroupSpecs.1.maxReplicas: 4.5 is not of type 'integer'"


def test_a_folder_without_settings_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert lines(tmp_path, capsys) == [f"cannot be read: No such file or directory ({tmp_path}/kustomization.yaml)"]
