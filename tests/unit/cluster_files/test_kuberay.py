"""The check of Kubernetes' and KubeRay's objects, on the shipped ones with one thing wrong."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.rules.software import LOCK, OWN_IMAGE, RAY_IMAGE
from jobs import pretrain
from tests.unit.cluster_files.changing import ROOT, Change, changed, lines

pytestmark = pytest.mark.second  # test_check checks the files as they are in the first tier

CLUSTER = "kuberay/base/cluster.yaml"
JOB = "kuberay/job/job.yaml"
SERVICE = "kuberay/service/service.yaml"


def with_cluster(document: dict[str, Any]) -> None:
    """Give a job the cluster of the base, as kustomize does."""
    document["spec"]["rayClusterSpec"] = yaml.safe_load((ROOT / "cluster" / CLUSTER).read_text())["spec"]


def spec_of(document: dict[str, Any]) -> dict[str, Any]:
    return document["spec"].get("rayClusterSpec", document["spec"])


def head(document: dict[str, Any]) -> dict[str, Any]:
    return spec_of(document)["headGroupSpec"]


def group(document: dict[str, Any]) -> dict[str, Any]:
    return spec_of(document)["workerGroupSpecs"][1]


def container(document: dict[str, Any]) -> dict[str, Any]:
    return group(document)["template"]["spec"]["containers"][0]


KUBERAY: list[tuple[Change, str]] = [
    (lambda document: document.update(apiVersion="ray.io/v1alpha1"), "apiVersion: 'ray.io/v1' was expected"),
    (
        lambda document: document.update(kind="RayClutser"),
        "apiVersion: ray.io/v1 has no kind RayClutser; KubeRay's are ray.io/v1 RayCluster, RayJob and RayService",
    ),
    (
        lambda document: spec_of(document).update(replicas=1),
        "SPEC: Additional properties are not allowed ('replicas' was unexpected)",
    ),
    (
        lambda document: group(document).update(minReplicas=0.5),
        "SPEC.workerGroupSpecs.1.minReplicas: 0.5 is not of type 'integer'",
    ),
    (
        lambda document: group(document).update(rayStartParams={"num-cpus": 4}),
        "SPEC.workerGroupSpecs.1.rayStartParams.num-cpus: 4 is not of type 'string'",
    ),
    (
        lambda document: group(document).update(minReplicas=2),
        "SPEC.workerGroupSpecs.1.minReplicas: 2 pods would stay and be paid for; 0",
    ),
    (
        lambda document: group(document)["rayStartParams"].pop("num-cpus"),
        "SPEC.workerGroupSpecs.1.rayStartParams.num-cpus: left to Ray; data stages would take the trainers' "
        'cores, one for each GPU is enough: "4"',
    ),
    (
        lambda document: spec_of(document).pop("authOptions"),
        "SPEC.authOptions.mode: missing; an open Ray port is an open shell: token",
    ),
    (
        lambda document: spec_of(document).update(rayVersion="2.59.0"),
        f"SPEC.rayVersion: 2.59.0; cluster/requirements.txt has {LOCK['ray']}",
    ),
    (
        lambda document: head(document)["rayStartParams"].pop("num-cpus"),
        'SPEC.headGroupSpec.rayStartParams.num-cpus: left to Ray; the head must take no work: "0"',
    ),
    (
        lambda document: head(document).update(serviceType="LoadBalancer"),
        "SPEC.headGroupSpec.serviceType: the dashboard would be open to the world; "
        "ClusterIP, no ingress, and kubectl port-forward",
    ),
    (
        lambda document: spec_of(document)["autoscalerOptions"].update(version="v1"),
        "SPEC.autoscalerOptions.version: enableInTreeAutoscaling: true and version: v2, or no node comes and goes",
    ),
    (
        lambda document: spec_of(document)["autoscalerOptions"].update(resources={"limit": {}}),
        "SPEC.autoscalerOptions.spec.containers.0.resources: Additional properties are not allowed ('limit' was "
        "unexpected)",
    ),
    (
        lambda document: container(document).update(imagePullpolicy="Always"),
        "SPEC.workerGroupSpecs.1.template.spec.containers.0: Additional properties are not allowed ('imagePullpolicy' "
        "was unexpected)",
    ),
    (
        lambda document: container(document)["resources"]["limits"].pop("memory"),
        "SPEC.workerGroupSpecs.1.template.spec.containers.0.resources.limits: without memory; say how much",
    ),
    (
        lambda document: container(document).update(image="rayproject/ray:nightly"),
        "SPEC.workerGroupSpecs.1.template.spec.containers.0.image: rayproject/ray:nightly; "
        f"your own {OWN_IMAGE}, or {RAY_IMAGE}",
    ),
    (
        lambda document: container(document).update(env=[{"name": "AWS_SECRET_ACCESS_KEY", "value": "a"}]),
        "SPEC.workerGroupSpecs.1.template.spec.containers.0.env: AWS_SECRET_ACCESS_KEY is written out; "
        "a secret by reference (on Kubernetes valueFrom.secretKeyRef), or a role",
    ),
    *(
        (
            lambda document, one=one: spec_of(document)["workerGroupSpecs"][0]["template"]["spec"][
                "tolerations"
            ].append(one),
            "SPEC.workerGroupSpecs.0.template.spec.tolerations: pods without a GPU would take the GPU nodes' last "
            "cores; leave nvidia.com/gpu out, and name the key of every other",
        )
        for one in ({"key": "nvidia.com/gpu", "operator": "Exists"}, {"operator": "Exists"})
    ),
    (
        lambda document: group(document)["template"]["spec"].pop("nodeSelector"),
        "SPEC.workerGroupSpecs.1.template.spec.nodeSelector: no type of GPU; "
        "name a label of your nodes, as {nvidia.com/gpu.product: NVIDIA-L4}",
    ),
    (
        lambda document: group(document)["template"]["spec"].pop("affinity"),
        "SPEC.workerGroupSpecs.1.template.spec.affinity.podAffinity: "
        "trainers would start in several zones, which is slow and paid for; "
        "topology.kubernetes.io/zone as topologyKey",
    ),
    (
        lambda document: group(document)["template"]["spec"].pop("securityContext"),
        "SPEC.workerGroupSpecs.1.template.spec.securityContext.runAsNonRoot: missing; true",
    ),
]


def test_one_wrong_thing_in_a_ray_cluster_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [lines(changed(CLUSTER, change, tmp_path), capsys) for change, _ in KUBERAY]
    assert found == [[re.sub("^SPEC", "spec", line)] for _, line in KUBERAY]


def test_one_wrong_thing_in_the_cluster_of_a_job_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for change, line in (*KUBERAY[:4], KUBERAY[7], KUBERAY[-1]):

        def job(document: dict[str, Any], change: Change = change) -> None:
            with_cluster(document)
            change(document)

        assert lines(changed(JOB, job, tmp_path), capsys) == [re.sub("^SPEC", "spec.rayClusterSpec", line)]


def both(one: dict[str, Any], **values: Any) -> None:
    for key in ("requests", "limits"):
        one["resources"][key].update({name.replace("GPU", "nvidia.com/gpu"): value for name, value in values.items()})


def pod(part: dict[str, Any]) -> dict[str, Any]:
    return part["template"]["spec"]


WRONG_KUBERAY: list[tuple[Change, str]] = [
    (
        lambda document: both(pod(head(document))["containers"][0], GPU=1),
        "headGroupSpec.template.spec.containers.0.resources.limits.nvidia.com/gpu: "
        "the head must take no work, and no GPU: leave it out",
    ),
    (
        lambda document: head(document).update(resources={"GPU": "1"}),
        "headGroupSpec.resources: KubeRay would take it instead of rayStartParams; leave it out",
    ),
    (
        lambda document: both(container(document), GPU=0.5),
        "workerGroupSpecs.1.template.spec.containers.0.resources.limits.nvidia.com/gpu: 0.5; devices are whole: 1",
    ),
    (
        lambda document: container(document)["resources"]["limits"].update({"nvidia.com/gpu": 2}),
        "workerGroupSpecs.1.template.spec.containers.0.resources.requests.nvidia.com/gpu: 4, and the limit is 2; "
        "the same of both",
    ),
    (
        lambda document: both(container(document), GPU=2),
        "workerGroupSpecs.1.rayStartParams.num-gpus: 4, and its containers have 2 of nvidia.com/gpu; the same",
    ),
    (
        lambda document: group(document)["rayStartParams"].update({"num-cpus": "1.5"}),
        "workerGroupSpecs.1.rayStartParams.num-cpus: 1.5; a whole number",
    ),
    (
        lambda document: group(document)["rayStartParams"].update({"num-cpu": "4"}),
        "workerGroupSpecs.1.rayStartParams.num-cpu: no such option of ray start",
    ),
    (
        lambda document: both(container(document), memory="56Gib"),
        "workerGroupSpecs.1.template.spec.containers.0.resources.limits.memory: 56Gib is no quantity; "
        "as 500m, 4 or 56Gi",
    ),
    (
        lambda document: container(document)["resources"]["requests"].update(cpu="60"),
        "workerGroupSpecs.1.template.spec.containers.0.resources.requests.cpu: 60 is above the limit (46)",
    ),
    (
        lambda document: group(document).update(groupName="cpu"),
        "workerGroupSpecs.1.groupName: cpu is there twice; give each a name of its own",
    ),
    (
        lambda document: pod(group(document)).update(restartPolicy="Always"),
        "workerGroupSpecs.1.template.spec.restartPolicy: Always; a pod must not come back as another Ray node: Never",
    ),
    (
        lambda document: container(document)["env"].append({"name": "RAY_AUTH_MODE", "value": "disabled"}),
        "workerGroupSpecs.1.template.spec.containers.0.env: RAY_AUTH_MODE=disabled; "
        "an open Ray port is an open shell: token",
    ),
    (
        lambda document: head(document).update(headService={"spec": {"type": "LoadBalancer"}}),
        "headGroupSpec.serviceType: the dashboard would be open to the world; "
        "ClusterIP, no ingress, and kubectl port-forward",
    ),
    (
        lambda document: pod(head(document)).update(hostNetwork=True),
        "headGroupSpec.template.spec.hostNetwork: true, which opens the node; leave it out",
    ),
    (
        lambda document: container(document).update(ports=[{"containerPort": 8265, "hostPort": 8265}]),
        "workerGroupSpecs.1.template.spec.containers.0.ports: a hostPort opens the node; "
        "leave it out, and kubectl port-forward",
    ),
    (
        lambda document: container(document).update(securityContext={"privileged": True}),
        "workerGroupSpecs.1.template.spec.containers.0.securityContext: may become root; {allowPrivilegeEscalation: "
        "false, capabilities: {drop: [ALL]}}",
    ),
    (
        lambda document: pod(head(document))["containers"][1].update(command=["mlflow", "server", "--host", "0.0.0.0"]),
        "headGroupSpec.template.spec.containers.1.command: the MLflow server has no login; "
        "--host 127.0.0.1, and kubectl port-forward",
    ),
]


def test_what_a_cluster_would_refuse_or_open_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [(f"spec.{line}", lines(changed(CLUSTER, change, tmp_path), capsys)) for change, line in WRONG_KUBERAY]
    assert [(line, said) for line, said in found if line not in said] == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda document: document["spec"].pop("entrypoint"),
            "spec.entrypoint: missing; python /home/ray/bertstream/jobs/pretrain.py and its options",
        ),
        (
            lambda document: document["spec"].pop("activeDeadlineSeconds"),
            "spec.activeDeadlineSeconds: missing; a job that hangs would be paid for without end: 172800 for two days",
        ),
        (lambda document: document["spec"].update(runtimeEnvYAML="{"), "spec.runtimeEnvYAML: is no mapping in YAML"),
        (
            lambda document: document["metadata"].update(name="Bert_X"),
            "metadata.name: Bert_X; small letters, digits and - inside",
        ),
    ],
)
def test_one_wrong_thing_in_the_job_is_one_line(
    change: Change, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines(changed(JOB, change, tmp_path), capsys) == [line]


def test_a_network_policy_that_lets_everybody_in_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *others, policy = yaml.safe_load_all((ROOT / "cluster/kuberay/base/account.yaml").read_text())
    policy["spec"]["ingress"].append({"ports": [{"port": 8265}]})
    (tmp_path / "base.yaml").write_text(yaml.safe_dump_all([*others, policy]))
    assert lines(tmp_path / "base.yaml", capsys) == [
        "spec.ingress: a rule without from lets everybody in; name the pods"
    ]


def test_a_job_without_an_end_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(JOB, lambda document: document["spec"].pop("shutdownAfterJobFinishes"), tmp_path)
    assert lines(path, capsys) == ["spec.shutdownAfterJobFinishes: the cluster would stay and be paid for; true"]


def test_the_job_of_the_manifest_is_a_job_of_this_project(capsys: pytest.CaptureFixture[str]) -> None:
    entrypoint = yaml.safe_load((ROOT / "cluster" / JOB).read_text())["spec"]["entrypoint"].split()
    assert entrypoint[:2] == ["python", "/home/ray/bertstream/jobs/pretrain.py"]
    assert pretrain.main([*entrypoint[2:], "--show"]) == 0
    shown = capsys.readouterr().out
    assert 'workers = "4..8"\n' in shown and "autoscaled = true\n" in shown


def served(**args: Any) -> str:
    """serveConfigV2 with these settings of the model."""
    application = {"name": "m", "import_path": "pipeline.serve.application:build", "args": {"checkpoint": "m"} | args}
    return yaml.safe_dump({"applications": [application]})


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"serveConfigV2": "applications: ["}, "spec.serveConfigV2: is no mapping in YAML"),
        (
            {"serveConfigV2": "applications: [{name: m}]"},
            "spec.serveConfigV2.applications.0.import_path: Field required",
        ),
        (
            {"serveConfigV2": served(replica=2)},
            "spec.serveConfigV2.applications.0.args: option --replica does not exist; did you mean --replicas?",
        ),
        (
            {"serveConfigV2": served(port=80)},
            "spec.serveConfigV2.applications.0.args: args has port (80): write it into http_options instead",
        ),
        ({"upgradeStrategy": {"type": "Rolling"}}, "spec.upgradeStrategy.type: 'Rolling' is not one of "),
        ({"serveConfig": "x"}, "spec: Additional properties are not allowed ('serveConfig' was unexpected)"),
    ],
)
def test_one_wrong_thing_in_a_service_is_one_line(
    change: dict[str, Any], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lines(changed(SERVICE, lambda document: document["spec"].update(change), tmp_path), capsys)
    assert len(found) == 1 and found[0].startswith(line)


def test_one_wrong_thing_in_the_cluster_of_a_service_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def service(document: dict[str, Any]) -> None:
        document["spec"]["rayClusterConfig"] = yaml.safe_load((ROOT / "cluster" / CLUSTER).read_text())["spec"]
        document["spec"]["rayClusterConfig"]["workerGroupSpecs"][1]["minReplicas"] = 2

    (line,) = lines(changed(SERVICE, service, tmp_path), capsys)
    assert line == "spec.rayClusterConfig.workerGroupSpecs.1.minReplicas: 2 pods would stay and be paid for; 0"
