"""The check of files of `ray up`, on the shipped ones with one thing wrong."""

from pathlib import Path
from typing import Any

import pytest

from cluster import check
from cluster.rules.software import LOCK, OWN_IMAGE, RAY_IMAGE
from tests.unit.cluster_files.changing import Change, changed, lines


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
    (lambda config: config.update(setup_commands=5), "setup_commands: 5 is not of type 'array'"),
    (lambda config: config.update(docker=[1]), "docker: [1] is not of type 'object'"),
    (
        lambda config: config["docker"].pop("image"),
        "is refused by Ray: AssertionError: Must provide a container & image name",
    ),
    (node("cpu", resources={"CPU": 1.5}), "available_node_types.cpu.resources.CPU: 1.5 is not of type 'integer'"),
    (
        node("cpu", minimum=1),
        "available_node_types.cpu: Additional properties are not allowed ('minimum' was unexpected)",
    ),
    (
        node("head", resources={"CPU": 0, "GPU": 1}),
        "available_node_types.head.resources.GPU: 1; the head must take no work: 0",
    ),
    (
        node("head", resources={"GPU": 0}),
        "available_node_types.head.resources.CPU: left to Ray; the head must take no work: 0",
    ),
    (node("head", max_workers=2), "available_node_types.head.max_workers: 2; there is one head: 0"),
    (node("cpu", min_workers=1), "available_node_types.cpu.min_workers: 1 nodes would stay and be paid for; 0"),
    (
        node("gpu-spot", resources={"CPU": 48, "GPU": 4}),
        "available_node_types.gpu-spot.resources.CPU: 48; data stages would take the trainers' cores, "
        "one for each GPU is enough: 4",
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
    (
        command("worker_start_ray_commands", "RAY_USAGE_STATS_ENABLED=0", ""),
        "worker_start_ray_commands.1: reports usage; export RAY_USAGE_STATS_ENABLED=0",
    ),
    (
        lambda config: config["file_mounts"].pop("/home/ray/.ray/auth_token"),
        "file_mounts: the token does not reach the nodes; /home/ray/.ray/auth_token: ~/.ray/auth_token",
    ),
    (
        lambda config: config.update(rsync_exclude=["output", "*.pem"]),
        "rsync_exclude.1: *.pem; it would keep the nodes' key, token or settings from them: leave it out",
    ),
    (
        lambda config: config["docker"].update(image="rayproject/ray:latest"),
        f"docker.image: rayproject/ray:latest; {RAY_IMAGE}, or your own {OWN_IMAGE}",
    ),
    (
        lambda config: config["docker"].update(head_image="rayproject/ray:nightly"),
        f"docker.head_image: rayproject/ray:nightly; {RAY_IMAGE}, or your own {OWN_IMAGE}",
    ),
    (
        lambda config: config["docker"]["run_options"].append("--env=RAY_AUTH_MODE=disabled"),
        "docker.run_options.4: RAY_AUTH_MODE=disabled; an open Ray port is an open shell: token",
    ),
    (
        lambda config: config["docker"]["run_options"].append("--env=AWS_SECRET_ACCESS_KEY=a"),
        "docker.run_options.4: AWS_SECRET_ACCESS_KEY is written out; "
        "a secret by reference (on Kubernetes valueFrom.secretKeyRef), or a role",
    ),
    (
        lambda config: config["provider"].update(aws_credentials={"aws_access_key_id": "a"}),
        "provider.aws_credentials: keys are written out; leave them to aws configure, and to the nodes' roles",
    ),
    (
        command("setup_commands", "--constraint ~/bertstream/cluster/requirements.txt ", ""),
        "setup_commands.2: pip install without the lock; --constraint cluster/requirements.txt",
    ),
    (
        lambda config: config.update(head_setup_commands=["pip install --no-deps ray==2.59.0"]),
        f"head_setup_commands.0: ray==2.59.0; cluster/requirements.txt has {LOCK['ray']}",
    ),
    (
        lambda config: config.update(setup_commands=["pip install https://host/ray-wheels/ray.whl"]),
        "setup_commands.0: installs a wheel by its address; the lock's version, from the index",
    ),
]

