"""cluster/check.py on the files as they are shipped, and on each of them with one thing wrong; what a job uploads."""

import importlib.util
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
Change = Callable[[dict[str, Any]], object]


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.replace("/", "_").removesuffix(".py"), ROOT / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = load("cluster/check.py")


def lines(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the check prints of a file with problems, without the file's name."""
    assert check.main([str(path)]) == 2
    return [line.removeprefix(f"{path}: ") for line in capsys.readouterr().out.splitlines()]


def changed(name: str, change: Change, folder: Path) -> Path:
    document = yaml.safe_load((ROOT / "cluster" / name).read_text())
    change(document)
    path = folder / Path(name).name
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_shipped_files_are_fine_and_say_what_is_to_be_filled_in(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    assert check.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "cluster/aws.yaml: fine; FILL_IN left: 1",
        "cluster/gcp.yaml: fine; FILL_IN left: 2",
        "cluster/aws-account.yaml: fine",
        "cluster/kuberay/base.yaml: fine",
        "cluster/kuberay/raycluster.yaml: fine; FILL_IN left: 2",
        "cluster/kuberay/rayjob.yaml: fine; FILL_IN left: 5",
        "cluster/Dockerfile: fine",
    ]


def test_every_file_of_the_folder_that_a_cluster_reads_is_checked() -> None:
    there = {str(path.relative_to(ROOT / "cluster")) for pattern in ("*.yaml", "kuberay/*.yaml", "Dockerfile") for path in (ROOT / "cluster").glob(pattern)}
    assert there == set(check.FILES) | {"job.yaml"}


def node(name: str, **values: Any) -> Change:
    return lambda config: config["available_node_types"][name].update(values)


def node_config(name: str, **values: Any) -> Change:
    return lambda config: config["available_node_types"][name]["node_config"].update(values)


def command(key: str, old: str, new: str) -> Change:
    def change(config: dict[str, Any]) -> None:
        assert any(old in words for words in config[key])
        config[key] = [words.replace(old, new) for words in config[key]]

    return change


EVERY_LAUNCHER: list[tuple[Change, str]] = [
    (lambda config: config.update(nodes=3), "Additional properties are not allowed ('nodes' was unexpected)"),
    (node("cpu", resources={"CPU": 1.5}), "available_node_types.cpu.resources.CPU: 1.5 is not of type 'integer'"),
    (node("cpu", minimum=1), "available_node_types.cpu: Additional properties are not allowed ('minimum' was unexpected)"),
    (node("head", resources={"CPU": 0, "GPU": 1}), "available_node_types.head.resources.GPU: 1; the head must take no work: 0"),
    (node("head", resources={"GPU": 0}), "available_node_types.head.resources.CPU: left to Ray; the head must take no work: 0"),
    (node("head", max_workers=2), "available_node_types.head.max_workers: 2; there is one head: 0"),
    (node("cpu", min_workers=1), "available_node_types.cpu.min_workers: 1 nodes would stay and be paid for; 0"),
    (
        node("gpu-spot", resources={"CPU": 48, "GPU": 4}),
        "available_node_types.gpu-spot.resources.CPU: 48; data stages would take the trainers' cores, one for each GPU is enough: 4",
    ),
    (
        command("head_start_ray_commands", "--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0"),
        "head_start_ray_commands.2: --dashboard-host=0.0.0.0; --dashboard-host=127.0.0.1, and an SSH tunnel to it",
    ),
    (
        command("head_start_ray_commands", "mlflow server --host 127.0.0.1", "mlflow server --host 0.0.0.0"),
        "head_start_ray_commands.1: the MLflow server has no login; --host 127.0.0.1, and an SSH tunnel to it",
    ),
    (
        command("worker_start_ray_commands", "RAY_AUTH_MODE=token ", ""),
        "worker_start_ray_commands.1: starts Ray without a token; begin with export RAY_AUTH_MODE=token;",
    ),
    (
        command("head_start_ray_commands", "RAY_AUTH_MODE=token ", ""),
        "head_start_ray_commands.2: starts Ray without a token; begin with export RAY_AUTH_MODE=token;",
    ),
    (command("worker_start_ray_commands", "RAY_USAGE_STATS_ENABLED=0", ""), "worker_start_ray_commands.1: reports usage; export RAY_USAGE_STATS_ENABLED=0"),
    (
        lambda config: config["file_mounts"].pop("/home/ray/.ray/auth_token"),
        "file_mounts: the token does not reach the nodes; /home/ray/.ray/auth_token: ~/.ray/auth_token",
    ),
    (
        lambda config: config.update(rsync_exclude=["output", "*.pem"]),
        "rsync_exclude.1: *.pem; it would keep the nodes' key, token or settings from them: leave it out",
    ),
    (lambda config: config["docker"].update(image="rayproject/ray:latest"), f"docker.image: rayproject/ray:latest; {check.RAY_IMAGE}, or your own {check.OWN_IMAGE}"),
    (lambda config: config["docker"].update(head_image="rayproject/ray:nightly"), f"docker.head_image: rayproject/ray:nightly; {check.RAY_IMAGE}, or your own {check.OWN_IMAGE}"),
    (lambda config: config["docker"]["run_options"].append("--env=RAY_AUTH_MODE=disabled"), "docker.run_options.4: RAY_AUTH_MODE=disabled; an open Ray port is an open shell: token"),
    (
        lambda config: config["docker"]["run_options"].append("--env=AWS_SECRET_ACCESS_KEY=a"),
        "docker.run_options.4: AWS_SECRET_ACCESS_KEY is written out; a secret by reference (on Kubernetes valueFrom.secretKeyRef), or a role",
    ),
    (lambda config: config["provider"].update(aws_credentials={"aws_access_key_id": "a"}), "provider.aws_credentials: keys are written out; leave them to aws configure, and to the nodes' roles"),
    (command("setup_commands", "--constraint ~/bertstream/cluster/requirements.txt ", ""), "setup_commands.2: pip install without the lock; --constraint cluster/requirements.txt"),
    (lambda config: config.update(head_setup_commands=["pip install --no-deps ray==2.59.0"]), f"head_setup_commands.0: ray==2.59.0; cluster/requirements.txt has {check.LOCK['ray']}"),
    (lambda config: config.update(setup_commands=["pip install https://host/ray-wheels/ray.whl"]), "setup_commands.0: installs a wheel by its address; the lock's version, from the index"),
]

AWS: list[tuple[Change, str]] = [
    (
        lambda config: config["available_node_types"]["cpu"]["node_config"].pop("SecurityGroupIds"),
        "available_node_types.cpu.node_config.SecurityGroupIds: missing; Ray would make a group that opens port 22 to 0.0.0.0/0; name the one of cluster/aws-account.yaml",
    ),
    (
        lambda config: config["provider"].update(security_group={"IpPermissions": [{"FromPort": 8265, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]}),
        "provider.security_group.IpPermissions.0.IpRanges.0.CidrIp: 0.0.0.0/0 opens the nodes to the world; name your own address, as 203.0.113.7/32",
    ),
    (lambda config: config["provider"].pop("cache_stopped_nodes"), "provider.cache_stopped_nodes: true, and disks of stopped nodes are paid for; false"),
    (
        node_config("gpu-spot", InstanceMarketOptions={"Market": "spot"}),
        'available_node_types.gpu-spot.node_config: Unknown parameter in InstanceMarketOptions: "Market", must be one of: MarketType, SpotOptions',
    ),
]

GCP: list[tuple[Change, str]] = [
    (
        lambda config: config["available_node_types"]["head"]["node_config"].pop("networkInterfaces"),
        "available_node_types.head.node_config.networkInterfaces: missing; Ray would take the default network, which opens port 22 to 0.0.0.0/0; name a subnetwork of your own",
    ),
    (node_config("cpu", machinetype="n2"), "available_node_types.cpu.node_config.machinetype: no such field"),
    (node_config("cpu", disks=[{"boot": "yes"}]), "available_node_types.cpu.node_config.disks.0.boot: 'yes' must be of type boolean"),
    (
        node_config("gpu-spot", scheduling={"provisioningModel": "CHEAP"}),
        "available_node_types.gpu-spot.node_config.scheduling.provisioningModel: CHEAP must be one of FLEX_START, RESERVATION_BOUND, SPOT, STANDARD",
    ),
]


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [*(("aws.yaml", *case) for case in [*EVERY_LAUNCHER, *AWS]), *(("gcp.yaml", *case) for case in [*EVERY_LAUNCHER[:3], *GCP])],
    ids=lambda value: value if isinstance(value, str) and value.endswith("yaml") else "",
)
def test_one_wrong_thing_in_a_launcher_file_is_one_line(name: str, change: Change, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(changed(name, change, tmp_path), capsys) == [line]


def test_start_commands_that_are_left_out_are_rays_own_and_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(changed("aws.yaml", lambda config: config.pop("head_start_ray_commands"), tmp_path), capsys)
    assert [line.split(";")[0] for line in found] == [
        "head_start_ray_commands.1: starts Ray without a token",
        "head_start_ray_commands.1: reports usage",
        "head_start_ray_commands.1: --dashboard-host=0.0.0.0",
    ]


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
    (lambda document: document.update(kind="RayClutser"), "apiVersion: ray.io/v1 has no kind RayClutser; KubeRay's are ray.io/v1 RayCluster and RayJob"),
    (lambda document: spec_of(document).update(replicas=1), "SPEC: Additional properties are not allowed ('replicas' was unexpected)"),
    (lambda document: group(document).update(minReplicas=0.5), "SPEC.workerGroupSpecs.1.minReplicas: 0.5 is not of type 'integer'"),
    (lambda document: group(document).update(rayStartParams={"num-cpus": 4}), "SPEC.workerGroupSpecs.1.rayStartParams.num-cpus: 4 is not of type 'string'"),
    (lambda document: group(document).update(minReplicas=2), "SPEC.workerGroupSpecs.1.minReplicas: 2 pods would stay and be paid for; 0"),
    (
        lambda document: group(document)["rayStartParams"].pop("num-cpus"),
        'SPEC.workerGroupSpecs.1.rayStartParams.num-cpus: left to Ray; data stages would take the trainers\' cores, one for each GPU is enough: "4"',
    ),
    (lambda document: spec_of(document).pop("authOptions"), "SPEC.authOptions.mode: missing; an open Ray port is an open shell: token"),
    (lambda document: spec_of(document).update(rayVersion="2.59.0"), f"SPEC.rayVersion: 2.59.0; cluster/requirements.txt has {check.LOCK['ray']}"),
    (lambda document: head(document)["rayStartParams"].pop("num-cpus"), 'SPEC.headGroupSpec.rayStartParams.num-cpus: left to Ray; the head must take no work: "0"'),
    (
        lambda document: head(document).update(serviceType="LoadBalancer"),
        "SPEC.headGroupSpec.serviceType: the dashboard would be open to the world; ClusterIP, no ingress, and kubectl port-forward",
    ),
    (
        lambda document: spec_of(document)["autoscalerOptions"].update(version="v1"),
        "SPEC.autoscalerOptions.version: enableInTreeAutoscaling: true and version: v2, or no node comes and goes",
    ),
    (
        lambda document: spec_of(document)["autoscalerOptions"].update(resources={"limit": {}}),
        "SPEC.autoscalerOptions.spec.containers.0.resources: Additional properties are not allowed ('limit' was unexpected)",
    ),
    (
        lambda document: container(document).update(imagePullpolicy="Always"),
        "SPEC.workerGroupSpecs.1.template.spec.containers.0: Additional properties are not allowed ('imagePullpolicy' was unexpected)",
    ),
    (lambda document: container(document)["resources"]["limits"].pop("memory"), "SPEC.workerGroupSpecs.1.template.spec.containers.0.resources.limits: without memory; say how much"),
    (
        lambda document: container(document).update(image="rayproject/ray:nightly"),
        f"SPEC.workerGroupSpecs.1.template.spec.containers.0.image: rayproject/ray:nightly; your own {check.OWN_IMAGE}, or {check.RAY_IMAGE}",
    ),
    (
        lambda document: container(document).update(env=[{"name": "AWS_SECRET_ACCESS_KEY", "value": "a"}]),
        "SPEC.workerGroupSpecs.1.template.spec.containers.0.env: AWS_SECRET_ACCESS_KEY is written out; a secret by reference (on Kubernetes valueFrom.secretKeyRef), or a role",
    ),
    *(
        (
            lambda document, one=one: spec_of(document)["workerGroupSpecs"][0]["template"]["spec"]["tolerations"].append(one),
            "SPEC.workerGroupSpecs.0.template.spec.tolerations: pods without a GPU would take the GPU nodes' last cores; leave nvidia.com/gpu out, and name the key of every other",
        )
        for one in ({"key": "nvidia.com/gpu", "operator": "Exists"}, {"operator": "Exists"})
    ),
    (lambda document: group(document)["template"]["spec"].pop("securityContext"), "SPEC.workerGroupSpecs.1.template.spec.securityContext.runAsNonRoot: missing; true"),
]


@pytest.mark.parametrize(
    ("name", "spec", "change", "line"),
    [
        *(("kuberay/raycluster.yaml", "spec", *case) for case in KUBERAY),
        *(("kuberay/rayjob.yaml", "spec.rayClusterSpec", *case) for case in [*KUBERAY[:4], KUBERAY[7], KUBERAY[-1]]),
    ],
)
def test_one_wrong_thing_in_a_kuberay_file_is_one_line(name: str, spec: str, change: Change, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(changed(name, change, tmp_path), capsys) == [re.sub("^SPEC", spec, line)]


def both(one: dict[str, Any], **values: Any) -> None:
    for key in ("requests", "limits"):
        one["resources"][key].update({name.replace("GPU", "nvidia.com/gpu"): value for name, value in values.items()})


def pod(part: dict[str, Any]) -> dict[str, Any]:
    return part["template"]["spec"]


WRONG_KUBERAY: list[tuple[Change, str]] = [
    (lambda document: both(pod(head(document))["containers"][0], GPU=1), "headGroupSpec.template.spec.containers.0.resources.limits.nvidia.com/gpu: the head must take no work, and no GPU: leave it out"),
    (lambda document: head(document).update(resources={"GPU": "1"}), "headGroupSpec.resources: KubeRay would take it instead of rayStartParams; leave it out"),
    (lambda document: both(container(document), GPU=0.5), "workerGroupSpecs.1.template.spec.containers.0.resources.limits.nvidia.com/gpu: 0.5; devices are whole: 1"),
    (lambda document: container(document)["resources"]["limits"].update({"nvidia.com/gpu": 2}), "workerGroupSpecs.1.template.spec.containers.0.resources.requests.nvidia.com/gpu: 4, and the limit is 2; the same of both"),
    (lambda document: both(container(document), GPU=2), "workerGroupSpecs.1.rayStartParams.num-gpus: 4, and its containers have 2 of nvidia.com/gpu; the same"),
    (lambda document: group(document)["rayStartParams"].update({"num-cpus": "1.5"}), "workerGroupSpecs.1.rayStartParams.num-cpus: 1.5; a whole number"),
    (lambda document: group(document)["rayStartParams"].update({"num-cpu": "4"}), "workerGroupSpecs.1.rayStartParams.num-cpu: no such option of ray start"),
    (lambda document: both(container(document), memory="56Gib"), "workerGroupSpecs.1.template.spec.containers.0.resources.limits.memory: 56Gib is no quantity; as 500m, 4 or 56Gi"),
    (lambda document: container(document)["resources"]["requests"].update(cpu="60"), "workerGroupSpecs.1.template.spec.containers.0.resources.requests.cpu: 60 is above the limit (46)"),
    (lambda document: group(document).update(groupName="cpu"), "workerGroupSpecs.1.groupName: cpu is there twice; give each a name of its own"),
    (lambda document: pod(group(document)).update(restartPolicy="Always"), "workerGroupSpecs.1.template.spec.restartPolicy: Always; a pod must not come back as another Ray node: Never"),
    (lambda document: container(document)["env"].append({"name": "RAY_AUTH_MODE", "value": "disabled"}), "workerGroupSpecs.1.template.spec.containers.0.env: RAY_AUTH_MODE=disabled; an open Ray port is an open shell: token"),
    (lambda document: head(document).update(headService={"spec": {"type": "LoadBalancer"}}), "headGroupSpec.serviceType: the dashboard would be open to the world; ClusterIP, no ingress, and kubectl port-forward"),
    (lambda document: pod(head(document)).update(hostNetwork=True), "headGroupSpec.template.spec.hostNetwork: true, which opens the node; leave it out"),
    (lambda document: container(document).update(ports=[{"containerPort": 8265, "hostPort": 8265}]), "workerGroupSpecs.1.template.spec.containers.0.ports: a hostPort opens the node; leave it out, and kubectl port-forward"),
    (
        lambda document: container(document).update(securityContext={"privileged": True}),
        "workerGroupSpecs.1.template.spec.containers.0.securityContext: may become root; {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}",
    ),
    (
        lambda document: pod(head(document))["containers"][1].update(command=["mlflow", "server", "--host", "0.0.0.0"]),
        "headGroupSpec.template.spec.containers.1.command: the MLflow server has no login; --host 127.0.0.1, and kubectl port-forward",
    ),
]


@pytest.mark.parametrize(("change", "line"), WRONG_KUBERAY, ids=[line.split(": ")[0] for _, line in WRONG_KUBERAY])
def test_what_a_cluster_would_refuse_or_open_is_named(change: Change, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def own(document: dict[str, Any]) -> None:
        document.update(yaml.load(yaml.dump(document, Dumper=NoAliases), yaml.SafeLoader))  # YAML's anchors are one object
        change(document)

    assert f"spec.{line}" in lines(changed("kuberay/raycluster.yaml", own, tmp_path), capsys)


class NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def resource(name: str, **values: Any) -> Change:
    return lambda document: document["Resources"][name]["Properties"].update(values)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (resource("SecurityGroup", SecurityGroupIngres=[]), "'SecurityGroupIngres' was unexpected"),
        (lambda document: document["Resources"]["Bucket"].update(Type="AWS::S3::Buckett"), "AWS::S3::Buckett"),
        (resource("AmongNodes", GroupId={"Fn::GetAtt": ["Nothing", "GroupId"]}), "'Nothing' is not one of"),
        (lambda document: document.update(AWSTemplateFormatVersion="2011-01-01"), "'2011-01-01' is not one of ['2010-09-09']"),
        (resource("Bucket", PublicAccessBlockConfiguration={"BlockPublicAcls": True}), "the bucket may become public; all four true"),
        (resource("SecurityGroup", SecurityGroupIngress=[{"IpProtocol": "tcp", "FromPort": 8265, "ToPort": 8265, "CidrIp": {"Ref": "SshFrom"}}]), "ports 8265 to 8265 are open to an address; 22 alone, and a tunnel to the others"),
    ],
)
def test_one_wrong_thing_in_the_account_is_named(change: Change, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line, *_) = lines(changed("aws-account.yaml", change, tmp_path), capsys)
    assert words in line


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda document: document["spec"].pop("entrypoint"), "spec.entrypoint: missing; python /home/ray/bertstream/jobs/pretrain.py and its options"),
        (lambda document: document["spec"].update(runtimeEnvYAML="{"), "spec.runtimeEnvYAML: is no mapping in YAML"),
        (lambda document: document["metadata"].update(name="Bert_X"), "metadata.name: Bert_X; small letters, digits and - inside"),
    ],
)
def test_one_wrong_thing_in_the_job_is_one_line(change: Change, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(changed("kuberay/rayjob.yaml", change, tmp_path), capsys) == [line]


def test_a_network_policy_that_lets_everybody_in_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *others, policy = yaml.safe_load_all((ROOT / "cluster/kuberay/base.yaml").read_text())
    policy["spec"]["ingress"].append({"ports": [{"port": 8265}]})
    (tmp_path / "base.yaml").write_text(yaml.safe_dump_all([*others, policy]))
    assert lines(tmp_path / "base.yaml", capsys) == ["spec.ingress: a rule without from lets everybody in; name the pods"]


def test_the_two_kuberay_clusters_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed("kuberay/raycluster.yaml", lambda document: group(document).update(maxReplicas=5), tmp_path)
    path = changed("kuberay/rayjob.yaml", lambda document: None, tmp_path)
    assert lines(path, capsys) == ["spec.rayClusterSpec: must be the spec of raycluster.yaml: workerGroupSpecs.1.maxReplicas differs"]


def test_a_job_without_an_end_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed("kuberay/rayjob.yaml", lambda document: document["spec"].pop("shutdownAfterJobFinishes"), tmp_path)
    assert lines(path, capsys) == ["spec.shutdownAfterJobFinishes: the cluster would stay and be paid for; true"]


def test_the_job_of_the_manifest_is_a_job_of_this_project(capsys: pytest.CaptureFixture[str]) -> None:
    entrypoint = yaml.safe_load((ROOT / "cluster/kuberay/rayjob.yaml").read_text())["spec"]["entrypoint"].split()
    assert entrypoint[:2] == ["python", "/home/ray/bertstream/jobs/pretrain.py"]
    assert load("jobs/pretrain.py").main([*entrypoint[2:], "--show"]) == 0
    shown = capsys.readouterr().out
    assert 'workers = "4..8"\n' in shown and "autoscaled = true\n" in shown


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (check.RAY_IMAGE, "rayproject/ray:2.59.0-py311", f"FROM: rayproject/ray:2.59.0-py311; {check.RAY_IMAGE}, the Ray of cluster/requirements.txt"),
        (check.RAY_IMAGE, "rayproject/ray:2.60.0-py312", f"FROM: rayproject/ray:2.60.0-py312; {check.RAY_IMAGE}, the Ray of cluster/requirements.txt"),
        ("USER ray", "USER root", "USER: root at the end; ray"),
        ("--constraint requirements.txt ", "", "line 13: pip install without the lock; --constraint cluster/requirements.txt"),
        ("--no-deps --force-reinstall .", "--no-deps torch==2.11.0 .", f"line 17: torch==2.11.0; cluster/requirements.txt has {check.LOCK['torch']}"),
    ],
)
def test_one_wrong_thing_in_the_dockerfile_is_one_line(old: str, new: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "cluster/Dockerfile").read_text()
    assert old in text
    (tmp_path / "Dockerfile").write_text(text.replace(old, new))
    (tmp_path / "Dockerfile.dockerignore").write_text("*\n")
    assert lines(tmp_path / "Dockerfile", capsys) == [line]