AWS: list[tuple[Change, str]] = [
    (
        lambda config: config["available_node_types"]["cpu"]["node_config"].pop("SecurityGroupIds"),
        "available_node_types.cpu.node_config.SecurityGroupIds: missing; "
        "Ray would make a group that opens port 22 to 0.0.0.0/0; name the one of cluster/aws-account.yaml",
    ),
    (
        lambda config: config["provider"].update(
            security_group={"IpPermissions": [{"FromPort": 8265, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]}
        ),
        "provider.security_group.IpPermissions.0.IpRanges.0.CidrIp: 0.0.0.0/0 opens the nodes to the world; "
        "name your own address, as 203.0.113.7/32",
    ),
    (
        lambda config: config["provider"].pop("cache_stopped_nodes"),
        "provider.cache_stopped_nodes: true, and disks of stopped nodes are paid for; false",
    ),
    (
        node_config("gpu-spot", InstanceMarketOptions={"Market": "spot"}),
        'available_node_types.gpu-spot.node_config: Unknown parameter in InstanceMarketOptions: "Market", must '
        "be one of: MarketType, SpotOptions",
    ),
]

ZONES = "GPU nodes would start in several zones, which is slow and paid for; name one"
AWS += [
    (lambda config: config["provider"].pop("availability_zone"), f"provider.availability_zone: missing; {ZONES}"),
    (
        lambda config: config["provider"].update(availability_zone="us-east-1a,us-east-1b"),
        f"provider.availability_zone: us-east-1a,us-east-1b; {ZONES}",
    ),
]

GCP: list[tuple[Change, str]] = [
    (
        lambda config: config["available_node_types"]["head"]["node_config"].pop("networkInterfaces"),
        "available_node_types.head.node_config.networkInterfaces: missing; "
        "Ray would take the default network, which opens port 22 to 0.0.0.0/0; name a subnetwork of your own",
    ),
    (node_config("cpu", machinetype="n2"), "available_node_types.cpu.node_config.machinetype: no such field"),
    (
        node_config("cpu", disks=[{"boot": "yes"}]),
        "available_node_types.cpu.node_config.disks.0.boot: 'yes' must be of type boolean",
    ),
    (
        node_config("gpu-spot", scheduling={"provisioningModel": "CHEAP"}),
        "available_node_types.gpu-spot.node_config.scheduling.provisioningModel: "
        "CHEAP must be one of FLEX_START, RESERVATION_BOUND, SPOT, STANDARD",
    ),
]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("aws.yaml", [*EVERY_LAUNCHER, *AWS]), ("gcp.yaml", [*EVERY_LAUNCHER[:3], *GCP])],
    ids=["aws", "gcp"],
)
def test_one_wrong_thing_in_a_launcher_file_is_one_line(
    name: str, wrong: list[tuple[Change, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [lines(changed(name, change, tmp_path), capsys) for change, _ in wrong]
    assert found == [[line] for _, line in wrong]


def test_one_subnet_for_all_gpu_nodes_does_for_a_zone_and_two_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def subnets(*names: str) -> Change:
        def change(config: dict[str, Any]) -> None:
            del config["provider"]["availability_zone"]
            for name, subnet in zip(("gpu-spot", "gpu-on-demand"), names, strict=True):
                config["available_node_types"][name]["node_config"]["SubnetIds"] = [subnet]

        return change

    assert check.main([str(changed("aws.yaml", subnets("subnet-1", "subnet-1"), tmp_path))]) == 0
    capsys.readouterr()
    found = lines(changed("aws.yaml", subnets("subnet-1", "subnet-2"), tmp_path), capsys)
    assert found == [f"provider.availability_zone: missing; {ZONES}"]


def test_start_commands_that_are_left_out_are_rays_own_and_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lines(changed("aws.yaml", lambda config: config.pop("head_start_ray_commands"), tmp_path), capsys)
    assert [line.split(";")[0] for line in found] == [
        "head_start_ray_commands.1: starts Ray without a token",
        "head_start_ray_commands.1: reports usage",
        "head_start_ray_commands.1: --dashboard-host=0.0.0.0",
    ]