def test_an_image_that_may_see_everything_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Dockerfile").write_text((ROOT / "cluster/Dockerfile").read_text())
    assert lines(tmp_path / "Dockerfile", capsys) == ["Dockerfile.dockerignore: must begin with * and name what the image may see: runs, data and secrets may not"]


GROUP = """AWSTemplateFormatVersion: "2010-09-09"
Resources:
  G:
    Type: AWS::EC2::SecurityGroup
    Properties: {GroupDescription: x, SecurityGroupIngress: [{IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIpv6: '::/0'}]}
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "is no YAML: "),
        ("", "must hold one mapping or more"),
        ("a: 1", "is neither a file of ray up (provider), nor of Kubernetes (apiVersion), nor of CloudFormation (AWSTemplateFormatVersion)"),
        ("provider: {type: moon}", "is refused by Ray: NotImplementedError: "),
        (GROUP, "Resources.G.Properties.SecurityGroupIngress.0.CidrIpv6: ::/0 opens the nodes to the world; name your own address, as 203.0.113.7/32"),
        ("{apiVersion: v1, kind: Secret, metadata: {nam: x}}", "metadata: Additional properties are not allowed ('nam' was unexpected)"),
    ],
)
def test_what_is_no_cluster_file_is_one_line(text: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.yaml").write_text(text)
    (found,) = lines(tmp_path / "some.yaml", capsys)
    assert found.startswith(line)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(tmp_path / "none.yaml", capsys) == ["cannot be read: No such file or directory"]


CODE = {"pipeline/a.py", "pipeline/text/b.py", "jobs/pretrain.py"}
SECRETS = {".env", ".env.local", "aws.env", "key.pem", "id.key", "credentials", "aws-credentials.json", "my-service-account.json", "auth_token", "pipeline/.env"}
BULK = {"output/runs/r/checkpoint", "data/books.txt", ".venv/bin/python", ".git/config", "pipeline/__pycache__/a.pyc"}
LOOSE = {"books.txt", "wiki/articles.jsonl", "README.md", "tests/unit/test_a.py"}


@pytest.mark.parametrize(("by_file", "sent"), [(True, CODE), (False, CODE | LOOSE)])
def test_a_jobs_upload_holds_the_code_and_no_data_runs_or_secrets(by_file: bool, sent: set[str], tmp_path: Path) -> None:
    """With cluster/job.yaml the code alone; with --working-dir . still nothing that .gitignore names."""
    from ray._private.ray_constants import get_runtime_env_default_excludes
    from ray._private.runtime_env.packaging import create_package

    project = tmp_path / "project"
    for name in CODE | SECRETS | BULK | LOOSE:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    (project / ".gitignore").write_text((ROOT / ".gitignore").read_text())
    job = yaml.safe_load((ROOT / "cluster/job.yaml").read_text())
    excludes = get_runtime_env_default_excludes() + (job["excludes"] if by_file else [])
    create_package(str(project), tmp_path / "upload.zip", include_gitignore=True, excludes=excludes)
    with zipfile.ZipFile(tmp_path / "upload.zip") as upload:
        assert job["working_dir"] == "." and set(upload.namelist()) - {".gitignore"} == sent
